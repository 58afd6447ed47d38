"""Hooks that record the attention, the residual streams and the recurrent states of one forward pass.

The hooks are registered on a copy of the network that shares its weights: the original network gets no hooks and can
run concurrently.

B batch rows, H heads, T queries, S keys, K head width of queries and keys, E head width of values, D model width;
recurrent attention: R decoder rows, N sentences
"""

import copy
import inspect
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.inspection.trace.sublayers import SubLayer, find_stacks, find_sublayers
from clearhead.model.attention import AttentionOutput, MultiHeadAttention
from clearhead.model.recurrent.attention import EncoderStates, SourceAttention
from clearhead.model.recurrent.encoder import RecurrentEncoder
from clearhead.model.recurrent.layers import RecurrentStack

Network = TypeVar("Network", bound=nn.Module)
_ATTENTION_SIGNATURE = inspect.signature(MultiHeadAttention.forward)


def share_weights(network: Network) -> Network:
    """Return a copy of the network, in evaluation mode, that shares its parameters and buffers."""
    tensors = chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in tensors}).eval()


@dataclass(frozen=True)
class RecordedAttention:
    """Inputs and attention weights of one call of an attention module."""

    name: str
    layer: int
    weights_BHTS: Tensor
    allowed_BHTS: Tensor
    q_BHTK: Tensor
    k_BHSK: Tensor
    v_BHSE: Tensor
    scale: float | None
    """Factor of the dot products of queries and keys; None if the scores are not scaled dot products."""
    bias_BHTS: Tensor | None
    """Relative position bias, which is added to the scores; None for other position encodings."""
    scores_BHTS: Tensor | None = None
    """Recurrent decoders: scores before mask and softmax. None for multi-head attention, whose scores can be computed
    from queries, keys, scale and bias."""


@dataclass(frozen=True)
class RecurrentStates:
    """States and gate activations of one recurrent layer after every position."""

    name: str
    """`encoder`, `encoder_backward` (which reads the positions in reverse order) or `decoder`."""
    layer: int
    h_BTD: Tensor
    c_BTD: Tensor | None
    """Cell states of an LSTM; None for other cells."""
    gates: dict[str, Tensor]
    """Activations by name of the gate, each [B, T, D]; empty for a plain RNN."""


@dataclass(frozen=True)
class RecordedResidual:
    """The residual stream after one sub-layer, or before the first sub-layer of a stack."""

    name: str
    """Name of the sub-layer; before the first sub-layer, `encoder` or `decoder`."""
    layer: int
    """Layer of the sub-layer; -1 before the first sub-layer."""
    states_BTD: Tensor


class ActivationRecorder:
    """Recorder of one forward pass: call `network`, then read the three lists.

    With `recurrent_states`, states and gates of recurrent layers are recorded too; each recurrent layer is then run a
    second time, step by step.
    """

    def __init__(self, network: nn.Module, recurrent_states: bool = False) -> None:
        self.network = share_weights(network)
        self.attention: list[RecordedAttention] = []
        self.residual_streams: list[RecordedResidual] = []
        self.recurrent_states: list[RecurrentStates] = []
        for stack in find_stacks(self.network):
            side = "decoder" if stack.is_causal else "encoder"
            stack.register_forward_pre_hook(lambda _, args, side=side: self._record_residual(side, -1, args[0]))
        for sublayer in find_sublayers(self.network):
            self._register_sublayer_hooks(sublayer)
        for module in self.network.modules() if recurrent_states else ():
            if isinstance(module, RecurrentStack):
                self._register_recurrent_hooks(module)

    def _register_sublayer_hooks(self, sublayer: SubLayer) -> None:
        if isinstance(sublayer.module, MultiHeadAttention):
            sublayer.module.register_forward_pre_hook(_request_weights, with_kwargs=True)
            sublayer.module.register_forward_hook(
                lambda module, args, output: self._record_attention(sublayer, module, args, output)
            )
        elif isinstance(sublayer.module, SourceAttention):
            sublayer.module.register_forward_hook(
                lambda module, args, output: self._record_source_attention(sublayer, module, args, output)
            )
        if sublayer.residual is not None:
            sublayer.residual.register_forward_hook(
                lambda _, args, states: self._record_residual(sublayer.name, sublayer.layer, states)
            )

    def _record_residual(self, name: str, layer: int, states_BTD: Tensor) -> None:
        self.residual_streams.append(RecordedResidual(name, layer, states_BTD))

    def _record_attention(
        self, sublayer: SubLayer, module: MultiHeadAttention, args: tuple[Any, ...], output: AttentionOutput
    ) -> None:
        """Record one call of multi-head attention; `_request_weights` has made all its arguments positional."""
        q_BTHK, (k_BSHK, v_BSHE), layout, *_ = args
        weights_BHTS = output.weights_BHTS
        assert weights_BHTS is not None
        allowed = layout.allowed_keys(*weights_BHTS.shape[2:])
        allowed_BHTS = (torch.ones(1, dtype=torch.bool) if allowed is None else allowed).expand_as(weights_BHTS)
        bias_BHTS = None if layout.bias_1HTS is None else layout.bias_1HTS.expand_as(weights_BHTS)
        q_BHTK, k_BHSK, v_BHSE = (tensor.transpose(1, 2) for tensor in (q_BTHK, k_BSHK, v_BSHE))
        recorded = RecordedAttention(
            sublayer.name, sublayer.layer, weights_BHTS, allowed_BHTS, q_BHTK, k_BHSK, v_BHSE, module.scale, bias_BHTS
        )
        self.attention.append(recorded)

    def _record_source_attention(
        self, sublayer: SubLayer, module: SourceAttention, args: tuple[Any, ...], output: tuple[Tensor, Tensor]
    ) -> None:
        """Record one call of a recurrent decoder's attention as an attention with one head."""
        source: EncoderStates
        q_RTD, source = args
        weights_R1TS = output[1][:, None]
        allowed = source.allowed_N1S
        allowed_R1TS = (torch.ones(1) if allowed is None else allowed[:, None]).bool().expand_as(weights_R1TS)
        keys, values = source.keys_NSD[:, None], source.states_NSD[:, None]
        scale = getattr(module.similarity, "scale", None)
        scores = module.similarity(q_RTD.reshape(len(source.keys_NSD), -1, q_RTD.shape[2]), source.keys_NSD)
        recorded = RecordedAttention(
            sublayer.name, sublayer.layer, weights_R1TS, allowed_R1TS, q_RTD[:, None], keys, values, scale, None,
            scores.reshape(weights_R1TS.shape),
        )  # fmt: skip
        self.attention.append(recorded)

    def _register_recurrent_hooks(self, stack: RecurrentStack) -> None:
        name = "encoder" if isinstance(stack, RecurrentEncoder) else "decoder"
        directions = [(name, stack.forward_layers), (f"{name}_backward", stack.backward_layers or ())]
        for direction, layers in directions:
            for number, layer in enumerate(layers):

                def record(
                    layer: Any, args: tuple[Any, ...], _: Any, name: str = direction, number: int = number
                ) -> None:
                    steps = layer.unroll(*args[:2])
                    states = [torch.stack(step_states, 1)
                              for step_states in zip(*(step.state for step in steps), strict=True)]  # fmt: skip
                    gates = {gate: torch.stack([step.gates[gate] for step in steps], 1) for gate in steps[0].gates}
                    self.recurrent_states.append(RecurrentStates(name, number, states[0], (*states, None)[1], gates))

                layer.register_forward_hook(record)


def _request_weights(
    module: MultiHeadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the call with `want_weights=True`, all of them positional, for a forward pre-hook."""
    bound = _ATTENTION_SIGNATURE.bind(module, *args, **kwargs)
    bound.apply_defaults()
    bound.arguments["want_weights"] = True
    return bound.args[1:], bound.kwargs
