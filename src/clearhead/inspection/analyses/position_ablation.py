"""What word order is to a model: the table that marks places, and the model without it (C6).

L places, D width of the table, O offsets, H heads
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.trace.activation_recorder import Recorder, share_weights
from clearhead.inspection.trace.trace_types import Floats
from clearhead.model.positions import AddedPositions, RelativeBias, RotaryPositions, Rotation


@dataclass(frozen=True, eq=False)
class PositionTable:
    """How places are marked, up to some length."""

    kind: str
    """sinusoidal, learned, rotary, relative or none."""
    table_LD: Floats | None
    """What is added to embeddings; of rotary positions the sine and cosine of each pair's angle, in turn."""
    bias_HO: Floats | None
    """Relative positions: what is added to a score, for a key O - L + 1 places ahead of the query."""


def position_table(network: nn.Module, kind: str, length: int) -> PositionTable:
    """The marks of the first places, as the first stack of a network uses them."""
    for module in network.modules():
        if isinstance(module, AddedPositions):
            return PositionTable(kind, module.weight[:length].detach().numpy(), None)
        if isinstance(module, RotaryPositions):
            return PositionTable(kind, module.table_LK[:length].numpy(), None)
        if isinstance(module, RelativeBias):
            bias_HTS = module(length, length)[0].detach()
            behind_HO, ahead_HO = bias_HTS[:, -1, :], bias_HTS[:, 0, 1:]
            return PositionTable(kind, None, torch.cat((behind_HO, ahead_HO), 1).numpy())
    return PositionTable("none", None, None)


def without_positions(network: nn.Module) -> nn.Module:
    """A network with the same weights to which all places look alike."""
    blind = share_weights(network)
    for module in blind.modules():
        if isinstance(module, AddedPositions | RelativeBias):
            module.register_forward_hook(_nothing)
        elif isinstance(module, RotaryPositions):
            module.register_forward_hook(_no_rotation)
    return blind


def _nothing(_: nn.Module, args: tuple[Any, ...], given: Tensor) -> Tensor:
    return torch.zeros_like(given)


def _no_rotation(_: nn.Module, args: tuple[Any, ...], rotation: Rotation) -> Rotation:
    return Rotation(torch.ones_like(rotation.cos_1C), torch.zeros_like(rotation.sin_1C))


def order_difference(network: nn.Module, src_1S: Tensor) -> float | None:
    """How much the state of a token at the top of the encoder hangs on where it stands: the largest difference when the
    tokens are read in reverse. None where there is no stack that sees everything."""
    forwards_SD, backwards_SD = _top(network, src_1S), _top(network, src_1S.flip(1))
    if forwards_SD is None or backwards_SD is None:
        return None
    return float((forwards_SD - backwards_SD.flip(0)).abs().max())


def _top(network: nn.Module, src_1S: Tensor) -> Tensor | None:
    recorder = Recorder(network)
    with torch.inference_mode():
        watched: Any = recorder.network
        watched.backbone(src_1S) if hasattr(watched, "backbone") else watched.encode(src_1S)
    streams = [one for one in recorder.streamed if one.name.startswith("encoder")]
    return streams[-1].states_BTD[0] if streams else None
