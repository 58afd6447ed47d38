"""The decoder: N layers of masked self-attention, encoder-decoder attention and feed-forward (section 3.1).

N sentences, W hypotheses of each, R = N*W rows, S source length, T target length, D model width, H heads,
K head width; 1 = broadcast
"""

from dataclasses import dataclass

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model.attention import KeysValues, MultiHeadAttention
from clearhead.model.encoder import Scope, SelfLayer, Stack
from clearhead.model.feed_forward import FeedForward
from clearhead.model.packed import Packed
from clearhead.model.residual import Residual


@dataclass(frozen=True)
class LayerWeights:
    """The attention weights of one decoder layer, for those who look inside."""

    self_RHTT: Tensor
    cross_RHTS: Tensor


@dataclass(frozen=True)
class LayerMemory:
    """What one layer looks things up in: the source (shared by the W rows of a sentence) and the rows' own past."""

    source: KeysValues
    allowed_N11S: Tensor | None
    past: KeysValues | None


class DecoderLayer(SelfLayer):
    """Masked self-attention, encoder-decoder attention, feed-forward, each inside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.build(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention.build(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x_RTD: Tensor, scope: Scope, memory: LayerMemory, want_weights: bool = False
    ) -> tuple[Tensor, KeysValues, LayerWeights | None]:
        """The stream after this layer, the past with these tokens added, and the weights if asked for."""
        x_RTD, past, self_weights = self.attend_to_self(x_RTD, scope, memory.past, want_weights)
        y_RTD, cross_weights = self._look_up(
            self.cross_attention_residual.enter(x_RTD), memory, want_weights, scope.packed
        )
        x_RTD = self.cross_attention_residual(x_RTD, y_RTD)
        weights = None if self_weights is None or cross_weights is None else LayerWeights(self_weights, cross_weights)
        return self.think(x_RTD), past, weights

    def _look_up(
        self, x_RTD: Tensor, memory: LayerMemory, want_weights: bool, packed: Packed | None
    ) -> tuple[Tensor, Tensor | None]:
        """Encoder-decoder attention. The W rows of a sentence ask together, so its keys are never copied."""
        if packed is not None:
            assert not want_weights, "of packed rows nobody asks for weights"
            q_NHTK = self.cross_attention.queries(x_RTD, packed)
            return self.cross_attention(q_NHTK, memory.source, memory.allowed_N11S, packed=packed).y_BTD, None
        rows, length, width = x_RTD.shape
        num_sentences = memory.source.k_BHSK.shape[0]
        q_NHQK = self.cross_attention.queries(x_RTD.view(num_sentences, -1, width))  # Q = W * T
        y_NQD, weights_NHQS = self.cross_attention(
            q_NHQK, memory.source, memory.allowed_N11S, want_weights=want_weights
        )
        if weights_NHQS is None:
            return y_NQD.reshape(rows, length, width), None
        cross_RHTS = weights_NHQS.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return y_NQD.reshape(rows, length, width), cross_RHTS


class Decoder(Stack):
    """The stack that writes: each token sees those before it, and the source."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (DecoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, is_causal=True)

    def source_memory(self, states_NSD: Tensor, packed: Packed | None = None) -> tuple[KeysValues, ...]:
        """Each layer's keys and values of the encoder's output, computed once a sentence."""
        return tuple(layer.cross_attention.keys_values(states_NSD, packed) for layer in self.layers)  # type: ignore[union-attr,operator]

    def forward(
        self,
        x_RTD: Tensor,
        memories: list[LayerMemory],
        want_weights: bool = False,
        packed: Packed | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, ...], list[LayerWeights]]:
        """The last layer's states, the pasts, and each layer's attention weights if asked for."""
        scope = self.scope(x_RTD, memories[0].past, None, packed=packed)
        pasts, weights = [], []
        for layer, memory in zip(self.layers, memories, strict=True):
            x_RTD, past, layer_weights = self.through(layer, x_RTD, scope, memory, want_weights)
            pasts.append(past)
            if layer_weights is not None:
                weights.append(layer_weights)
        return self.norm(x_RTD), tuple(pasts), weights
