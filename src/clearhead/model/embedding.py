"""Token embeddings, scaled by sqrt(D) and added to positions (sections 3.4 and 3.5), and to segments as in BERT.

B batch, T positions, D model width, V vocabulary, U some tokens of it
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.normalisation import build_norm
from clearhead.model.positions import added_positions


class TokenEmbedding(nn.Module):
    """One vector per token."""

    def __init__(self, vocab_size: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, model_dim))
        nn.init.normal_(self.weight, std=model_dim**-0.5)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """embedded_BTD, as stored."""
        return F.embedding(ids_BT, self.weight)


class OutputProjection(nn.Module):
    """Hidden states to logits. Where embeddings are tied, `weight` is that of the token embedding (section 3.4)."""

    bias: nn.Parameter | None

    def __init__(self, vocab_size: int, model_dim: int, tied: nn.Parameter | None = None, bias: bool = False) -> None:
        super().__init__()
        if tied is None:
            self.weight = nn.Parameter(torch.empty(vocab_size, model_dim))
            nn.init.normal_(self.weight, std=model_dim**-0.5)
        else:
            self.weight = tied
        self.register_parameter("bias", nn.Parameter(torch.zeros(vocab_size)) if bias else None)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        """logits_BTV."""
        return F.linear(hidden_BTD, self.weight, self.bias)


class Narrowed(NamedTuple):
    """The rows of an output projection that belong to some tokens, where logits of others are not wanted."""

    weight_UD: Tensor
    bias_U: Tensor | None

    @classmethod
    def of(cls, output: OutputProjection, tokens_U: Tensor) -> "Narrowed":
        """The rows of these tokens, in this order."""
        return cls(output.weight[tokens_U], None if output.bias is None else output.bias[tokens_U])


class PositionedEmbedding(nn.Module):
    """Scaled embedding + position + segment, a norm if the config has one, and dropout: what enters a stack."""

    def __init__(self, tokens: TokenEmbedding, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.model_dim) if config.scale_embeddings else None
        self.positions = added_positions(config)
        self.segments = TokenEmbedding(config.num_segments, config.model_dim) if config.num_segments else None
        self.norm = build_norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self, ids_BT: Tensor, start: int = 0, places_BT: Tensor | None = None, segments_BT: Tensor | None = None
    ) -> Tensor:
        """x_BTD for tokens that stand from place `start` on, or at the places given.

        Without segments all tokens are of segment 0.
        """
        embedded_BTD: Tensor = self.tokens(ids_BT)
        if self.scale is not None:
            embedded_BTD = embedded_BTD * self.scale
        if self.positions is not None:
            length = ids_BT.shape[1]
            position = self.positions(start, length) if places_BT is None else self.positions.at(places_BT)
            embedded_BTD = embedded_BTD + position
        if self.segments is not None:
            segment = self.segments.weight[0] if segments_BT is None else self.segments(segments_BT)
            embedded_BTD = embedded_BTD + segment
        elif segments_BT is not None:
            raise ValueError("segments were given, but the model tells none apart; set model.num_segments")
        if self.norm is not None:
            embedded_BTD = self.norm(embedded_BTD)
        x_BTD: Tensor = self.dropout(embedded_BTD)
        return x_BTD
