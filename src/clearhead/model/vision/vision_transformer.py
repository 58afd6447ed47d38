"""The Vision Transformer: a Transformer encoder over patches (Dosovitskiy et al. 2021).

B batch, C channels, Y height, X width, S positions
"""

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels import PaddedLayout
from clearhead.model.encoder import Encoder
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.initialization import initialize
from clearhead.model.vision.patches import PatchEmbedding


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
