"""Where a token stands, as a vector added to its embedding (section 3.5).

L number of positions, D model width
"""

import torch
from torch import Tensor, nn


def sinusoids(num_positions: int, model_dim: int) -> Tensor:
    """table_LD of the paper: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same angle.

    The first dimensions turn fastest (one turn in 2 pi positions), the last slowest (one in 10000 * 2 pi).
    """
    position_L1 = torch.arange(num_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, model_dim, 2, dtype=torch.float64)
    angle = position_L1 / 10000.0 ** (even / model_dim)
    table_LD = torch.zeros(num_positions, model_dim, dtype=torch.float64)
    table_LD[:, 0::2] = angle.sin()
    table_LD[:, 1::2] = angle.cos()[:, : model_dim // 2]
    return table_LD.float()


class SinusoidalPositions(nn.Module):
    """Fixed sines and cosines: nothing to learn, nothing to save."""

    table_LD: Tensor

    def __init__(self, max_positions: int, model_dim: int) -> None:
        super().__init__()
        self.register_buffer("table_LD", sinusoids(max_positions, model_dim), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """position_TD of `length` tokens from place `start` on."""
        return self.table_LD[start : start + length]


class LearnedPositions(nn.Module):
    """One trained vector a place, as in BERT and GPT."""

    def __init__(self, max_positions: int, model_dim: int) -> None:
        super().__init__()
        self.table_LD = nn.Parameter(torch.empty(max_positions, model_dim))
        nn.init.normal_(self.table_LD, std=model_dim**-0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """position_TD of `length` tokens from place `start` on."""
        return self.table_LD[start : start + length]
