"""The decoder-only language model (GPT, Radford et al. 2018): masked self-attention and feed-forward networks.

N sequences, W continuations of each, R = N*W rows, T tokens, P positions including cached ones, D model width,
H heads, V vocabulary
"""

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels import Layout, PaddedLayout
from clearhead.model.attention import KVCache
from clearhead.model.embedding import OutputProjection, PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import EncoderLayer, Stack
from clearhead.model.initialization import initialize
from clearhead.model.masks import document_mask
from clearhead.model.positions import positions_in_documents


@dataclass(frozen=True)
class SelfAttentionWeights:
    """Attention weights of one layer."""

    self_RHTP: Tensor


@dataclass(frozen=True)
class Prompts:
    """Prompts of one length."""

    ids_NT: Tensor


@dataclass(frozen=True)
class LanguageModelState:
    """State of decoding: the cache of each layer, and the position of the next token."""

    caches: tuple[KVCache, ...] = ()
    position: int = 0


@dataclass(frozen=True)
class LanguageModelStep:
    """Result of a step: logits of the token after each input token, the new state, and attention if requested."""

    logits_RTV: Tensor
    state: LanguageModelState
    attention: list[SelfAttentionWeights] | None


class CausalStack(Stack):
    """Encoder layers in which each position attends to itself and to earlier ones: a decoder without an encoder."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (EncoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, is_causal=True)

    def forward(
        self,
        x_RTD: Tensor,
        layout: Layout,
        allowed: Tensor | None = None,
        caches: tuple[KVCache, ...] = (),
        want_weights: bool = False,
    ) -> tuple[Tensor, tuple[KVCache, ...], list[SelfAttentionWeights]]:
        """Return the states of the last layer, the extended caches, and the weights of each layer if wanted."""
        inputs = self.self_attention_inputs(layout, allowed)
        new_caches, weights = [], []
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x_RTD, new_cache, self_RHTP = layer(x_RTD, inputs, cache, want_weights)
            new_caches.append(new_cache)
            if self_RHTP is not None:
                weights.append(SelfAttentionWeights(self_RHTP))
        return self.norm(x_RTD), tuple(new_caches), weights


class LanguageModel(nn.Module):
    """Embeddings, a causal stack and the output projection; generates continuations of prompts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tokens = TokenEmbedding(config.vocab_size, config.model_dim)
        self.embedding = PositionedEmbedding(tokens, config)
        self.decoder = CausalStack(config)
        tied_weight = tokens.weight if config.ties_output else None
        self.output = OutputProjection(config.vocab_size, config.model_dim, tied_weight)
        initialize(self, config)

    def forward(self, ids_NT: Tensor, documents_NT: Tensor | None = None) -> Tensor:
        """Return hidden_NTD of all positions, which attend to themselves and to earlier ones; padding is at the end.

        `documents_NT` numbers the packed documents (Krell et al. 2021) of each row: a token attends only to its own
        document, whose tokens are adjacent and whose positions start from 0.
        """
        if self.config.pad_id >= self.config.vocab_size:
            # GPT-2 has no padding token. Any id can be used instead, since no token attends to padding at the end.
            ids_NT = ids_NT.clamp(max=self.config.vocab_size - 1)
        if documents_NT is None:
            layout, allowed_N1TT = PaddedLayout.of(ids_NT.shape[1], ids_NT.device), None
        else:
            layout = PaddedLayout(positions_in_documents(documents_NT), num_positions=ids_NT.shape[1])
            allowed_N1TT = document_mask(documents_NT)
        hidden_NTD, _, _ = self.decoder(self.embedding(ids_NT, layout), layout, allowed_N1TT)
        return hidden_NTD

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """Return logits_NTV of hidden states."""
        return self.output(hidden_NTD)

    def encode(self, src_NT: Tensor) -> Prompts:
        """Return the prompts; nothing is computed before the first step."""
        if bool((src_NT == self.config.pad_id).any()):
            raise ValueError("expected prompts of one length in a batch, got padding; group prompts by their length")
        return Prompts(src_NT)

    def start(self, memory: Prompts, width: int) -> tuple[Tensor, LanguageModelState]:
        """Return first_RT, the prompt in each of `width` rows, and the state before it."""
        return memory.ids_NT.repeat_interleave(width, 0), LanguageModelState()

    def step(self, tokens_RT: Tensor, state: LanguageModelState, want_attention: bool = False) -> LanguageModelStep:
        """Return logits after each of the tokens, which follow those of the state."""
        layout = PaddedLayout.of(tokens_RT.shape[1], tokens_RT.device, state.position)
        x_RTD = self.embedding(tokens_RT, layout)
        hidden_RTD, caches, weights = self.decoder(x_RTD, layout, None, state.caches, want_attention)
        new_state = LanguageModelState(caches, layout.num_positions)
        return LanguageModelStep(self.logits(hidden_RTD), new_state, weights if want_attention else None)

    def reorder(self, state: LanguageModelState, rows_R: Tensor) -> LanguageModelState:
        """Return the state with these rows in this order; rows may be repeated."""
        return LanguageModelState(tuple(each.select(rows_R) for each in state.caches), state.position)
