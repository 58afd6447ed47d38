"""The Transformer, encoder and decoder (section 3): training on whole targets, and decoding step by step.

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, D model width, H heads, K width
of a head, V vocabulary, C channels, Y height, X width of images
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.kernels import Layout, PaddedLayout
from clearhead.model.attention import KVCache
from clearhead.model.decoder import Decoder, DecoderAttentionWeights, Memory
from clearhead.model.embedding import OutputProjection, PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.initialization import initialize
from clearhead.model.masks import padding_mask
from clearhead.model.vision.vision_transformer import PatchEmbedding


@dataclass(frozen=True)
class DecoderState:
    """State of decoding: the encoder output, the cache of each layer, and the position of the next token.

    The W rows of a sentence are adjacent and share its encoder output.
    """

    memory: Memory
    width: int
    """W, the number of rows per sentence."""
    caches: tuple[KVCache, ...] = ()
    position: int = 0


@dataclass(frozen=True)
class DecoderStep:
    """Result of a step: logits of the token after each input token, the new state, and attention if requested."""

    logits_RTV: Tensor
    state: DecoderState
    attention: list[DecoderAttentionWeights] | None


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and output projection. Sources are ids src_NS, or images src_NCYX.

    Images are read as patches (Vision Transformer), as in CPTR (Liu et al. 2021).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if config.input == "image":
            target_tokens = TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding: nn.Module = PatchEmbedding(config)
        else:
            source_tokens = TokenEmbedding(config.input_vocab_size, config.model_dim)
            target_tokens = source_tokens if config.ties_input else TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding = PositionedEmbedding(source_tokens, config)
        self.target_embedding = PositionedEmbedding(target_tokens, config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        tied_weight = target_tokens.weight if config.ties_output else None
        self.output = OutputProjection(config.vocab_size, config.model_dim, tied_weight, config.output_bias)
        initialize(self, config)

    def forward(self, src: Tensor, tgt_NT: Tensor) -> Tensor:
        """Return hidden_NTD of all target positions, each of which attends to targets up to itself.

        `logits` projects them to the vocabulary, in training `loss.cross_entropy`. States at padding are undefined.
        """
        can_drop_padding = self.training and self.config.can_drop_padding
        memory = self.encode(src, can_drop_padding)
        layout = kernels.sequence_layout(
            tgt_NT, self.config.pad_id, None, width=self.config.model_dim, can_drop_padding=can_drop_padding
        )
        hidden_D, _, _ = self.decoder(self.target_embedding(tgt_NT, layout), layout, memory)
        return layout.pad(self._scale_output(hidden_D))

    def encode(self, src: Tensor, can_drop_padding: bool = False) -> Memory:
        """Return the encoder output of sources, padded at the end, as keys and values of each decoder layer."""
        config = self.config
        if config.input == "image":
            x_D = self.source_embedding(src)
            layout: Layout = PaddedLayout.of(x_D.shape[1], x_D.device)
        else:
            allowed_N11S = padding_mask(src, config.pad_id)
            layout = kernels.sequence_layout(
                src, config.pad_id, allowed_N11S, width=config.model_dim, can_drop_padding=can_drop_padding
            )
            x_D = self.source_embedding(src, layout)
        encoded_D, _ = self.encoder(x_D, layout)
        return self.decoder.memory(encoded_D, layout)

    def logits(self, hidden_D: Tensor) -> Tensor:
        """Return logits_V of hidden states."""
        return self.output(hidden_D)

    def start(self, memory: Memory, width: int) -> tuple[Tensor, DecoderState]:
        """Return first_R1, the start token in `width` rows per sentence, and the state before it."""
        keys = memory.keys_values[0].k_HK
        first_R1 = torch.full((len(keys) * width, 1), self.config.decoder_start_id, device=keys.device)
        return first_R1, DecoderState(memory, width)

    def step(self, tokens_RT: Tensor, state: DecoderState, want_attention: bool = False) -> DecoderStep:
        """Return logits after each of the tokens, which follow those of the state."""
        layout = PaddedLayout.of(tokens_RT.shape[1], tokens_RT.device, state.position)
        x_RTD = self.target_embedding(tokens_RT, layout)
        hidden_RTD, caches, weights = self.decoder(x_RTD, layout, state.memory, state.caches, want_attention)
        new_state = replace(state, caches=caches, position=layout.num_positions)
        logits_RTV = self.logits(self._scale_output(hidden_RTD))
        return DecoderStep(logits_RTV, new_state, weights if want_attention else None)

    def reorder(self, state: DecoderState, rows_R: Tensor) -> DecoderState:
        """Return the state of these rows, in this order; rows may be repeated or left out.

        The rows of a sentence stay adjacent, and all sentences that are left have the same number of rows.
        """
        sentences = torch.unique_consecutive(rows_R // state.width)
        caches = tuple(cache.select(rows_R) for cache in state.caches)
        return DecoderState(state.memory.select(sentences), len(rows_R) // len(sentences), caches, state.position)

    def _scale_output(self, hidden_D: Tensor) -> Tensor:
        """Return hidden states, divided by sqrt(D) if `scale_output` is set, as in T5 with tied embeddings."""
        return hidden_D * self.config.model_dim**-0.5 if self.config.scale_output else hidden_D
