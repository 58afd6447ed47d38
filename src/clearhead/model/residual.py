"""The residual connection around every sub-layer, with normalization and dropout (sections 3.1 and 5.4).

Post-norm, as in the paper: Norm(x + Dropout(Sublayer(x))).
Pre-norm (Xiong et al. 2020): x + Dropout(Sublayer(Norm(x))).

D model width
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.normalization import build_norm


class Residual(nn.Module):
    """Residual connection: `x = residual(x, sublayer(residual.sublayer_input(x)))`.

    The sub-layer is called in between, because attention has further inputs and outputs.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm_placement == "pre"
        self.has_residual = config.residual  # False in the ablation without residual connections

    def sublayer_input(self, x_D: Tensor) -> Tensor:
        """Return the input of the sub-layer: Norm(x) with pre-norm, x with post-norm."""
        return self.norm(x_D) if self.is_pre_norm else x_D

    def forward(self, x_D: Tensor, y_D: Tensor) -> Tensor:
        """Return x + Dropout(y), normalized with post-norm, for a sub-layer with the output y."""
        sum_D = self.dropout.add(x_D, y_D) if self.has_residual else self.dropout(y_D)
        return sum_D if self.is_pre_norm else self.norm(sum_D)
