"""The decoder: N layers of masked self-attention, attention to the encoder output and feed-forward (section 3.1).

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, D model width, H heads.
Activations x_D are [R, T, D], or rows [M, D] without padding in training.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.kernels import AttentionLayout, Layout
from clearhead.model.attention import KVCache, MultiHeadAttention
from clearhead.model.encoder import SelfAttentionContext, Stack, TransformerLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.model.residual import Residual


@dataclass(frozen=True)
class DecoderAttention:
    """Attention weights of one decoder layer."""

    self_RHTT: Tensor
    cross_RHTS: Tensor


class Memory(NamedTuple):
    """Encoder output as the decoder attends to it: keys and values for each layer, computed once per sentence."""

    keys_values: tuple[KVCache, ...]
    layout: Layout


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
        context: SelfAttentionContext,
        memory: KVCache,
        memory_layout: AttentionLayout,
        cache: KVCache | None = None,
        want_weights: bool = False,
    ) -> tuple[Tensor, KVCache, DecoderAttention | None]:
        """Return the residual stream, the extended cache, and the attention weights if they are wanted."""
        x_D, cache, self_RHTT = self.attend_to_self(x_D, context, cache, want_weights)
        q_HK = self.cross_attention.queries(self.cross_attention_residual.sublayer_input(x_D))
        y_D, cross_RHTS = self.cross_attention(q_HK, memory, memory_layout, want_weights)
        x_D = self.cross_attention_residual(x_D, y_D)
        attention = None
        if self_RHTT is not None and cross_RHTS is not None:
            attention = DecoderAttention(self_RHTT, cross_RHTS)
        return self.apply_feed_forward(x_D), cache, attention


class Decoder(Stack):
    """The stack in which each position attends to itself, to earlier positions and to the encoder output."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (DecoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, is_causal=True)

    def memory(self, encoded_D: Tensor, layout: Layout) -> Memory:
        """Return the keys and values of the encoder output for each layer."""
        return Memory(tuple(layer.cross_attention.keys_values(encoded_D) for layer in self.layers), layout)  # type: ignore[union-attr, operator]

    def forward(
        self,
        x_D: Tensor,
        layout: Layout,
        memory: Memory,
        caches: tuple[KVCache, ...] = (),
        want_weights: bool = False,
    ) -> tuple[Tensor, tuple[KVCache, ...], list[DecoderAttention | None]]:
        """Return the states of the last layer, the extended caches, and the attention of each layer if it is wanted."""
        context = self.context(layout)
        memory_layout = AttentionLayout(layout, memory.layout, allowed=memory.layout.allowed_B11S)
        new_caches, attention = [], []
        for number, layer in enumerate(self.layers):
            cache = caches[number] if caches else None
            x_D, new_cache, weights = layer(
                x_D, context, memory.keys_values[number], memory_layout, cache, want_weights
            )
            new_caches.append(new_cache)
            attention.append(weights)
        return self.norm(x_D), tuple(new_caches), attention
