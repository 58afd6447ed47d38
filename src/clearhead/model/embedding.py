"""Embeddings scaled by sqrt(D), with positions added, and the output projection (sections 3.4 and 3.5).

B batch, T positions, D model width, V vocabulary. Activations x_D are [B, T, D], or rows [M, D] without padding.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.kernels import Layout
from clearhead.model.dropout import Dropout
from clearhead.model.normalization import build_norm
from clearhead.model.positions import build_added_positions


class TokenEmbedding(nn.Module):
    """One vector per token."""

    def __init__(self, vocab_size: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, model_dim))
        nn.init.normal_(self.weight, std=model_dim**-0.5)  # variance 1 after scaling by sqrt(D)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of the tokens, not scaled."""
        return F.embedding(ids, self.weight)


class OutputProjection(nn.Module):
    """Linear layer from states to logits. With tied embeddings, `weight` is that of the embedding (section 3.4)."""

    bias: nn.Parameter | None

    def __init__(
        self, vocab_size: int, model_dim: int, tied_weight: nn.Parameter | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        if tied_weight is None:
            self.weight = nn.Parameter(torch.empty(vocab_size, model_dim))
            nn.init.normal_(self.weight, std=model_dim**-0.5)
        else:
            self.weight = tied_weight
        self.register_parameter("bias", nn.Parameter(torch.zeros(vocab_size)) if bias else None)

    def forward(self, hidden_D: Tensor) -> Tensor:
        """Return logits_V."""
        return F.linear(hidden_D, self.weight, self.bias)


class PositionedEmbedding(nn.Module):
    """Input of a stack: scaled embedding + position (+ segment, and a norm, as in BERT), with dropout."""

    def __init__(self, tokens: TokenEmbedding, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.model_dim) if config.scale_embeddings else 1.0  # not in BERT, GPT, T5
        self.positions = build_added_positions(config)
        self.segments = TokenEmbedding(config.num_segments, config.model_dim) if config.num_segments else None
        self.norm = build_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_BT: Tensor, layout: Layout, segments_BT: Tensor | None = None) -> Tensor:
        """Return x_D of token ids. If no segments are given, all tokens belong to segment 0."""
        x_D = self.tokens(layout.unpad(ids_BT)) * self.scale
        if self.positions is not None:
            x_D = x_D + self.positions(layout)
        if self.segments is not None:
            x_D = x_D + (self.segments.weight[0] if segments_BT is None else self.segments(layout.unpad(segments_BT)))
        elif segments_BT is not None:
            raise ValueError("expected no segments, because model.num_segments=0; set it to their number")
        return self.dropout(self.norm(x_D))
