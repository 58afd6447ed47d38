"""The bidirectional Transformer encoder for texts (S5, S6, S7), as in BERT.

B batch, S positions, D model width, H heads
"""

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.model.embedding import PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.initialization import initialize
from clearhead.model.masks import padding_mask


class TextEncoder(nn.Module):
    """Encoder whose positions attend to all tokens of the text, from the first layer on."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.model_dim
        self.embedding = PositionedEmbedding(TokenEmbedding(config.vocab_size, config.model_dim), config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.model_dim, config.model_dim) if config.pooler else None
        initialize(self, config)

    def forward(self, ids_BS: Tensor, want_attention: bool = False, segments_BS: Tensor | None = None) -> EncoderOutput:
        """Return the states of texts, padded at the end; at padding, states are undefined."""
        config, allowed_B11S = self.config, padding_mask(ids_BS, self.config.pad_id)
        can_drop_padding = self.training and config.norm != "batch" and not config.attention_dropout
        layout = kernels.sequence_layout(
            ids_BS, config.pad_id, allowed_B11S, config.model_dim, can_drop_padding and not want_attention
        )
        x_D = self.embedding(ids_BS, layout, segments_BS)
        encoded_D, weights = self.encoder(x_D, layout, want_attention)
        states_BSD = layout.padded(encoded_D)
        pooled_BD = pool(states_BSD, None if allowed_B11S is None else allowed_B11S[:, 0, 0], config.pooling)
        if self.pooler is not None:
            activation = torch.tanh if config.pooler_activation == "tanh" else torch.relu
            pooled_BD = activation(self.pooler(pooled_BD))
        return EncoderOutput(states_BSD, pooled_BD, tuple(each for each in weights if each is not None))
