"""The bidirectional Transformer encoder of texts: BERT (Devlin et al. 2019).

B batch, S positions, D model width. Activations x_D are [B, S, D], or rows [M, D] without padding in training.
"""

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.model.embedding import PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.initialization import initialize
from clearhead.model.masks import padding_mask, token_mask


class TextEncoder(nn.Module):
    """Embedding and encoder: in every layer, each position attends to all tokens of the text."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.model_dim
        self.embedding = PositionedEmbedding(TokenEmbedding(config.vocab_size, config.model_dim), config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.model_dim, config.model_dim) if config.pooler else None
        initialize(self, config)

    def forward(self, ids_BS: Tensor, want_attention: bool = False, segments_BS: Tensor | None = None) -> EncoderOutput:
        """Return the states of texts, padded at the end; states at padding are undefined."""
        config = self.config
        layout = kernels.sequence_layout(
            ids_BS,
            config.pad_id,
            padding_mask(ids_BS, config.pad_id),
            width=config.model_dim,
            can_drop_padding=self.training and config.can_drop_padding,
        )
        encoded_D, weights = self.encoder(self.embedding(ids_BS, layout, segments_BS), layout, want_attention)
        states_BSD = layout.pad(encoded_D)
        pooled_BD = pool(states_BSD, token_mask(ids_BS, config.pad_id), config.pooling)
        if self.pooler is not None:  # tanh in BERT, ReLU in DistilBERT (Sanh et al. 2019)
            activation = torch.tanh if config.pooler_activation == "tanh" else torch.relu
            pooled_BD = activation(self.pooler(pooled_BD))
        return EncoderOutput(states_BSD, pooled_BD, tuple(weights))
