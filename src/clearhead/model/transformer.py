"""The Transformer, encoder and decoder (section 3): training on whole targets, and decoding step by step.

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, D model width, V vocabulary,
C channels, Y height, X width of images
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.kernels import Layout, PaddedLayout
from clearhead.model.attention import KVCache
from clearhead.model.decoder import Decoder, DecoderAttention, Memory
from clearhead.model.embedding import OutputProjection, PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.initialization import initialize
from clearhead.model.masks import padding_mask
from clearhead.model.vision.patches import PatchEmbedding


@dataclass(frozen=True)
class DecoderState:
    """State of decoding: the encoder output, the cache of each layer, and the position of the next token.

    The W rows of a sentence are adjacent and share its encoder output.
    """

    memory: Memory
    width: int
    caches: tuple[KVCache, ...] = ()
    position: int = 0


@dataclass(frozen=True)
class DecoderStep:
    """Result of a step: logits for the token after each given one, the new state, and attention if it is wanted."""

    logits_RTV: Tensor
    state: DecoderState
    attention: list[DecoderAttention] | None


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and output projection. Sources are ids src_NS, or images src_NCYX."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if config.input == "image":
            target_tokens = TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding: PositionedEmbedding = PatchEmbedding(config)  # type: ignore[assignment]
        else:
            source_tokens = TokenEmbedding(config.read_vocab_size, config.model_dim)
            is_shared = config.tied_embeddings in ("all", "input")
            target_tokens = source_tokens if is_shared else TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding = PositionedEmbedding(source_tokens, config)
        self.target_embedding = PositionedEmbedding(target_tokens, config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        tied = target_tokens.weight if config.tied_embeddings in ("all", "target") else None
        self.output = OutputProjection(config.vocab_size, config.model_dim, tied, config.output_bias)
        initialize(self, config)

    def forward(self, src: Tensor, tgt_NT: Tensor) -> Tensor:
        """Return hidden_NTD of all target positions, each of which attends to targets up to itself.

        At padding, values are undefined and gradients are ignored.
        """
        layout = self._layout(tgt_NT, None, self.training)
        hidden_D, _, _ = self.decoder(self.target_embedding(tgt_NT, layout), layout, self._encode(src, self.training))
        return layout.padded(self._scale_output(hidden_D))

    def encode(self, src: Tensor) -> Memory:
        """Return the encoder output of sources, padded at the end, as keys and values of each decoder layer."""
        return self._encode(src, can_drop_padding=False)

    def _encode(self, src: Tensor, can_drop_padding: bool) -> Memory:
        if self.config.input == "image":
            x_D = self.source_embedding(src)
            layout: Layout = PaddedLayout.of(x_D.shape[1], x_D.device)
        else:
            layout = self._layout(src, padding_mask(src, self.config.pad_id), can_drop_padding)
            x_D = self.source_embedding(src, layout)
        return self.decoder.memory(self.encoder(x_D, layout)[0], layout)

    def logits(self, hidden_D: Tensor) -> Tensor:
        """Return logits_V of hidden states."""
        logits_V: Tensor = self.output(hidden_D)
        return logits_V

    def start(self, memory: Memory, width: int) -> tuple[Tensor, DecoderState]:
        """Return first_R1, the start token in `width` rows per sentence, and the state before it."""
        keys = memory.keys_values[0].k_HK
        first_R1 = torch.full((len(keys) * width, 1), self.config.decoder_start_id, device=keys.device)
        return first_R1, DecoderState(memory, width)

    def step(self, tokens_RT: Tensor, state: DecoderState, want_attention: bool = False) -> DecoderStep:
        """Return logits after each of the tokens, which follow those of the state."""
        layout = PaddedLayout.of(tokens_RT.shape[1], tokens_RT.device, state.position)
        x_RTD = self.target_embedding(tokens_RT, layout)
        hidden_RTD, caches, attention = self.decoder(x_RTD, layout, state.memory, state.caches, want_attention)
        new_state = replace(state, caches=caches, position=layout.num_positions)
        return DecoderStep(
            self.logits(self._scale_output(hidden_RTD)), new_state, attention if want_attention else None
        )

    def reorder(self, state: DecoderState, rows_R: Tensor) -> DecoderState:
        """Return the state with these rows, of which any may be repeated: the same number for each sentence that is
        left, the rows of a sentence adjacent."""
        sentences = torch.unique_consecutive(rows_R // state.width)
        keys_values = tuple(each.select(sentences) for each in state.memory.keys_values)
        layout = state.memory.layout
        if isinstance(layout, PaddedLayout) and layout.allowed_B11S is not None:
            layout = replace(layout, allowed_B11S=layout.allowed_B11S[sentences])
        caches = tuple(each.select(rows_R) for each in state.caches)
        return DecoderState(Memory(keys_values, layout), len(rows_R) // len(sentences), caches, state.position)

    def _layout(self, ids_NT: Tensor, allowed_N11S: Tensor | None, can_drop_padding: bool) -> Layout:
        """Return the layout of token ids. Padding stays if a norm sees it, if attention weights are needed for dropout,
        and beside images, which have none to drop."""
        config = self.config
        needs_padding = config.norm == "batch" or config.attention_dropout > 0 or config.input == "image"
        can_drop = can_drop_padding and not needs_padding
        return kernels.sequence_layout(ids_NT, config.pad_id, allowed_N11S, config.model_dim, can_drop)

    def _scale_output(self, hidden_D: Tensor) -> Tensor:
        return hidden_D * self.config.model_dim**-0.5 if self.config.scale_output else hidden_D
