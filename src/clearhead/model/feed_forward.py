"""The position-wise feed-forward network, max(0, x W1 + b1) W2 + b2 (section 3.3), and its gated variant.

D model width, F hidden width
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead import kernels
from clearhead.config import ModelConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class FeedForward(nn.Module):
    """FFN(x) = activation(x W1 + b1) W2 + b2; gated (Shazeer 2020, T5 v1.1): (activation(x W1) * x W3) W2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w1 = kernels.Linear(config.model_dim, config.feed_forward_dim, bias=config.bias)
        self.w2 = kernels.Linear(config.feed_forward_dim, config.model_dim, bias=config.bias)
        self.w3 = kernels.Linear(config.model_dim, config.feed_forward_dim, bias=config.bias) if config.gated else None
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_D: Tensor) -> Tensor:
        """Return FFN(x) of every position."""
        hidden_F = self.activation(self.w1(x_D))
        if self.w3 is not None:
            hidden_F = hidden_F * self.w3(x_D)
        return self.w2(hidden_F)
