"""Pictures as sequences of patches (S10): An Image is Worth 16x16 Words, section 3.1. Knows pixels as numbers only.

B batch, C colours, Y height, X width, P patch height and width, S places (patches, and the class token if there is
one), D model width, H heads; 1 = broadcast
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, DataError
from clearhead.model.dropout import Dropout
from clearhead.model.encoder import Encoder
from clearhead.model.initialisation import initialise
from clearhead.model.normalisation import build_norm
from clearhead.model.positions import LearnedPositions, SinusoidalPositions
from clearhead.model.reading import Read, pool


def check_pictures(pictures_BCYX: Tensor, config: ModelConfig) -> None:
    """Refuses pictures of another size or kind than the network was built for."""
    expected = (config.image_channels, config.image_size, config.image_size)
    if pictures_BCYX.shape[1:] != expected:
        sizes = ["x".join(map(str, shape)) for shape in (expected, pictures_BCYX.shape[1:])]
        raise DataError(f"expected pictures of {sizes[0]} (colours, height, width), got {sizes[1]}; convert them first")


def require_image_size(config: ModelConfig) -> int:
    """Height and width of a picture, which only the data can tell."""
    if not config.image_size:
        raise ConfigError(f"model.family={config.family} needs model.image_size; set it to the height of the pictures.")
    return config.image_size


def patches_a_side(config: ModelConfig) -> int:
    """How many patches stand beside each other; they must cover the picture exactly."""
    image_size = require_image_size(config)
    if image_size % config.patch_size:
        fitting = [str(size) for size in range(1, image_size + 1) if image_size % size == 0]
        raise ConfigError(
            f"model.patch_size={config.patch_size} does not divide model.image_size={image_size}; "
            f"try {' or '.join(fitting)}."
        )
    return image_size // config.patch_size


class PatchEmbedding(nn.Module):
    """Patches, row by row, each projected to the model's width, plus its position: what enters an encoder.

    `relative` and `rotary` positions are the attention's affair and `none` nobody's: nothing is added for them.
    `scale_embeddings` speaks of tables of pieces, which a picture has not: projections are not scaled.
    """

    def __init__(self, config: ModelConfig, class_token: bool = False) -> None:
        super().__init__()
        self.config = config
        self.num_places = patches_a_side(config) ** 2 + class_token
        if config.positions == "rotary" and self.num_places > config.max_positions:  # angles are held up to there
            raise ConfigError(
                f"model.max_positions={config.max_positions} is less than a picture's {self.num_places} places; "
                "raise it or take larger patches."
            )
        self.projection = nn.Linear(config.image_channels * config.patch_size**2, config.model_dim)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.class_token: nn.Parameter | None = None
        if class_token:
            self.class_token = nn.Parameter(torch.randn(config.model_dim) * config.model_dim**-0.5)
        self.positions: LearnedPositions | SinusoidalPositions | None = None
        if config.positions == "learned":
            self.positions = LearnedPositions(self.num_places, config.model_dim)
        elif config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(self.num_places, config.model_dim)
        self.norm = build_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, pictures_BCYX: Tensor) -> Tensor:
        """x_BSD: the class token first if there is one, then the patches from the upper left to the lower right."""
        check_pictures(pictures_BCYX, self.config)
        size = self.config.patch_size
        embedded_BSD: Tensor = self.projection(F.unfold(pictures_BCYX, size, stride=size).transpose(1, 2))
        if self.class_token is not None:
            embedded_BSD = torch.cat((self.class_token.expand(embedded_BSD.shape[0], 1, -1), embedded_BSD), 1)
        if self.positions is not None:
            embedded_BSD = embedded_BSD + self.positions(0, self.num_places)
        x_BSD: Tensor = self.dropout(self.norm(embedded_BSD))
        return x_BSD


class PatchReader(nn.Module):
    """A Transformer encoder over patches with a class token at place 0: a body that reads pictures.

    Every patch sees every other from the first layer on. `pooling=first` gives the class token's state.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.model_dim
        self.pooling = config.pooling
        self.embedding = PatchEmbedding(config, class_token=True)
        self.encoder = Encoder(config)
        initialise(self.encoder, config)

    def forward(self, pictures_BCYX: Tensor, want_attention: bool = False) -> Read:
        """One state a place, one for the whole, and weights_BHSS of each layer if asked for."""
        states_BSD, weights = self.encoder(self.embedding(pictures_BCYX), None, want_attention)
        attention = tuple(weights_BHSS for weights_BHSS in weights if weights_BHSS is not None)
        return Read(states_BSD, pool(states_BSD, None, self.pooling), attention)
