"""The encoder: N layers of self-attention and feed-forward network (section 3.1), and the base classes of decoders.

B batch, S source length, T queries, D model width, H heads, K width of a head.
Activations x_D are [B, S, D], or rows [M, D].
"""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels import AttentionLayout, Layout
from clearhead.model.attention import KVCache, MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.normalization import build_norm
from clearhead.model.positions import RelativeBias, RotaryPositions, Rotation
from clearhead.model.residual import Residual


class SelfAttentionInputs(NamedTuple):
    """Inputs of self-attention that all layers of a stack share."""

    layout: AttentionLayout
    rotation: Rotation | None


class TransformerLayer(nn.Module):
    """Base class of encoder and decoder layers: self-attention and feed-forward, with their residual connections."""

    self_attention: MultiHeadAttention
    self_attention_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    def self_attention_sublayer(
        self, x_D: Tensor, inputs: SelfAttentionInputs, cache: KVCache | None, want_weights: bool
    ) -> tuple[Tensor, KVCache, Tensor | None]:
        """Return the residual stream after self-attention, the extended cache, and the weights if they are wanted."""
        input_D = self.self_attention_residual.sublayer_input(x_D)
        q_HK, keys_values = self.self_attention.queries_keys_values(input_D, inputs.rotation)
        cache = keys_values if cache is None else cache.append(keys_values)
        y_D, weights_BHTS = self.self_attention(q_HK, cache, inputs.layout, want_weights)
        return self.self_attention_residual(x_D, y_D), cache, weights_BHTS

    def feed_forward_sublayer(self, x_D: Tensor) -> Tensor:
        """Return the residual stream after the feed-forward network."""
        y_D = self.feed_forward(self.feed_forward_residual.sublayer_input(x_D))
        return self.feed_forward_residual(x_D, y_D)


class EncoderLayer(TransformerLayer):
    """Self-attention, then a feed-forward network, each inside a residual connection.

    Decoder-only models use the same layer, with a causal layout and a cache.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x_D: Tensor, inputs: SelfAttentionInputs, cache: KVCache | None = None, want_weights: bool = False
    ) -> tuple[Tensor, KVCache, Tensor | None]:
        """Return the residual stream, the extended cache, and the attention weights if they are wanted."""
        x_D, cache, weights_BHTS = self.self_attention_sublayer(x_D, inputs, cache, want_weights)
        return self.feed_forward_sublayer(x_D), cache, weights_BHTS


class Stack(nn.Module):
    """Layers, relative or rotary positions (which are part of attention), and the norm after the last layer.

    Pre-norm models have a last norm (Xiong et al. 2020); post-norm models have one if `final_norm` is set, as in
    torch.nn.Transformer.
    """

    def __init__(self, config: ModelConfig, layers: Iterable[TransformerLayer], is_causal: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = build_norm(config) if config.has_final_norm else nn.Identity()
        self.is_causal = is_causal
        kind = config.positions
        self.relative_bias = RelativeBias(config, is_bidirectional=not is_causal) if kind == "relative" else None
        self.rotary = RotaryPositions(config.max_positions, config.head_key_dim) if kind == "rotary" else None

    def self_attention_inputs(self, layout: Layout, allowed: Tensor | None = None) -> SelfAttentionInputs:
        """Return the inputs that the self-attention of all layers shares, for new positions with this layout.

        The `layout.length` queries attend to `layout.num_positions` keys: those of earlier positions are cached.
        `allowed`: True where a key may be attended to, besides causality.
        """
        bias_1HTS = None
        if self.relative_bias is not None:
            bias_1HTS = self.relative_bias(num_queries=layout.length, num_keys=layout.num_positions)
        rotation = None if self.rotary is None else self.rotary(layout)
        attention = AttentionLayout(
            queries=layout, keys=layout, is_causal=self.is_causal, allowed=allowed, bias_1HTS=bias_1HTS
        )
        return SelfAttentionInputs(attention, rotation)


class Encoder(Stack):
    """Stack of layers in which every position attends to all positions that are not padding."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (EncoderLayer(config) for _ in range(config.num_encoder_layers))
        super().__init__(config, layers, is_causal=False)

    def forward(self, x_D: Tensor, layout: Layout, want_weights: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Return the states of the last layer, and the attention weights of each layer if they are wanted."""
        inputs = self.self_attention_inputs(layout, layout.allowed_B11S)
        weights = []
        for layer in self.layers:
            x_D, _, weights_BHSS = layer(x_D, inputs, None, want_weights)
            if weights_BHSS is not None:
                weights.append(weights_BHSS)
        return self.norm(x_D), weights
