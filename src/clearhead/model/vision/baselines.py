"""Baselines of image classification: a small convolutional network, and a multi-layer perceptron over all pixels.

B batch, C input channels, Y height, X width, S positions of the last feature map, D model width, I inputs of a layer
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model.dropout import Dropout
from clearhead.model.encoder_output import EncoderOutput
from clearhead.model.feed_forward import ACTIVATIONS
from clearhead.model.vision.vision_transformer import check_images, require_image_size

NUM_LAYERS = 3


class ConvolutionalLayer(nn.Module):
    """3x3 convolution, group norm (Wu and He 2018), activation, 2x2 max pooling if `halves`, and dropout."""

    def __init__(self, config: ModelConfig, channels: int, halves: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, config.model_dim, 3, padding=1)
        self.norm = nn.GroupNorm(config.norm_groups, config.model_dim, config.norm_epsilon)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)
        self.halves = halves
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")

    def forward(self, x_BCYX: Tensor) -> Tensor:
        """Return the next feature map."""
        y_BDYX = self.activation(self.norm(self.convolution(x_BCYX)))
        if self.halves:
            y_BDYX = F.max_pool2d(y_BDYX, 2)
        return self.dropout(y_BDYX)


class ConvolutionalEncoder(nn.Module):
    """Three layers of `model_dim` channels; the output is the mean of the last feature map.

    The first two layers have max pooling, as long as the map has more than one pixel. The settings `norm` and
    `num_encoder_layers` have no effect.
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

    def forward(self, images_BCYX: Tensor, want_attention: bool = False) -> EncoderOutput:
        """Return a state per position of the last feature map, without attention."""
        check_images(images_BCYX, self.config)
        states_BSD = self.layers(images_BCYX).flatten(2).transpose(1, 2)
        return EncoderOutput(states_BSD, states_BSD.mean(1))


class MLPEncoder(nn.Module):
    """`num_encoder_layers` hidden layers of `feed_forward_dim`; an image is one position, so pooling has no effect."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.feed_forward_dim
        pixels = config.image_channels * require_image_size(config) ** 2
        widths = [pixels] + [config.feed_forward_dim] * config.num_encoder_layers
        self.layers = nn.ModuleList(_layer(inputs, outputs, config.bias) for inputs, outputs in pairwise(widths))
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)

    def forward(self, images_BCYX: Tensor, want_attention: bool = False) -> EncoderOutput:
        """Return the last hidden layer, without attention."""
        check_images(images_BCYX, self.config)
        x_BI = images_BCYX.flatten(1)
        for layer in self.layers:
            x_BI = self.dropout(self.activation(layer(x_BI)))
        return EncoderOutput(x_BI[:, None], x_BI)


def _layer(width_in: int, width_out: int, bias: bool) -> nn.Linear:
    """Return a layer initialized for ReLU (He et al. 2015)."""
    layer = nn.Linear(width_in, width_out, bias)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
