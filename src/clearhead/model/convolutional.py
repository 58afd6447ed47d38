"""A small convolutional network: the body that is told that near pixels belong together (C13, and C14's contrast).

B batch, C colours or channels, Y height, X width, S places of the last feature map, D model width
"""

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model.dropout import Dropout
from clearhead.model.feed_forward import ACTIVATIONS
from clearhead.model.patches import check_pictures, require_image_size
from clearhead.model.reading import Read, pool

NUM_LAYERS = 3


class ConvolutionalLayer(nn.Module):
    """3x3 convolution, group norm, non-linearity, dropout, and half the height and width where asked for."""

    def __init__(self, config: ModelConfig, channels: int, halves: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, config.model_dim, 3, padding=1)
        self.norm = nn.GroupNorm(config.norm_groups, config.model_dim, config.norm_epsilon)
        self.activation = config.activation
        self.dropout = Dropout(config.dropout)
        self.halves = halves
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")

    def forward(self, x_BCYX: Tensor) -> Tensor:
        """The next feature map."""
        x_BCYX = ACTIVATIONS[self.activation](self.norm(self.convolution(x_BCYX)))
        if self.halves:
            x_BCYX = F.max_pool2d(x_BCYX, 2)
        y_BCYX: Tensor = self.dropout(x_BCYX)
        return y_BCYX


class ConvolutionalReader(nn.Module):
    """Three layers, each `model_dim` wide; the mean over the last feature map stands for the whole.

    The first two halve the map (while it can be halved). `norm` and `num_encoder_layers` speak of Transformers: a
    baseline with one fixed shape is what the patches are compared with.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.pooling != "mean":
            raise ConfigError(f"model.pooling={config.pooling} has no meaning for a convolutional network; use mean.")
        if config.model_dim % config.norm_groups:
            groups, width = config.norm_groups, config.model_dim
            raise ConfigError(f"model.norm_groups={groups} does not divide model.model_dim={width}.")
        self.config = config
        self.width = config.model_dim
        layers = []
        side, channels = require_image_size(config), config.image_channels
        for number in range(NUM_LAYERS):
            halves = number < NUM_LAYERS - 1 and side > 1
            layers.append(ConvolutionalLayer(config, channels, halves))
            side, channels = side // 2 if halves else side, config.model_dim
        self.layers = nn.Sequential(*layers)

    def forward(self, pictures_BCYX: Tensor, want_attention: bool = False) -> Read:
        """One state a place of the last feature map; there is no attention to hand out."""
        check_pictures(pictures_BCYX, self.config)
        states_BSD = self.layers(pictures_BCYX).flatten(2).transpose(1, 2)
        return Read(states_BSD, pool(states_BSD, None, self.config.pooling))
