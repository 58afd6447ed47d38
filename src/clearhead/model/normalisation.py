"""The normalisations that the notes name: over which axis the mean and the variance are taken.

layer   over the channels of one position, as in the paper (Q6)
rms     the same without mean and shift, as in T5
group   over groups of the channels of one position, so that neither padding nor the future is seen
sample  as layer, but divided by the sample deviation plus epsilon, as in the Annotated Transformer
batch   over all positions of a batch, for each channel; at run time with the running figures of training
none    no normalisation, to see what it is for

B batch, T positions, D channels
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig


class GroupNorm(nn.GroupNorm):
    """Group norm of each position on its own."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same shape, normalised."""
        return super().forward(x_BTD.reshape(-1, x_BTD.shape[-1])).view_as(x_BTD)


class SampleNorm(nn.LayerNorm):
    """weight (x - mean) / (s + epsilon) + bias, with s over D - 1 channels."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same shape, normalised."""
        centred_BTD = x_BTD - x_BTD.mean(-1, keepdim=True)
        scaled_BTD = self.weight * centred_BTD / (x_BTD.std(-1, keepdim=True) + self.eps)
        return scaled_BTD if self.bias is None else scaled_BTD + self.bias


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all positions. Padding is among them while training, as in any batch norm over padded text."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same shape, normalised."""
        return super().forward(x_BTD.reshape(-1, x_BTD.shape[-1])).view_as(x_BTD)


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm of a config, over `model_dim` channels."""
    width, epsilon = config.model_dim, config.norm_epsilon
    if config.norm == "rms":
        return nn.RMSNorm(width, epsilon)
    if config.norm == "group":
        return GroupNorm(config.norm_groups, width, epsilon)
    if config.norm == "batch":
        return BatchNorm(width, epsilon)
    if config.norm == "none":
        return nn.Identity()
    kind = SampleNorm if config.norm == "sample" else nn.LayerNorm
    return kind(width, epsilon, bias=config.bias)
