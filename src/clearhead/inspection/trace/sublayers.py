"""The sub-layers of a network, found by module type, and hooks that transform their outputs.

Output transforms implement ablation (replace the output), mean ablation (collect the outputs first) and gradient
importance (multiply by a gate).

B batch rows, T positions, E head width of values, D model width
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
    """An attention or feed-forward module of a network."""

    name: str
    """An attention kind, `encoder_feed_forward` or `decoder_feed_forward`."""
    layer: int
    module: nn.Module
    residual: Residual | None
    """Module that adds the output to the residual stream; None in recurrent networks."""

    @property
    def num_heads(self) -> int:
        """Number of attention heads; 0 for a feed-forward network."""
        if isinstance(self.module, MultiHeadAttention):
            return self.module.num_heads
        return 1 if isinstance(self.module, SourceAttention) else 0


def find_stacks(network: nn.Module) -> list[Stack]:
    """Return the Transformer stacks in the order in which they run: encoder, then decoder."""
    return [module for module in network.modules() if isinstance(module, Stack)]


def find_sublayers(network: nn.Module) -> list[SubLayer]:
    """Return all sub-layers in the order in which they run."""
    sublayers = []
    for stack in find_stacks(network):
        side = "decoder" if stack.is_causal else "encoder"
        for number, layer in enumerate(stack.layers):
            children = dict(layer.named_children())
            for child_name, module in children.items():
                residual = children.get(f"{child_name}_residual")
                if isinstance(module, MultiHeadAttention):
                    name = "cross" if child_name == "cross_attention" else side
                elif isinstance(module, FeedForward):
                    name = f"{side}_{FEED_FORWARD}"
                else:
                    continue
                assert isinstance(residual, Residual)
                sublayers.append(SubLayer(name, number, module, residual))
    recurrent = (module for module in network.modules() if isinstance(module, SourceAttention))
    return sublayers + [SubLayer("cross", number, module, None) for number, module in enumerate(recurrent)]


def find_heads(network: nn.Module) -> list[HeadRef]:
    """Return every head of every attention."""
    return [
        HeadRef(sublayer.name, sublayer.layer, head)
        for sublayer in find_sublayers(network)
        for head in range(sublayer.num_heads)
    ]


def find_sublayer(network: nn.Module, head_ref: HeadRef) -> SubLayer:
    """Return the sub-layer of a reference; raise InspectionError if the network has no such sub-layer or head."""
    sublayers = find_sublayers(network)
    names = dict.fromkeys(sublayer.name for sublayer in sublayers)
    if head_ref.name not in names:
        available = ", ".join(names) or "no attention at all"
        raise InspectionError(
            f"expected a head or sub-layer of this network, which has {available}; got {head_ref.name!r}"
        )
    by_layer = {sublayer.layer: sublayer for sublayer in sublayers if sublayer.name == head_ref.name}
    if head_ref.layer not in by_layer:
        raise InspectionError(
            f"expected a layer of {head_ref.name} from 0 to {len(by_layer) - 1}, got {head_ref.layer}"
        )
    sublayer = by_layer[head_ref.layer]
    if head_ref.head is not None and not 0 <= head_ref.head < sublayer.num_heads:
        if not sublayer.num_heads:
            raise InspectionError(
                f"{head_ref.name} has no heads, got head {head_ref.head}; write {head_ref.name}.{head_ref.layer}"
            )
        raise InspectionError(
            f"expected a head of {head_ref.name} layer {head_ref.layer} from 0 to {sublayer.num_heads - 1}, "
            f"got {head_ref.head}"
        )
    return sublayer


OutputTransform = Callable[[Tensor], Tensor]
"""Function that maps the output of a head [B, T, E] or of a sub-layer [B, T, D] to its replacement."""


def transform_output(network: nn.Module, head_ref: HeadRef, transform: OutputTransform) -> None:
    """Register a hook that applies `transform` to the output of a head or sub-layer.

    The hook is never removed, so pass a copy from `share_weights`, not the model's own network.
    """
    module = find_sublayer(network, head_ref).module
    if isinstance(module, MultiHeadAttention) and head_ref.head is not None:
        _transform_head(module, head_ref.head, transform)
    elif isinstance(module, MultiHeadAttention):
        module.register_forward_hook(
            lambda _, args, output: AttentionOutput(transform(output.y_D), output.weights_BHTS)
        )
    elif isinstance(module, SourceAttention):  # a single head, so head and sub-layer have the same output
        module.register_forward_hook(lambda _, args, output: (transform(output[0]), output[1]))
    else:
        module.register_forward_hook(lambda _, args, output: transform(output))


def _transform_head(module: MultiHeadAttention, head: int, transform: OutputTransform) -> None:
    """Register a hook that transforms the slice of one head in the input of the output projection W_O."""
    columns = slice(head * module.value_dim, (head + 1) * module.value_dim)

    def replace_columns(_: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        concatenated = args[0].clone()
        concatenated[..., columns] = transform(args[0][..., columns])
        return (concatenated,)

    module.output.register_forward_pre_hook(replace_columns)
