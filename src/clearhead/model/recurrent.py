"""Recurrent networks (S1, S2, S3): encoders, bodies that read, and translators, made of layers with a state a token.

N sentences, W hypotheses of each, R = N*W rows, B batch, S source length, T target length, D model width, E width of
what an encoder gives (D, or 2D in both directions), V vocabulary
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import Narrowed, OutputProjection, TokenEmbedding
from clearhead.model.masks import padding_mask
from clearhead.model.reading import Read, pool
from clearhead.model.recurrent_attention import Source, SourceAttention
from clearhead.model.recurrent_layers import LayerState, RecurrentStack


@dataclass(frozen=True)
class Encoded:
    """What an encoder made of its sources."""

    states_BSE: Tensor
    lasts: tuple[LayerState, ...]  # of each layer, of width E
    real_BS: Tensor | None  # None: there is no padding


class RecurrentEncoder(RecurrentStack):
    """Embedding and recurrent layers, in one direction or both."""

    def __init__(self, config: ModelConfig, embedding: TokenEmbedding) -> None:
        super().__init__(config, config.num_encoder_layers, config.bidirectional)
        self.pad_id = config.pad_id
        self.embedding = embedding

    def encode(self, src_BS: Tensor) -> Encoded:
        """Return the states of sources, whose padding is at the end."""
        allowed_B11S = padding_mask(src_BS, self.pad_id)
        real_BS = None if allowed_B11S is None else allowed_B11S[:, 0, 0]
        states_BSE, lasts = self(self.dropout(self.embedding(src_BS)), real_BS=real_BS)
        return Encoded(states_BSE, lasts, real_BS)


def _encoder_projection(config: ModelConfig) -> nn.Module:
    """From the width of what an encoder gives to D: a linear layer, where it reads in both directions."""
    width = config.model_dim
    return nn.Linear(2 * width, width, bias=config.bias) if config.bidirectional else nn.Identity()


class RecurrentReader(nn.Module):
    """A body that reads, for heads that give a label or tags; in both directions the two states are projected to D."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.model_dim
        self.encoder = RecurrentEncoder(config, TokenEmbedding(config.vocab_size, config.model_dim))
        self.encoder_projection = _encoder_projection(config)

    def forward(self, inputs_BS: Tensor, want_attention: bool = False) -> Read:
        """One state a place and one for the whole: `last` is where each direction ended. There is no attention."""
        encoded = self.encoder.encode(inputs_BS)
        states_BSD = self.encoder_projection(encoded.states_BSE)
        if self.config.pooling == "last":
            return Read(states_BSD, self.encoder_projection(encoded.lasts[-1][0]))
        return Read(states_BSD, pool(states_BSD, encoded.real_BS, self.config.pooling))


@dataclass(frozen=True)
class Memory:
    """Encoded sources: what there is to look up, if anything, and what each decoder layer starts from."""

    source: Source | None
    starts: tuple[LayerState, ...]


@dataclass(frozen=True)
class State:
    """Where decoding stands: the sources, and the rows' state in each layer."""

    source: Source | None
    width: int
    layers: tuple[LayerState, ...]
    narrowed: Narrowed | None = None  # the tokens that logits are wanted of; None: all


@dataclass(frozen=True)
class SourceWeights:
    """Attention weights over the source, for those who look inside; H = 1, the similarity has but one head."""

    cross_RHTS: Tensor


@dataclass(frozen=True)
class Step:
    """What one step gives: logits for the next token after each given one, the new state, attention if asked for."""

    logits_RTV: Tensor
    state: State
    attention: list[SourceWeights] | None


class RecurrentTranslator(nn.Module):
    """Encoder and decoder, with attention between them or without.

    Each decoder layer starts from the last state of an encoder layer: the highest from the highest, and so on down;
    where the decoder has more layers, those left over start from the lowest. From an encoder that reads in both
    directions a state comes over a linear bridge, one for each decoder layer and kind of state (h and c).

    The source is looked up with the decoder's last state, after it is made: nothing of it is fed back, so that in
    training the decoder is one call of the kernel a layer.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, has_attention = config.model_dim, config.attention != "none"
        source_tokens = TokenEmbedding(config.vocab_size, width)
        shared = config.tied_embeddings in ("all", "input")
        self.target_embedding = source_tokens if shared else TokenEmbedding(config.vocab_size, width)
        self.encoder = RecurrentEncoder(config, source_tokens)
        kinds = 2 if config.family == "lstm" else 1
        self.bridges = nn.ModuleList(
            nn.ModuleList(_encoder_projection(config) for _ in range(kinds)) for _ in range(config.num_decoder_layers)
        )
        self.decoder = RecurrentStack(config, config.num_decoder_layers, bidirectional=False)
        self.encoder_projection = _encoder_projection(config) if has_attention else None
        self.attention = SourceAttention(config) if has_attention else None
        self.feed_forward = nn.Linear(2 * width if has_attention else width, width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        separate = config.tied_embeddings in ("input", "none")
        self.output = OutputProjection(config.vocab_size, width, None if separate else self.target_embedding.weight)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """hidden_NTD for all target positions at once, each made of targets up to itself (teacher forcing)."""
        memory = self.encode(src_NS)
        return self._decode(tgt_NT, State(memory.source, 1, memory.starts))[0]

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """logits_NTV: the output projection."""
        logits_NTV: Tensor = self.output(hidden_NTD)
        return logits_NTV

    def encode(self, src_NS: Tensor) -> Memory:
        """The sources, read once."""
        encoded = self.encoder.encode(src_NS)
        starts, above = [], len(encoded.lasts) - len(self.bridges)
        for number, bridges in enumerate(self.bridges):
            last = encoded.lasts[max(0, number + above)]
            starts.append(tuple(bridge(each) for bridge, each in zip(bridges, last, strict=True)))  # type: ignore[call-overload]
        if self.attention is None or self.encoder_projection is None:
            return Memory(None, tuple(starts))
        return Memory(
            self.attention.source(self.encoder_projection(encoded.states_BSE), encoded.real_BS), tuple(starts)
        )

    def start(self, memory: Memory, width: int) -> tuple[Tensor, State]:
        """first_R1, the start token in each of `width` rows a sentence, and the state before it."""
        layers = _widened(memory.starts, width)
        h_RD = layers[0][0]
        first_R1 = torch.full((len(h_RD), 1), self.config.decoder_start_id, device=h_RD.device)
        return first_R1, State(memory.source, width, layers)

    def step(self, tokens_RT: Tensor, state: State, want_attention: bool = False) -> Step:
        """Logits after each of the tokens, which follow what the state has seen; without attention an empty list."""
        hidden_RTD, layers, weights_RTS = self._decode(tokens_RT, state)
        attention = [] if weights_RTS is None else [SourceWeights(weights_RTS[:, None])]
        new_state = replace(state, layers=layers)
        logits_RTV = self.logits(hidden_RTD) if state.narrowed is None else F.linear(hidden_RTD, *state.narrowed)
        return Step(logits_RTV, new_state, attention if want_attention else None)

    def narrow(self, state: State, tokens_U: Tensor) -> State:
        """The state with which steps give logits of these tokens only, in this order."""
        return replace(state, narrowed=Narrowed.of(self.output, tokens_U))

    def _decode(self, tokens_RT: Tensor, state: State) -> tuple[Tensor, tuple[LayerState, ...], Tensor | None]:
        """hidden_RTD, the state of each layer, and weights_RTS where there is attention."""
        x_RTD = self.dropout(self.target_embedding(tokens_RT))
        h_RTD, layers = self.decoder(x_RTD, state.layers)
        weights_RTS = None
        if self.attention is not None and state.source is not None:
            context_RTD, weights_RTS = self.attention(h_RTD, state.source)
            h_RTD = torch.cat((context_RTD, h_RTD), 2)
        hidden_RTD: Tensor = self.dropout(torch.tanh(self.feed_forward(h_RTD)))
        return hidden_RTD, layers, weights_RTS

    def widen(self, state: State, width: int) -> State:
        """Where each sentence has one row: `width` of them, which all stand where that one stands."""
        return replace(state, width=width, layers=_widened(state.layers, width))

    def select(self, state: State, rows_R: Tensor) -> State:
        """The state with these rows in this order, in whole groups of `width` that each stay with one sentence."""
        layers = tuple(tuple(each.index_select(0, rows_R) for each in layer) for layer in state.layers)
        source, sentences = state.source, rows_R[:: state.width] // state.width
        if source is not None and not torch.equal(sentences, torch.arange(len(source.keys_NSD), device=rows_R.device)):
            source = source.pick(sentences)
        return replace(state, source=source, layers=layers)


def _widened(layers: tuple[LayerState, ...], width: int) -> tuple[LayerState, ...]:
    """Each row so many times."""
    return tuple(tuple(each.repeat_interleave(width, 0) for each in layer) for layer in layers)
