"""Token embeddings, scaled by sqrt(D) and added to positions (sections 3.4 and 3.5)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.model.dropout import Dropout
from clearhead.model.positions import LearnedPositions, SinusoidalPositions


class TokenEmbedding(nn.Module):
    """One vector a token. The same table turns hidden states back into logits where embeddings are tied."""

    def __init__(self, vocab_size: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, model_dim))
        nn.init.normal_(self.weight, std=model_dim**-0.5)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """embedded_BTD, as stored."""
        return F.embedding(ids_BT, self.weight)


class PositionedEmbedding(nn.Module):
    """sqrt(D) * embedding + position, with dropout on the sum: what enters a stack."""

    def __init__(
        self, tokens: TokenEmbedding, positions: SinusoidalPositions | LearnedPositions, dropout: float
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, ids_BT: Tensor, start: int = 0) -> Tensor:
        """x_BTD for tokens that stand from place `start` on."""
        scale = math.sqrt(self.tokens.weight.shape[1])
        embedded_BTD = self.tokens(ids_BT) * scale + self.positions(start, ids_BT.shape[1])
        x_BTD: Tensor = self.dropout(embedded_BTD)
        return x_BTD
