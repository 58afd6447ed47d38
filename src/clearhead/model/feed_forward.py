"""The position-wise feed-forward network: max(0, x W1 + b1) W2 + b2 (section 3.3), and its variants.

B batch, T positions, D model width, F inner width
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class FeedForward(nn.Module):
    """The same two-layer network at every position; gated (T5 v1.1): (activation(x W1) * (x W3)) W2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w1 = Linear(config.model_dim, config.feed_forward_dim, bias=config.bias)
        self.w2 = Linear(config.feed_forward_dim, config.model_dim, bias=config.bias)
        self.w3 = Linear(config.model_dim, config.feed_forward_dim, bias=config.bias) if config.gated else None
        self.activation = config.activation

    def forward(self, x_BTD: Tensor) -> Tensor:
        """y_BTD."""
        inner_BTF = ACTIVATIONS[self.activation](self.w1(x_BTD))
        if self.w3 is not None:
            inner_BTF = inner_BTF * self.w3(x_BTD)
        y_BTD: Tensor = self.w2(inner_BTF)
        return y_BTD
