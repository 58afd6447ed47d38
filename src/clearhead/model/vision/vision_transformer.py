"""The Vision Transformer: a Transformer encoder over patches (Dosovitskiy et al. 2021, section 3.1).

B batch, C channels, Y height, X width, S positions (patches, and the class token if there is one), P values of a patch,
channel by channel, D model width
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, DataError
from clearhead.kernels import PaddedLayout
from clearhead.model.dropout import Dropout
from clearhead.model.encoder import Encoder
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.initialization import initialize
from clearhead.model.normalization import build_norm
from clearhead.model.positions import LearnedPositions, SinusoidalPositions


def check_images(images_BCYX: Tensor, config: ModelConfig) -> None:
    """Raise DataError for images of another size than the config's."""
    expected = (config.image_channels, config.image_size, config.image_size)
    if images_BCYX.shape[1:] != expected:
        sizes = ["x".join(map(str, shape)) for shape in (expected, images_BCYX.shape[1:])]
        raise DataError(f"expected images of {sizes[0]} (channels, height, width), got {sizes[1]}; convert them first")


def require_image_size(config: ModelConfig) -> int:
    """Return the height and width of images. Raises ConfigError if it is not set; training takes it from the data."""
    if not config.image_size:
        raise ConfigError(f"model.family={config.family} needs model.image_size; set it to the height of the images.")
    return config.image_size


def patches_per_side(config: ModelConfig) -> int:
    """Return the number of patches per row. Raises ConfigError if patches do not cover the image exactly."""
    image_size = require_image_size(config)
    if image_size % config.patch_size:
        divisors = [str(size) for size in range(1, image_size + 1) if image_size % size == 0]
        raise ConfigError(
            f"model.patch_size={config.patch_size} does not divide model.image_size={image_size}; "
            f"try {' or '.join(divisors)}."
        )
    return image_size // config.patch_size


class PatchEmbedding(nn.Module):
    """Patches, row by row, projected to the model's width, with positions added (equation 1).

    Relative and rotary positions are part of attention, so nothing is added for them. `scale_embeddings` is about token
    embeddings and has no effect.
    """

    def __init__(self, config: ModelConfig, class_token: bool = False) -> None:
        super().__init__()
        self.config = config
        self.num_positions = patches_per_side(config) ** 2 + int(class_token)
        if config.positions == "rotary" and self.num_positions > config.max_positions:
            raise ConfigError(
                f"model.max_positions={config.max_positions} is less than the {self.num_positions} positions of an "
                "image; raise it or choose larger patches."
            )
        self.projection = nn.Linear(config.image_channels * config.patch_size**2, config.model_dim)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.class_token: nn.Parameter | None = None
        if class_token:
            self.class_token = nn.Parameter(torch.randn(config.model_dim) * config.model_dim**-0.5)
        self.positions: LearnedPositions | SinusoidalPositions | None = None
        if config.positions == "learned":
            self.positions = LearnedPositions(self.num_positions, config.model_dim)
        elif config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(self.num_positions, config.model_dim, config.sinusoidal_layout)
        self.norm = build_norm(config) if config.embedding_norm else nn.Identity()  # not in ViT; as in CLIP
        self.dropout = Dropout(config.dropout)

    def forward(self, images_BCYX: Tensor) -> Tensor:
        """Return x_BSD: the class token if there is one, then the patches from the upper left to the lower right."""
        check_images(images_BCYX, self.config)
        size = self.config.patch_size
        patches_BSP = F.unfold(images_BCYX, size, stride=size).transpose(1, 2)
        x_BSD = self.projection(patches_BSP)
        if self.class_token is not None:
            x_BSD = torch.cat((self.class_token.expand(x_BSD.shape[0], 1, -1), x_BSD), 1)
        if self.positions is not None:
            x_BSD = x_BSD + self.positions.weight
        return self.dropout(self.norm(x_BSD))


class VisionTransformer(nn.Module):
    """Encoder over patches with a class token at position 0, whose state is the output of `pooling=first`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.model_dim
        self.pooling = config.pooling
        self.embedding = PatchEmbedding(config, class_token=True)
        self.encoder = Encoder(config)
        initialize(self.encoder, config)

    def forward(self, images_BCYX: Tensor, want_attention: bool = False) -> EncoderOutput:
        """Return the states of images."""
        x_BSD = self.embedding(images_BCYX)
        layout = PaddedLayout.of(x_BSD.shape[1], x_BSD.device)
        states_BSD, weights = self.encoder(x_BSD, layout, want_attention)
        return EncoderOutput(states_BSD, pool(states_BSD, None, self.pooling), tuple(weights))
