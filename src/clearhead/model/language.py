"""The decoder-only language model (S8), as in GPT: masked self-attention and feed-forward, nothing to look up.

N sequences, W continuations of each, R = N*W rows, T tokens, D model width, H heads, V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.attention import KeysValues
from clearhead.model.embedding import OutputProjection, PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import EncoderLayer, Scope, Stack
from clearhead.model.flat import Flat, flatten, has_own
from clearhead.model.initialisation import initialise
from clearhead.model.kept import Kept
from clearhead.model.masks import document_mask
from clearhead.model.positions import places_in_documents


@dataclass(frozen=True)
class SelfWeights:
    """The attention weights of one layer, for those who look inside."""

    self_RHTT: Tensor


@dataclass(frozen=True)
class Prompts:
    """What is to be continued: as many tokens in every row."""

    ids_NT: Tensor


@dataclass(frozen=True)
class LanguageState:
    """Where writing stands: the rows' own past in each layer, and the place of the next token."""

    past: tuple[KeysValues, ...]
    position: int
    flat: Flat | None = None  # for steps of one token; None: the modules themselves


@dataclass(frozen=True)
class LanguageStep:
    """What one step gives: logits for the next token after each given one, the new state, attention if asked for."""

    logits_RTV: Tensor
    state: LanguageState
    attention: list[SelfWeights] | None


class CausalStack(Stack):
    """Encoder layers in which each token sees only itself and those before it: a decoder without a source."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (EncoderLayer(config) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, is_causal=True)

    def forward(
        self, x_RTD: Tensor, scope: Scope, past: tuple[KeysValues, ...] = (), want_weights: bool = False
    ) -> tuple[Tensor, tuple[KeysValues, ...], list[SelfWeights]]:
        """The last layer's states, the pasts, and each layer's attention weights if asked for."""
        pasts, weights = [], []
        for layer, layer_past in zip(self.layers, past or (None,) * len(self.layers), strict=True):
            x_RTD, now, self_RHTT = self.through(layer, x_RTD, scope, layer_past, want_weights)
            pasts.append(now)
            if self_RHTT is not None:
                weights.append(SelfWeights(self_RHTT))
        return self.norm(x_RTD), tuple(pasts), weights


class LanguageModel(nn.Module):
    """Embeddings, a causal stack and the output projection; writes on from a prompt."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        tokens = TokenEmbedding(config.vocab_size, config.model_dim)
        self.embedding = PositionedEmbedding(tokens, config)
        self.decoder = CausalStack(config)
        separate = config.tied_embeddings in ("input", "none")
        self.output = OutputProjection(config.vocab_size, config.model_dim, None if separate else tokens.weight)
        self._flat = Kept[Flat]()
        initialise(self, config)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """A move to another device or type: nothing of the old numbers is held on to."""
        self._flat = Kept[Flat]()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def train(self, mode: bool = True) -> Self:
        """To train, or not to: weights that are trained are soon others."""
        if mode:
            self._flat = Kept[Flat]()
        return super().train(mode)

    def forward(self, ids_NT: Tensor, documents_NT: Tensor | None = None) -> Tensor:
        """hidden_NTD for all positions at once, each seeing only tokens up to itself; padding stands behind.

        Where several documents are packed into a row, `documents_NT` numbers them: a token then sees only its own
        document, whose tokens stand together and whose places start from 0.
        """
        places_NT = allowed_N1TT = None
        if documents_NT is not None:  # relative positions need no places: differences stay the same
            places_NT, allowed_N1TT = places_in_documents(documents_NT), document_mask(documents_NT)
        if self.config.pad_id >= self.config.vocab_size:  # padding that is no piece: it stands behind, nobody sees it
            ids_NT = ids_NT.clamp(max=self.config.vocab_size - 1)
        x_NTD = self.embedding(ids_NT, places_BT=places_NT)
        hidden_NTD: Tensor = self.decoder(x_NTD, self.decoder.scope(x_NTD, None, allowed_N1TT, places_NT))[0]
        return hidden_NTD

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """logits_NTV: the output projection."""
        logits_NTV: Tensor = self.output(hidden_NTD)
        return logits_NTV

    def encode(self, src_NT: Tensor) -> Prompts:
        """The prompts, kept as they are: nothing is read before the first step."""
        if bool((src_NT == self.config.pad_id).any()):
            raise ValueError("expected prompts of one length in a batch, got padding; group prompts by their length")
        return Prompts(src_NT)

    def start(self, memory: Prompts, width: int) -> tuple[Tensor, LanguageState]:
        """first_RT, the prompt in each of `width` rows, and the state before it."""
        output = self.output if has_own(self, LanguageModel, "logits") else None
        flat = flatten(self.embedding, self.decoder, self._flat, output)
        return memory.ids_NT.repeat_interleave(width, 0), LanguageState((), 0, flat)

    def step(self, tokens_RT: Tensor, state: LanguageState, want_attention: bool = False) -> LanguageStep:
        """Logits after each of the tokens, which follow what the state has seen."""
        flat, position = state.flat, state.position + tokens_RT.shape[1]
        if flat is not None and tokens_RT.shape[1] == 1 and not (want_attention or torch.is_grad_enabled()):
            hidden_R1D, past = flat(tokens_RT, None, state.position, state.past)
            logits_R1V = self.logits(hidden_R1D) if flat.output is None else flat.logits(hidden_R1D)
            return LanguageStep(logits_R1V, LanguageState(past, position, flat), None)
        x_RTD = self.embedding(tokens_RT, state.position)
        scope = self.decoder.scope(x_RTD, state.past[0] if state.past else None, None)
        hidden_RTD, past, attention = self.decoder(x_RTD, scope, state.past, want_attention)
        new_state = LanguageState(past, position, flat)
        return LanguageStep(self.logits(hidden_RTD), new_state, attention if want_attention else None)

    def widen(self, state: LanguageState, width: int) -> LanguageState:
        """Where each prompt has one row: `width` of them, which all stand where that one stands."""
        return replace(state, past=tuple(kv.widened(width) for kv in state.past))

    def select(self, state: LanguageState, rows_R: Tensor) -> LanguageState:
        """The state with these rows in this order."""
        return replace(state, past=tuple(kv.rows(rows_R) for kv in state.past))
