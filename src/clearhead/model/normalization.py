"""Normalizations, which differ in the axes over which mean and variance are computed.

layer   over the channels of one position, as in the paper (Ba et al. 2016)
rms     the same without subtracting the mean and without bias (Zhang and Sennrich 2019), as in T5
group   over groups of the channels of one position, independent of later positions (Wu and He 2018)
sample  as layer, but divided by the sample deviation plus epsilon, as in the Annotated Transformer (Rush 2018)
batch   over all positions of a batch, for each channel (Ioffe and Szegedy 2015); at inference with the running
        statistics of training
none    no normalization, as an ablation

D channels
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig


class GroupNorm(nn.GroupNorm):
    """Group norm over the channels of each position."""

    def forward(self, x_D: Tensor) -> Tensor:
        """Return x normalized."""
        return super().forward(x_D.reshape(-1, x_D.shape[-1])).view_as(x_D)


class SampleNorm(nn.LayerNorm):
    """weight (x - mean) / (s + epsilon) + bias, with the sample deviation s (divisor D - 1)."""

    def forward(self, x_D: Tensor) -> Tensor:
        """Return x normalized."""
        centered_D = x_D - x_D.mean(-1, keepdim=True)
        scaled_D = self.weight * centered_D / (x_D.std(-1, keepdim=True) + self.eps)
        return scaled_D if self.bias is None else scaled_D + self.bias


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all positions; in training these include padding, as in any batch norm over padded text."""

    def forward(self, x_D: Tensor) -> Tensor:
        """Return x normalized."""
        return super().forward(x_D.reshape(-1, x_D.shape[-1])).view_as(x_D)


def build_norm(config: ModelConfig) -> nn.Module:
    """Return the norm of a config, over `model_dim` channels."""
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
