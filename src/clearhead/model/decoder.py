"""The decoder: N layers of masked self-attention, attention to the encoder output and feed-forward (section 3.1).

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target positions per call (1 in a decoding
step), P target positions including cached ones (T in training), D model width, H heads, K width of a head. Activations
x_D are [R, T, D], or rows [M, D] without padding in training.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.kernels import AttentionLayout, Layout, PaddedLayout
from clearhead.model.attention import KVCache, MultiHeadAttention
from clearhead.model.encoder import SelfAttentionInputs, Stack, TransformerLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.model.residual import Residual


@dataclass(frozen=True)
class DecoderAttentionWeights:
    """Attention weights of one decoder layer."""

    self_RHTP: Tensor
    cross_RHTS: Tensor


class Memory(NamedTuple):
    """Encoder output as the decoder attends to it: keys and values for each layer, computed once per sentence."""

    keys_values: tuple[KVCache, ...]
    layout: Layout

    def select(self, sentences: Tensor) -> "Memory":
        """Return the memory of these sentences, in this order."""
        assert isinstance(self.layout, PaddedLayout), "padding is dropped in training only"
        return Memory(tuple(each.select(sentences) for each in self.keys_values), self.layout.select(sentences))


class DecoderLayer(TransformerLayer):
    """Masked self-attention, cross-attention and feed-forward network, each inside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x_D: Tensor,
        inputs: SelfAttentionInputs,
        memory_keys_values: KVCache,
        cross_layout: AttentionLayout,
        cache: KVCache | None = None,
        want_weights: bool = False,
    ) -> tuple[Tensor, KVCache, DecoderAttentionWeights | None]:
        """Return the residual stream, the extended cache, and the attention weights if they are wanted."""
        x_D, cache, self_RHTP = self.self_attention_sublayer(x_D, inputs, cache, want_weights)
        x_D, cross_RHTS = self.cross_attention_sublayer(x_D, memory_keys_values, cross_layout, want_weights)
        x_D = self.feed_forward_sublayer(x_D)
        if self_RHTP is None or cross_RHTS is None:
            return x_D, cache, None
        return x_D, cache, DecoderAttentionWeights(self_RHTP, cross_RHTS)

    def cross_attention_sublayer(
        self, x_D: Tensor, memory_keys_values: KVCache, cross_layout: AttentionLayout, want_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the residual stream after attention to the encoder output, and the weights if they are wanted."""
        q_HK = self.cross_attention.queries(self.cross_attention_residual.sublayer_input(x_D))
        y_D, cross_RHTS = self.cross_attention(q_HK, memory_keys_values, cross_layout, want_weights)
        return self.cross_attention_residual(x_D, y_D), cross_RHTS


class Decoder(Stack):
    """Stack of layers in which each position attends to itself, to earlier positions and to the encoder output."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (DecoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, is_causal=True)

    def memory(self, encoded_D: Tensor, layout: Layout) -> Memory:
        """Return the keys and values of the encoder output for each layer."""
        attentions = [cast(DecoderLayer, layer).cross_attention for layer in self.layers]
        return Memory(tuple(attention.keys_values(encoded_D) for attention in attentions), layout)

    def forward(
        self,
        x_D: Tensor,
        layout: Layout,
        memory: Memory,
        caches: tuple[KVCache, ...] = (),
        want_weights: bool = False,
    ) -> tuple[Tensor, tuple[KVCache, ...], list[DecoderAttentionWeights]]:
        """Return the states of the last layer, the extended caches, and the weights of each layer if wanted."""
        # Self-attention needs no padding mask: padding is at the end, where causality hides it.
        inputs = self.self_attention_inputs(layout)
        # Cross-attention has no relative or rotary positions: source and target positions are not comparable.
        cross_layout = AttentionLayout(queries=layout, keys=memory.layout, allowed=memory.layout.allowed_B11S)
        new_caches, weights = [], []
        for layer, keys_values, cache in zip(
            self.layers, memory.keys_values, caches or [None] * len(self.layers), strict=True
        ):
            x_D, new_cache, layer_weights = layer(x_D, inputs, keys_values, cross_layout, cache, want_weights)
            new_caches.append(new_cache)
            if layer_weights is not None:
                weights.append(layer_weights)
        return self.norm(x_D), tuple(new_caches), weights
