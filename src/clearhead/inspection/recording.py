"""Hooks on the real modules: what every attention and every residual connection computed in one run.

A run is watched on a second network that shares the weights of the first: so hooks never touch a model that others
use at the same time, and none is left behind.

B rows, H heads, T queries, S keys, K head width, E head width of values, D model width
"""

import copy
import inspect
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.inspection.sublayers import SubLayer, stacks, sub_layers
from clearhead.model.attention import AttentionOutput, MultiHeadAttention
from clearhead.model.recurrent.attention import EncoderStates, SourceAttention
from clearhead.model.recurrent.encoder import RecurrentEncoder
from clearhead.model.recurrent.layers import RecurrentStack

Network = TypeVar("Network", bound=nn.Module)
_ATTENTION = inspect.signature(MultiHeadAttention.forward)


def share(network: Network) -> Network:
    """A network of its own modules with the same weights, not copies of them, and without dropout."""
    tensors = chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in tensors}).eval()


@dataclass(frozen=True)
class Looked:
    """One call of one attention."""

    name: str
    layer: int
    weights_BHTS: Tensor
    allowed_BHTS: Tensor
    q_BHTK: Tensor
    k_BHSK: Tensor
    v_BHSE: Tensor
    scale: float | None
    """What products of queries and keys are multiplied by; None where the similarity is no scaled product."""
    bias_BHTS: Tensor | None
    """What is added to the scores, where positions are a bias."""
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
class Streamed:
    """The residual stream after one sub-layer, or before the first (`name` is then `encoder` or `decoder`, -1)."""

    name: str
    layer: int
    states_BTD: Tensor


class Recorder:
    """Watches one run of a network: `network` is to be run, once, and the lists are read afterwards."""

    def __init__(self, network: nn.Module) -> None:
        self.network = share(network)
        self.looked: list[Looked] = []
        self.streamed: list[Streamed] = []
        self.recurrent: list[RecurrentStates] = []
        for stack in stacks(self.network):
            side = "decoder" if stack.is_causal else "encoder"
            stack.register_forward_pre_hook(lambda _, args, side=side: self._stream(side, -1, args[0]))
        for one in sub_layers(self.network):
            self._watch(one)
        for module in self.network.modules():
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
        self.streamed.append(Streamed(name, layer, states_BTD))

    def _look(
        self, one: SubLayer, module: MultiHeadAttention, args: tuple[Any, ...], attended: AttentionOutput
    ) -> None:
        """What multi-head attention was given and gave; `_ask_for_weights` has put its arguments in order."""
        q_BTHK, (k_BSHK, v_BSHE), layout, *_ = args
        weights_BHTS = attended.weights_BHTS
        assert weights_BHTS is not None
        allowed = layout.allowed_keys(*weights_BHTS.shape[2:])
        allowed_BHTS = (torch.ones(1, dtype=torch.bool) if allowed is None else allowed).expand_as(weights_BHTS)
        bias = None if layout.bias_1HTS is None else layout.bias_1HTS.expand_as(weights_BHTS)
        q_BHTK, k_BHSK, v_BHSE = (each.transpose(1, 2) for each in (q_BTHK, k_BSHK, v_BSHE))
        found = Looked(one.name, one.layer, weights_BHTS, allowed_BHTS, q_BHTK, k_BHSK, v_BHSE, module.scale, bias)
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
        looked = Looked(
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
    """The same call with the weights asked for, all arguments in their places."""
    given = _ATTENTION.bind(module, *args, **kwargs)
    given.apply_defaults()
    given.arguments["want_weights"] = True
    return given.args[1:], given.kwargs
