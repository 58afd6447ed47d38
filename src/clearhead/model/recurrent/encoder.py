"""Recurrent encoders of texts.

B batch, S source length, D model width, E width of the states: D, or 2 * D if bidirectional
"""

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.masks import token_mask
from clearhead.model.recurrent.cells import LayerState
from clearhead.model.recurrent.layers import RecurrentStack


@dataclass(frozen=True)
class EncodedSource:
    """States of a source, the final state of each layer, and which positions are tokens (None: all)."""

    states_BSE: Tensor
    final_states: tuple[LayerState, ...]
    is_token_BS: Tensor | None


class RecurrentEncoder(RecurrentStack):
    """Embedding and recurrent layers, in one direction or both (Schuster and Paliwal 1997).

    `encode` reads token ids; calling the module runs the layers on embedded ids.
    """

    def __init__(self, config: ModelConfig, embedding: TokenEmbedding) -> None:
        super().__init__(config, config.num_encoder_layers, config.bidirectional)
        self.pad_id = config.pad_id
        self.embedding = embedding

    def encode(self, src_BS: Tensor) -> EncodedSource:
        """Return the states of sources, padded at the end."""
        is_token_BS = token_mask(src_BS, self.pad_id)
        states_BSE, final_states = self(self.dropout(self.embedding(src_BS)), is_token_BS=is_token_BS)
        return EncodedSource(states_BSE, final_states, is_token_BS)


def projection_to_model_dim(config: ModelConfig) -> nn.Module:
    """Return a linear layer from the states of both directions, 2D, to the width D of the decoder and of heads.

    It is the identity for one direction.
    """
    width = config.model_dim
    return nn.Linear(2 * width, width, bias=config.bias) if config.bidirectional else nn.Identity()


class RecurrentTextEncoder(nn.Module):
    """Encoder for heads that predict labels or tags."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.model_dim
        self.encoder = RecurrentEncoder(config, TokenEmbedding(config.vocab_size, config.model_dim))
        self.encoder_projection = projection_to_model_dim(config)

    def forward(self, inputs_BS: Tensor, want_attention: bool = False) -> EncoderOutput:
        """Return the states of texts, without attention; `pooling=last` is the last state of each direction."""
        encoded = self.encoder.encode(inputs_BS)
        states_BSD = self.encoder_projection(encoded.states_BSE)
        if self.config.pooling == "last":
            return EncoderOutput(states_BSD, self.encoder_projection(encoded.final_states[-1][0]))
        return EncoderOutput(states_BSD, pool(states_BSD, encoded.is_token_BS, self.config.pooling))
