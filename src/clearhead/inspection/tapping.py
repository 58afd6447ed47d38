"""A hand on one part of a network: what a head or a sub-layer gives goes through a function on its way.

Switching a head off, taking its mean and asking how much depends on it are all this, with another function.

B rows, T places, H heads, E head width of values, D model width
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from clearhead.inspection.parts import Part
from clearhead.inspection.sublayers import find
from clearhead.model.attention import AttentionOutput, MultiHeadAttention
from clearhead.model.recurrent.attention import SourceAttention

Change = Callable[[Tensor], Tensor]
"""What a part gave, and what goes on instead: mixed_BTE of a head, y_BTD of a sub-layer."""


def tap(network: nn.Module, part: Part, change: Change) -> None:
    """Puts `change` behind a part of a network, for good: give it one that is nobody else's (`share`)."""
    module = find(network, part).module
    if isinstance(module, MultiHeadAttention) and part.head is not None:
        _tap_head(module, part.head, change)
    elif isinstance(module, MultiHeadAttention):
        module.register_forward_hook(lambda _, args, given: AttentionOutput(change(given.y_D), given.weights_BHTS))
    elif isinstance(module, SourceAttention):  # its only head is all of it
        module.register_forward_hook(lambda _, args, given: (change(given[0]), given[1]))
    else:
        module.register_forward_hook(lambda _, args, given: change(given))


def _tap_head(module: MultiHeadAttention, head: int, change: Change) -> None:
    """Before the heads are projected together, each has columns of its own."""
    columns = slice(head * module.value_dim, (head + 1) * module.value_dim)

    def replace(_: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        changed = args[0].clone()
        changed[..., columns] = change(args[0][..., columns])
        return (changed,)

    module.output.register_forward_pre_hook(replace)
