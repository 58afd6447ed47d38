"""Position encodings of a network, their ablation, and the dependence of the encoder on word order.

L positions, D width of the table, S source positions, O relative positions (2 L - 1), T queries, H heads
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.trace.activation_recorder import ActivationRecorder, share_weights
from clearhead.inspection.trace.forced_pass import has_decoder
from clearhead.inspection.trace.trace_types import Floats
from clearhead.model.positions import AddedPositions, RelativeBias, RotaryPositions, Rotation


@dataclass(frozen=True, eq=False)
class PositionTable:
    """Position encodings of the first positions."""

    kind: str
    """sinusoidal, learned, rotary, relative or none."""
    table_LD: Floats | None
    """Vectors that are added to the embeddings; for rotary positions, sine and cosine of the angle of each pair of
    dimensions, alternating."""
    bias_HO: Floats | None
    """Relative position bias of each head; column o is for a key that is o - L + 1 positions after the query."""


def position_table(network: nn.Module, kind: str, length: int) -> PositionTable:
    """Return the encodings of the first `length` positions in the network's first stack."""
    for module in network.modules():
        if isinstance(module, AddedPositions):
            return PositionTable(kind, module.weight[:length].detach().numpy(), None)
        if isinstance(module, RotaryPositions):
            return PositionTable(kind, module.table_LK[:length].numpy(), None)
        if isinstance(module, RelativeBias):
            bias_HTS = module(length, length)[0].detach()
            before_HO, after_HO = bias_HTS[:, -1, :], bias_HTS[:, 0, 1:]
            return PositionTable(kind, None, torch.cat((before_HO, after_HO), 1).numpy())
    return PositionTable("none", None, None)


def ablate_positions(network: nn.Module) -> nn.Module:
    """Return a network that shares the weights and has no position encodings."""
    ablated = share_weights(network)
    for module in ablated.modules():
        if isinstance(module, AddedPositions | RelativeBias):
            module.register_forward_hook(_zeros)
        elif isinstance(module, RotaryPositions):
            module.register_forward_hook(_identity_rotation)
    return ablated


def _zeros(_: nn.Module, args: tuple[Any, ...], encoding: Tensor) -> Tensor:
    return torch.zeros_like(encoding)


def _identity_rotation(_: nn.Module, args: tuple[Any, ...], rotation: Rotation) -> Rotation:
    return Rotation(torch.ones_like(rotation.cos_1C), torch.zeros_like(rotation.sin_1C))


def order_difference(network: nn.Module, src_1S: Tensor) -> float | None:
    """Return the largest change in the encoder's last residual stream when the source tokens are reversed.

    The states of the same token are compared. Returns None for networks without a Transformer encoder.
    """
    states_SD, reversed_states_SD = _last_encoder_states(network, src_1S), _last_encoder_states(network, src_1S.flip(1))
    if states_SD is None or reversed_states_SD is None:
        return None
    return float((states_SD - reversed_states_SD.flip(0)).abs().max())


def _last_encoder_states(network: nn.Module, src_1S: Tensor) -> Tensor | None:
    """Return the encoder's last residual stream, or None for networks without a Transformer encoder."""
    recorder = ActivationRecorder(network)
    with torch.inference_mode():
        recorded_network: Any = recorder.network
        encoder = recorded_network.encode if has_decoder(recorded_network) else recorded_network.backbone
        encoder(src_1S)
    streams = [stream for stream in recorder.residual_streams if stream.name.startswith("encoder")]
    return streams[-1].states_BTD[0] if streams else None
