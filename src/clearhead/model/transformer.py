"""The Transformer, encoder and decoder (S4, S9): from ids to hidden states and logits, and step by step for search.

N sentences, W hypotheses of each, R = N*W rows, S source length, T target length, D model width, V vocabulary,
C colours, Y height, X width, H heads, K head width, E head width of values
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.attention import KeysValues
from clearhead.model.decoder import Decoder, LayerMemory, LayerWeights
from clearhead.model.embedding import Narrowed, OutputProjection, PositionedEmbedding, TokenEmbedding
from clearhead.model.encoder import Encoder
from clearhead.model.flat import Flat, flatten, has_own
from clearhead.model.initialisation import initialise
from clearhead.model.kept import Kept
from clearhead.model.masks import padding_mask
from clearhead.model.packed import Packed, can_pack
from clearhead.model.patches import PatchEmbedding


@dataclass(frozen=True)
class Memory:
    """Encoded sources: each decoder layer's keys and values of them, and which places are no padding."""

    source: tuple[KeysValues, ...]
    allowed_N11S: Tensor | None
    flat: Flat | None = None  # the decoder, for steps of one token; None: the modules themselves


@dataclass(frozen=True)
class State:
    """Where decoding stands: the sources, the rows' own past in each layer, and the place of the next token."""

    memory: Memory
    width: int
    past: tuple[KeysValues, ...]
    position: int
    narrowed: Narrowed | None = None  # the tokens that logits are wanted of; None: all

    @property
    def flat(self) -> Flat | None:
        """For steps of one token."""
        return self.memory.flat


@dataclass(frozen=True)
class Step:
    """What one step gives: logits for the next token after each given one, the new state, attention if asked for."""

    logits_RTV: Tensor
    state: State
    attention: list[LayerWeights] | None


class Transformer(nn.Module):
    """Encoder and decoder with embeddings and output projection. Sources are src_NS, or pictures_NCYX (S11)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if config.input == "image":
            target_tokens = TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding: PositionedEmbedding = PatchEmbedding(config)  # type: ignore[assignment]
        else:
            source_tokens = TokenEmbedding(config.read_vocab_size, config.model_dim)
            shared = config.tied_embeddings in ("all", "input")
            target_tokens = source_tokens if shared else TokenEmbedding(config.vocab_size, config.model_dim)
            self.source_embedding = PositionedEmbedding(source_tokens, config)
        self.target_embedding = PositionedEmbedding(target_tokens, config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        separate = config.tied_embeddings in ("input", "none")
        tied = None if separate else target_tokens.weight
        self.output = OutputProjection(config.vocab_size, config.model_dim, tied, config.output_bias)
        self._forget()
        initialise(self, config)

    def _forget(self) -> None:
        """What is laid out for search, of numbers as they are now."""
        self._flat_encoder, self._flat_decoder = Kept[Flat](), Kept[Flat]()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """A move to another device or type: nothing of the old numbers is held on to."""
        self._forget()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def train(self, mode: bool = True) -> Self:
        """To train, or not to: weights that are trained are soon others."""
        if mode:
            self._forget()
        return super().train(mode)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """hidden_NTD for all target positions at once, each seeing only targets up to itself (teacher forcing).

        Where it trains on a CPU, layers see one row for each place that is no padding; what padding has here means
        nothing then, and a gradient there goes nowhere.
        """
        if can_pack(self.config, src_NS, self.training):
            return self._forward_packed(src_NS, tgt_NT)
        states_NSD, allowed_N11S = self._read(src_NS)
        memories = [LayerMemory(source, allowed_N11S, None) for source in self.decoder.source_memory(states_NSD)]
        return self._scaled(self.decoder(self.target_embedding(tgt_NT), memories)[0])

    def _forward_packed(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """The same, with rows for what is no padding only."""
        src, tgt = Packed.of(src_NS, self.config), Packed.of(tgt_NT, self.config)
        allowed_N11S = padding_mask(src_NS, self.config.pad_id)
        x_1MD = self.source_embedding(src.ids(src_NS), places_BT=src.places_1M)
        states_1MD, allowed = self.encoder(x_1MD, allowed_N11S, packed=src)[0], src.mask(allowed_N11S)
        memories = [LayerMemory(source, allowed, None) for source in self.decoder.source_memory(states_1MD, src)]
        x_1MD = self.target_embedding(tgt.ids(tgt_NT), places_BT=tgt.places_1M)
        return tgt.unpacked(self._scaled(self.decoder(x_1MD, memories, packed=tgt)[0]))

    def _read(self, src_NS: Tensor) -> tuple[Tensor, Tensor | None]:
        """The encoder's states, and which of them are no padding; a picture has none."""
        allowed_N11S = None if self.config.input == "image" else padding_mask(src_NS, self.config.pad_id)
        if flat := flatten(self.source_embedding, self.encoder, self._flat_encoder):
            return flat(src_NS, allowed_N11S)[0], allowed_N11S
        return self.encoder(self.source_embedding(src_NS), allowed_N11S)[0], allowed_N11S

    def _scaled(self, hidden_NTD: Tensor) -> Tensor:
        """The decoder's states as the output projection, and so the loss, takes them."""
        return hidden_NTD * self.config.model_dim**-0.5 if self.config.scale_output else hidden_NTD

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """logits_NTV: the output projection."""
        logits_NTV: Tensor = self.output(hidden_NTD)
        return logits_NTV

    def encode(self, src_NS: Tensor) -> Memory:
        """The sources, read once."""
        states_NSD, allowed_N11S = self._read(src_NS)
        output = self.output if has_own(self, Transformer, "logits") else None
        flat = flatten(self.target_embedding, self.decoder, self._flat_decoder, output)
        source = self.decoder.source_memory(states_NSD) if flat is None else flat.sources(states_NSD)
        return Memory(tuple(source), allowed_N11S, flat)

    def start(self, memory: Memory, width: int) -> tuple[Tensor, State]:
        """first_R1, the start token in each of `width` rows a sentence, and the state before it."""
        num_sentences = memory.source[0].k_BHSK.shape[0]
        device = memory.source[0].k_BHSK.device
        first_R1 = torch.full((num_sentences * width, 1), self.config.decoder_start_id, device=device)
        return first_R1, State(memory, width, (), 0)

    def step(self, tokens_RT: Tensor, state: State, want_attention: bool = False) -> Step:
        """Logits after each of the tokens, which follow what the state has seen."""
        memory, flat, position = state.memory, state.flat, state.position + tokens_RT.shape[1]
        if flat is not None and tokens_RT.shape[1] == 1 and not (want_attention or torch.is_grad_enabled()):
            now = flat(tokens_RT, None, state.position, state.past, memory.source, memory.allowed_N11S)
            new_state = State(memory, state.width, now[1], position, state.narrowed)
            return Step(self._logits(self._scaled(now[0]), state), new_state, None)
        pasts = state.past or (None,) * len(self.decoder.layers)
        memories = [
            LayerMemory(source, memory.allowed_N11S, past) for source, past in zip(memory.source, pasts, strict=True)
        ]
        x_RTD = self.target_embedding(tokens_RT, state.position)
        hidden_RTD, past, attention = self.decoder(x_RTD, memories, want_attention)
        new_state = replace(state, past=past, position=position)
        return Step(self._logits(self._scaled(hidden_RTD), state), new_state, attention if want_attention else None)

    def _logits(self, hidden_RTD: Tensor, state: State) -> Tensor:
        """Of all tokens, or of those that are wanted."""
        if state.narrowed is not None:
            return F.linear(hidden_RTD, *state.narrowed)
        flat = state.flat
        if flat is None or flat.output is None or torch.is_grad_enabled():
            return self.logits(hidden_RTD)
        return flat.logits(hidden_RTD)

    def narrow(self, state: State, tokens_U: Tensor) -> State:
        """The state with which steps give logits of these tokens only, in this order."""
        return replace(state, narrowed=Narrowed.of(self.output, tokens_U))

    def widen(self, state: State, width: int) -> State:
        """Where each sentence has one row: `width` of them, which all stand where that one stands."""
        return replace(state, width=width, past=tuple(kv.widened(width) for kv in state.past))

    def select(self, state: State, rows_R: Tensor) -> State:
        """The state with these rows in this order, in whole groups of `width` that each stay with one sentence."""
        sentences = rows_R[:: state.width] // state.width
        memory = state.memory
        if len(sentences) != memory.source[0].k_BHSK.shape[0]:
            allowed = memory.allowed_N11S
            allowed_N11S = None if allowed is None else allowed[sentences]
            memory = Memory(tuple(kv.rows(sentences) for kv in memory.source), allowed_N11S, memory.flat)
        return replace(state, memory=memory, past=tuple(kv.rows(rows_R) for kv in state.past))
