"""Recurrent encoder-decoders (S1, S2), with attention (S3) or without.

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, D model width, V vocabulary
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import OutputProjection, TokenEmbedding
from clearhead.model.recurrent.attention import EncoderStates, SourceAttention
from clearhead.model.recurrent.cells import LayerState
from clearhead.model.recurrent.encoder import RecurrentEncoder, projection_to_model_dim
from clearhead.model.recurrent.layers import RecurrentStack


@dataclass(frozen=True)
class RecurrentMemory:
    """Encoded sources: states to attend to (None without attention), and the initial state of each decoder layer."""

    source: EncoderStates | None
    starts: tuple[LayerState, ...]


@dataclass(frozen=True)
class RecurrentState:
    """State of decoding: encoder states, shared by the W adjacent rows of a sentence, and the state of each layer."""

    source: EncoderStates | None
    width: int
    layers: tuple[LayerState, ...]


@dataclass(frozen=True)
class CrossAttentionWeights:
    """Attention weights over the source, with one head."""

    cross_RHTS: Tensor


@dataclass(frozen=True)
class RecurrentStep:
    """Result of a step: logits for the token after each given one, the new state, and attention if it is wanted."""

    logits_RTV: Tensor
    state: RecurrentState
    attention: list[CrossAttentionWeights] | None


class RecurrentTranslator(nn.Module):
    """Encoder and decoder (Sutskever et al. 2014), with attention between them or without.

    Each decoder layer starts from the last state of an encoder layer: the highest from the highest, and so on; further
    decoder layers start from the lowest. With an encoder in both directions, a linear layer (bridge) for each decoder
    layer and kind of state (h and c) projects it.

    Attention is that of Luong et al. (2015): its query is the new decoder state, and its result is not an input of the
    next step, so that in training the decoder is one kernel call per layer.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, has_attention = config.model_dim, config.attention != "none"
        source_tokens = TokenEmbedding(config.vocab_size, width)
        is_shared = config.tied_embeddings in ("all", "input")
        self.target_embedding = source_tokens if is_shared else TokenEmbedding(config.vocab_size, width)
        self.encoder = RecurrentEncoder(config, source_tokens)
        kinds = 2 if config.family == "lstm" else 1
        self.bridges = nn.ModuleList(
            nn.ModuleList(projection_to_model_dim(config) for _ in range(kinds))
            for _ in range(config.num_decoder_layers)
        )
        self.decoder = RecurrentStack(config, config.num_decoder_layers, bidirectional=False)
        self.encoder_projection = projection_to_model_dim(config) if has_attention else None
        self.attention = SourceAttention(config) if has_attention else None
        self.feed_forward = nn.Linear(2 * width if has_attention else width, width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        tied = self.target_embedding.weight if config.tied_embeddings in ("all", "target") else None
        self.output = OutputProjection(config.vocab_size, width, tied)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """Return hidden_NTD of all target positions."""
        memory = self.encode(src_NS)
        return self._decode(tgt_NT, RecurrentState(memory.source, 1, memory.starts))[0]

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """Return logits_NTV of hidden states."""
        logits_NTV: Tensor = self.output(hidden_NTD)
        return logits_NTV

    def encode(self, src_NS: Tensor) -> RecurrentMemory:
        """Return the encoded sources, padded at the end."""
        encoded = self.encoder.encode(src_NS)
        starts, offset = [], len(encoded.lasts) - len(self.bridges)
        for number, bridges in enumerate(self.bridges):
            last = encoded.lasts[max(0, number + offset)]
            starts.append(tuple(bridge(each) for bridge, each in zip(bridges, last, strict=True)))  # type: ignore[call-overload]
        source = None
        if self.attention is not None and self.encoder_projection is not None:
            states_NSD = self.encoder_projection(encoded.states_BSE)
            source = self.attention.encoder_states(states_NSD, encoded.is_token_BS)
        return RecurrentMemory(source, tuple(starts))

    def start(self, memory: RecurrentMemory, width: int) -> tuple[Tensor, RecurrentState]:
        """Return first_R1, the start token in `width` rows per sentence, and the state before it."""
        layers = tuple(tuple(each.repeat_interleave(width, 0) for each in layer) for layer in memory.starts)
        h_RD = layers[0][0]
        first_R1 = torch.full((len(h_RD), 1), self.config.decoder_start_id, device=h_RD.device)
        return first_R1, RecurrentState(memory.source, width, layers)

    def step(self, tokens_RT: Tensor, state: RecurrentState, want_attention: bool = False) -> RecurrentStep:
        """Return logits after each of the tokens; attention is an empty list if there is none."""
        hidden_RTD, layers, weights_RTS = self._decode(tokens_RT, state)
        attention = [] if weights_RTS is None else [CrossAttentionWeights(weights_RTS[:, None])]
        new_state = replace(state, layers=layers)
        return RecurrentStep(self.logits(hidden_RTD), new_state, attention if want_attention else None)

    def reorder(self, state: RecurrentState, rows_R: Tensor) -> RecurrentState:
        """Return the state with these rows, of which any may be repeated: the same number for each sentence that is
        left, the rows of a sentence adjacent."""
        sentences = torch.unique_consecutive(rows_R // state.width)
        source = None if state.source is None else state.source.select(sentences)
        layers = tuple(tuple(each.index_select(0, rows_R) for each in layer) for layer in state.layers)
        return RecurrentState(source, len(rows_R) // len(sentences), layers)

    def _decode(self, tokens_RT: Tensor, state: RecurrentState) -> tuple[Tensor, tuple[LayerState, ...], Tensor | None]:
        """Return hidden_RTD, the state of each layer, and weights_RTS if there is attention."""
        h_RTD, layers = self.decoder(self.dropout(self.target_embedding(tokens_RT)), state.layers)
        weights_RTS = None
        if self.attention is not None and state.source is not None:
            context_RTD, weights_RTS = self.attention(h_RTD, state.source)
            h_RTD = torch.cat((context_RTD, h_RTD), 2)
        hidden_RTD: Tensor = self.dropout(torch.tanh(self.feed_forward(h_RTD)))
        return hidden_RTD, layers, weights_RTS
