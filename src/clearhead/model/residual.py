"""The residual connection around every sub-layer, with its normalisation and dropout (section 5.4).

Post-norm, as in the paper: Norm(x + Dropout(sublayer(x))). Pre-norm, which trains deep and small models more
easily: x + Dropout(sublayer(Norm(x))), with one more norm at the top of the stack.
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.normalisation import build_norm


class Residual(nn.Module):
    """What stands before and after one sub-layer: `x = residual(x, sublayer(residual.enter(x)))`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm_placement == "pre"
        self.has_skip = config.residual  # without it, to see what it is for, x is forgotten

    def enter(self, x_BTD: Tensor) -> Tensor:
        """What the sub-layer sees."""
        return self.norm(x_BTD) if self.is_pre_norm else x_BTD

    def forward(self, x_BTD: Tensor, y_BTD: Tensor) -> Tensor:
        """The stream after the sub-layer gave y; a hook here sees the whole stream (as rows_1MD where a CPU trains)."""
        sum_BTD = self.dropout.add(x_BTD, y_BTD) if self.has_skip else self.dropout(y_BTD)
        stream_BTD: Tensor = sum_BTD if self.is_pre_norm else self.norm(sum_BTD)
        return stream_BTD
