"""A multi-layer perceptron over pixels, a baseline without any assumption about their neighbourhood.

B batch, C channels, Y height, X width, I inputs of a layer
"""

from itertools import pairwise

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.encoder_output import EncoderOutput
from clearhead.model.feed_forward import ACTIVATIONS
from clearhead.model.vision.patches import check_images, require_image_size


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
        """Return the last hidden layer; there is no attention."""
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
