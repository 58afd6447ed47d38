"""Hooks on a network's modules that record every attention and every residual connection of one run.

The hooks are on a second network that shares the weights of the first, so that the first can be used at the same time
and keeps no hooks.

B rows, H heads, T queries, S keys, K head width, E head width of values, D model width
"""

import copy
import inspect
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.inspection.trace.sublayers import SubLayer, stacks, sub_layers
from clearhead.model.attention import AttentionOutput, MultiHeadAttention
from clearhead.model.recurrent.attention import EncoderStates, SourceAttention
from clearhead.model.recurrent.encoder import RecurrentEncoder
from clearhead.model.recurrent.layers import RecurrentStack

Network = TypeVar("Network", bound=nn.Module)
_ATTENTION = inspect.signature(MultiHeadAttention.forward)


def share_weights(network: Network) -> Network:
    """Return a second network with the same weights, not copies of them, in evaluation mode."""
    tensors = chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in tensors}).eval()


@dataclass(frozen=True)
class RecordedAttention:
    """One call of one attention."""

    name: str
    layer: int
    weights_BHTS: Tensor
    allowed_BHTS: Tensor
    q_BHTK: Tensor
    k_BHSK: Tensor
    v_BHSE: Tensor
    scale: float | None
    """Factor of the products of queries and keys; None if the similarity is not a scaled product."""
    bias_BHTS: Tensor | None
    """Bias added to the scores, if positions are relative."""
    scores_BHTS: Tensor | None = None
    """Scores before the softmax, of recurrent decoders; others follow from queries, keys, scale and bias."""


@dataclass(frozen=True)
class RecurrentStates:
    """States of one recurrent layer after every position, and the gates that led to them."""

    name: str
    """encoder, encoder_backward (positions reversed) or decoder."""
    layer: int
    h_BTD: Tensor
    c_BTD: Tensor | None
    """Cell states of an LSTM."""
    gates: dict[str, Tensor]
    """Gates by name, each [B, T, D]; empty for an RNN."""


@dataclass(frozen=True)
class RecordedResidual:
    """The residual stream after one sub-layer, or before the first (`name` is then `encoder` or `decoder`, -1)."""

    name: str
    layer: int
    states_BTD: Tensor


class Recorder:
    """Records one run of a network: run `network` once, then read the lists."""

    def __init__(self, network: nn.Module, recurrent_states: bool = False) -> None:
        """`recurrent_states`: also record states and gates of recurrent layers, which are then run step by step."""
        self.network = share_weights(network)
        self.looked: list[RecordedAttention] = []
        self.streamed: list[RecordedResidual] = []
        self.recurrent: list[RecurrentStates] = []
        for stack in stacks(self.network):
            side = "decoder" if stack.is_causal else "encoder"
            stack.register_forward_pre_hook(lambda _, args, side=side: self._stream(side, -1, args[0]))
        for one in sub_layers(self.network):
            self._watch(one)
        for module in self.network.modules() if recurrent_states else ():
            if isinstance(module, RecurrentStack):
                self._watch_recurrent(module)

    def _watch(self, one: SubLayer) -> None:
        if isinstance(one.module, MultiHeadAttention):
            one.module.register_forward_pre_hook(_ask_for_weights, with_kwargs=True)
            one.module.register_forward_hook(lambda module, args, y: self._look(one, module, args, y))
        elif isinstance(one.module, SourceAttention):
            one.module.register_forward_hook(lambda module, args, y: self._look_up(one, module, args, y))
        if one.residual is not None:
            one.residual.register_forward_hook(lambda _, args, stream: self._stream(one.name, one.layer, stream))

    def _stream(self, name: str, layer: int, states_BTD: Tensor) -> None:
        self.streamed.append(RecordedResidual(name, layer, states_BTD))

    def _look(
        self, one: SubLayer, module: MultiHeadAttention, args: tuple[Any, ...], attended: AttentionOutput
    ) -> None:
        """Record the input and output of multi-head attention; `_ask_for_weights` has put its arguments in order."""
        q_BTHK, (k_BSHK, v_BSHE), layout, *_ = args
        weights_BHTS = attended.weights_BHTS
        assert weights_BHTS is not None
        allowed = layout.allowed_keys(*weights_BHTS.shape[2:])
        allowed_BHTS = (torch.ones(1, dtype=torch.bool) if allowed is None else allowed).expand_as(weights_BHTS)
        bias = None if layout.bias_1HTS is None else layout.bias_1HTS.expand_as(weights_BHTS)
        q_BHTK, k_BHSK, v_BHSE = (each.transpose(1, 2) for each in (q_BTHK, k_BSHK, v_BSHE))
        found = RecordedAttention(
            one.name, one.layer, weights_BHTS, allowed_BHTS, q_BHTK, k_BHSK, v_BHSE, module.scale, bias
        )
        self.looked.append(found)

    def _look_up(
        self, one: SubLayer, module: SourceAttention, args: tuple[Any, ...], found: tuple[Tensor, Tensor]
    ) -> None:
        """Record the input and output of a recurrent decoder's attention, as one head."""
        source: EncoderStates
        q_RTD, source = args
        weights_R1TS = found[1][:, None]
        allowed = source.allowed_N1S
        allowed_R1TS = (torch.ones(1) if allowed is None else allowed[:, None]).bool().expand_as(weights_R1TS)
        keys, values = source.keys_NSD[:, None], source.states_NSD[:, None]
        scale = getattr(module.similarity, "scale", None)
        scores = module.similarity(q_RTD.reshape(len(source.keys_NSD), -1, q_RTD.shape[2]), source.keys_NSD)
        looked = RecordedAttention(
            one.name, one.layer, weights_R1TS, allowed_R1TS, q_RTD[:, None], keys, values, scale, None,
            scores.reshape(weights_R1TS.shape),
        )  # fmt: skip
        self.looked.append(looked)

    def _watch_recurrent(self, stack: RecurrentStack) -> None:
        name = "encoder" if isinstance(stack, RecurrentEncoder) else "decoder"
        sides = [(name, stack.forward_layers), (f"{name}_backward", stack.backward_layers or ())]
        for side, layers in sides:
            for number, layer in enumerate(layers):

                def record(layer: Any, args: tuple[Any, ...], _: Any, side: str = side, number: int = number) -> None:
                    steps = layer.unroll(*args[:2])
                    states = [torch.stack(each, 1) for each in zip(*(step.state for step in steps), strict=True)]
                    gates = {gate: torch.stack([step.gates[gate] for step in steps], 1) for gate in steps[0].gates}
                    self.recurrent.append(RecurrentStates(side, number, states[0], (*states, None)[1], gates))

                layer.register_forward_hook(record)


def _ask_for_weights(
    module: MultiHeadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the same call with `want_weights`, in the order of the signature."""
    given = _ATTENTION.bind(module, *args, **kwargs)
    given.apply_defaults()
    given.arguments["want_weights"] = True
    return given.args[1:], given.kwargs
