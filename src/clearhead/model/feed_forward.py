"""The position-wise feed-forward network: max(0, x W1 + b1) W2 + b2 (section 3.3)."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F


class FeedForward(nn.Module):
    """The same two-layer network at every position."""

    def __init__(self, model_dim: int, inner_dim: int, activation: Literal["relu", "gelu"] = "relu") -> None:
        super().__init__()
        self.inner = nn.Linear(model_dim, inner_dim)
        self.outer = nn.Linear(inner_dim, model_dim)
        self.activation = activation

    def forward(self, x_BTD: Tensor) -> Tensor:
        """y_BTD."""
        inner_BTF = self.inner(x_BTD)
        y_BTD: Tensor = self.outer(F.relu(inner_BTF) if self.activation == "relu" else F.gelu(inner_BTF))
        return y_BTD
