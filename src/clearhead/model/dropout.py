"""Dropout of activations (section 5.4)."""

from torch import Tensor, nn

from clearhead import kernels


class Dropout(nn.Module):
    """Sets values to 0 with probability `rate` in training mode, and scales the others to preserve the expectation.

    The rate is rounded to a multiple of 1/256, because `kernels.dropout` draws masks as bytes.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def active_rate(self) -> float:
        """The rate in training mode; 0 in evaluation mode."""
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Return dropout(x)."""
        return kernels.dropout(x, self.active_rate)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + dropout(y), computed in one pass."""
        return kernels.add_dropout(x, y, self.active_rate)
