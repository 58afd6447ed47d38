"""Where to look: the sub-layers of any network, found by what they are, whatever family they belong to.

Layers and heads are counted from 0, in Python, in JSON and on the command line.

A hand on one part of a network: what a head or a sub-layer gives goes through a function on its way.

Switching a head off, taking its mean and asking how much depends on it are all this, with another function.

B rows, T places, H heads, E head width of values, D model width
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from clearhead.errors import InspectionError
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.model.attention import AttentionOutput, MultiHeadAttention
from clearhead.model.encoder import Stack
from clearhead.model.feed_forward import FeedForward
from clearhead.model.recurrent.attention import SourceAttention
from clearhead.model.residual import Residual

FEED_FORWARD = "feed_forward"


@dataclass(frozen=True)
class SubLayer:
    """One attention or one feed-forward network. `name` is a kind of attention, or `encoder_feed_forward` and so on."""

    name: str
    layer: int
    module: nn.Module
    residual: Residual | None  # what adds its output to the stream; recurrent networks have none

    @property
    def num_heads(self) -> int:
        """0 where there is no attention."""
        if isinstance(self.module, MultiHeadAttention):
            return self.module.num_heads
        return 1 if isinstance(self.module, SourceAttention) else 0


def stacks(network: nn.Module) -> list[Stack]:
    """The Transformer stacks in the order in which they run: what reads before what writes."""
    return [module for module in network.modules() if isinstance(module, Stack)]


def sub_layers(network: nn.Module) -> list[SubLayer]:
    """All sub-layers in the order in which they run."""
    found = []
    for stack in stacks(network):
        side = "decoder" if stack.is_causal else "encoder"
        for number, layer in enumerate(stack.layers):
            parts = dict(layer.named_children())
            for part, module in parts.items():
                residual = parts.get(f"{part}_residual")
                if isinstance(module, MultiHeadAttention):
                    name = "cross" if part == "cross_attention" else side
                elif isinstance(module, FeedForward):
                    name = f"{side}_{FEED_FORWARD}"
                else:
                    continue
                assert isinstance(residual, Residual)
                found.append(SubLayer(name, number, module, residual))
    looked_up = (module for module in network.modules() if isinstance(module, SourceAttention))
    return found + [SubLayer("cross", number, module, None) for number, module in enumerate(looked_up)]


def heads(network: nn.Module) -> list[HeadRef]:
    """Every head of every attention."""
    return [HeadRef(one.name, one.layer, head) for one in sub_layers(network) for head in range(one.num_heads)]


def find(network: nn.Module, part: HeadRef) -> SubLayer:
    """The sub-layer that a part belongs to; refuses what the network has not."""
    all_found = sub_layers(network)
    names = {one.name: 0 for one in all_found}
    if part.name not in names:
        there = ", ".join(names) or "no attention at all"
        raise InspectionError(f"expected a part of this network, which has {there}; got {part.name!r}")
    same = {one.layer: one for one in all_found if one.name == part.name}
    if part.layer not in same:
        raise InspectionError(f"{part.name} has {len(same)} layers, counted from 0; there is no layer {part.layer}")
    found = same[part.layer]
    if part.head is not None and not 0 <= part.head < found.num_heads:
        held = f"{found.num_heads} heads, counted from 0" if found.num_heads else "no heads"
        raise InspectionError(f"{part.name} layer {part.layer} has {held}; there is no head {part.head}")
    return found


Change = Callable[[Tensor], Tensor]
"""What a part gave, and what goes on instead: mixed_BTE of a head, y_BTD of a sub-layer."""


def tap(network: nn.Module, part: HeadRef, change: Change) -> None:
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
