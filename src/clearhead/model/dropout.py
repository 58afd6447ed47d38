"""Dropout of activations (section 5.4)."""

from torch import Tensor, nn

from clearhead import kernels


class Dropout(nn.Module):
    """Sets values to 0 with probability `rate` in training mode and scales the others by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def is_active(self) -> bool:
        """Whether a call changes its input."""
        return self.training and self.rate > 0

    def forward(self, x: Tensor) -> Tensor:
        """Return dropout(x)."""
        return kernels.dropout(x, self.rate) if self.is_active else x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + dropout(y)."""
        return kernels.add_dropout(x, y, self.rate) if self.is_active else x + y
