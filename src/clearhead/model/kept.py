"""What is laid out of a model for search, kept as long as the model is the one that it was laid out of."""

from collections.abc import Callable
from itertools import chain
from operator import is_
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from torch import nn


class Fresh(Protocol):
    """Something with copies of numbers."""

    @property
    def is_fresh(self) -> bool:
        """Whether they are still those of the weights."""


Copy = TypeVar("Copy", bound=Fresh)


class Parts(NamedTuple):
    """All modules and parameters that a flat stack was made of, and where the numbers lie."""

    num_modules: int  # above all others, which are the first ones of `own`
    tables: list[dict[str, Any]]  # where each module has its parameters and its modules
    entries: list[Any]  # what stands there
    own: list[dict[str, Any]]  # all else that a module has
    hooks: list[dict[int, Any]]
    parameters: list[nn.Parameter]
    places: list[int]

    @classmethod
    def of(cls, modules: list[nn.Module]) -> "Parts | None":
        """These and all that is below, if calling them runs their own `forward` and nothing else, all the way down."""
        count, modules = len(modules), [*modules]
        for module in modules:  # grows
            modules += [each for each in module._modules.values() if each is not None]
        parameters = [each for module in modules for each in module._parameters.values() if each is not None]
        tables: list[dict[str, Any]] = [table for each in modules for table in (each._modules, each._parameters)]
        hooks = [table for each in modules for table in (each._forward_hooks, each._forward_pre_hooks)]
        own = [each.__dict__ for each in modules]
        places = [each.data_ptr() for each in parameters]
        parts = cls(count, tables, _entries(tables), own, hooks, parameters, places)
        is_computed = any("parametrizations" in table for table in tables)
        return None if is_computed or not parts.are_bare else parts

    @property
    def are_bare(self) -> bool:
        """Whether nothing is hooked to them, or stands in the place of what they compute."""
        return not any(self.hooks) and not any("forward" in each for each in self.own)

    def are_still(self, modules: list[nn.Module]) -> bool:
        """Whether these are those of then, with all that is below, and with their numbers where they were."""
        entries = _entries(self.tables)
        return (
            self.are_bare
            and len(modules) == self.num_modules
            and all(module.__dict__ is own for module, own in zip(modules, self.own, strict=False))
            and len(entries) == len(self.entries)
            and all(map(is_, entries, self.entries))
            and [each.data_ptr() for each in self.parameters] == self.places
        )


def _entries(tables: list[dict[str, Any]]) -> list[Any]:
    return [*chain.from_iterable([table.values() for table in tables])]


class Kept(Generic[Copy]):
    """A flat stack from one search to the next: for one short sentence making it takes a twentieth of the time.

    A module that keeps something else than weights is an exception, and this is the only one: it holds nothing of any
    input, is checked before each search, is never saved or copied, and without it only time would change. The model
    that holds it drops it when it is moved or trained, and the old numbers with it.
    """

    def __init__(self) -> None:
        self._made: tuple[Parts, Copy] | None = None

    def __reduce__(self) -> tuple[type["Kept[Copy]"], tuple[()]]:
        return Kept, ()  # a copied model has parameters of its own

    def of(self, modules: list[nn.Module], make: Callable[[], Copy]) -> Copy | None:
        """The one of these parts; None where they are not bare."""
        made = self._made
        if made is None or not made[0].are_still(modules) or not made[1].is_fresh:
            parts = Parts.of(modules)
            made = self._made = None if parts is None else (parts, make())
        return None if made is None else made[1]
