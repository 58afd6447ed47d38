"""A body that reads text: the Transformer's encoder alone, as in BERT (S5 to S7). What stands on it is in `heads.py`.

B batch, S places, D model width, H heads; 1 = broadcast
"""

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.embedding import PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.initialisation import initialise
from clearhead.model.masks import padding_mask
from clearhead.model.reading import Read, pool


class TextReader(nn.Module):
    """Every place sees every other that is no padding, from the first layer on."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.model_dim
        self.embedding = PositionedEmbedding(TokenEmbedding(config.vocab_size, config.model_dim), config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.model_dim, config.model_dim) if config.pooler else None
        initialise(self, config)

    def forward(self, ids_BS: Tensor, want_attention: bool = False, segments_BS: Tensor | None = None) -> Read:
        """One state a place, one for the whole, and weights_BHSS of each layer if asked for; padding stands behind."""
        allowed_B11S = padding_mask(ids_BS, self.config.pad_id)
        x_BSD = self.embedding(ids_BS, segments_BT=segments_BS)
        states_BSD, weights = self.encoder(x_BSD, allowed_B11S, want_attention)
        real_BS = None if allowed_B11S is None else allowed_B11S[:, 0, 0]
        pooled_BD = pool(states_BSD, real_BS, self.config.pooling)
        if self.pooler is not None:
            bend = torch.tanh if self.config.pooler_activation == "tanh" else torch.relu
            pooled_BD = bend(self.pooler(pooled_BD))
        return Read(states_BSD, pooled_BD, tuple(weights_BHSS for weights_BHSS in weights if weights_BHSS is not None))
