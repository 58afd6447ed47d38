"""The encoder: N layers of self-attention and feed-forward (section 3.1).

B batch, S source length, D model width, H heads; 1 = broadcast
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.residual import Residual


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        is_pre_norm = config.norm_placement == "pre"
        self.attention = MultiHeadAttention(config.model_dim, config.num_heads)
        self.attention_residual = Residual(config.model_dim, config.dropout, is_pre_norm)
        self.feed_forward = FeedForward(config.model_dim, config.inner_dim, config.activation)
        self.feed_forward_residual = Residual(config.model_dim, config.dropout, is_pre_norm)

    def forward(self, x_BSD: Tensor, allowed_B11S: Tensor | None, want_weights: bool) -> tuple[Tensor, Tensor | None]:
        """The stream after this layer, and its attention weights if asked for."""
        q, memory = self.attention.project(self.attention_residual.enter(x_BSD))
        y_BSD, weights_BHSS = self.attention(q, memory, allowed_B11S, want_weights=want_weights)
        x_BSD = self.attention_residual.leave(x_BSD, y_BSD)
        y_BSD = self.feed_forward(self.feed_forward_residual.enter(x_BSD))
        return self.feed_forward_residual.leave(x_BSD, y_BSD), weights_BHSS


class Encoder(nn.Module):
    """The stack, with a last norm where the layers are pre-norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = nn.LayerNorm(config.model_dim) if config.norm_placement == "pre" else nn.Identity()

    def forward(
        self, x_BSD: Tensor, allowed_B11S: Tensor | None, want_weights: bool = False
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The last layer's states, and each layer's attention weights if asked for."""
        weights: list[Tensor | None] = []
        for layer in self.layers:
            x_BSD, layer_weights = layer(x_BSD, allowed_B11S, want_weights)
            weights.append(layer_weights)
        return self.norm(x_BSD), weights
