"""Recurrent encoder-decoders (Sutskever et al. 2014), with or without attention.

N sentences, W hypotheses per sentence, R = N*W rows, S source length, T target length, D model width,
H heads (one), E width of the encoder states, I inputs of W_c, V vocabulary
"""

from dataclasses import dataclass, replace
from typing import cast

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
    initial_states: tuple[LayerState, ...]


@dataclass(frozen=True)
class RecurrentState:
    """State of decoding: encoder states, shared by the W adjacent rows of a sentence, and the state of each layer."""

    source: EncoderStates | None
    width: int
    """W, the number of rows per sentence."""
    layers: tuple[LayerState, ...]


@dataclass(frozen=True)
class CrossAttentionWeights:
    """Attention weights over the source, with one head."""

    cross_RHTS: Tensor


@dataclass(frozen=True)
class RecurrentStep:
    """Result of a step: logits of the token after each input token, the new state, and attention if requested."""

    logits_RTV: Tensor
    state: RecurrentState
    attention: list[CrossAttentionWeights] | None


class RecurrentTranslator(nn.Module):
    """Encoder-decoder (Sutskever et al. 2014), optionally with global attention (Luong et al. 2015, section 3.1).

    It has no input feeding (section 3.3), so that training needs one call per decoder layer. The initial state of a
    decoder layer is the final state of an encoder layer, counted from the top; surplus decoder layers take that of the
    lowest encoder layer. After a bidirectional encoder, linear layers (`bridges`) project each state, h and c, to width
    D; Bahdanau et al. (2015) take tanh(W_s h) of the backward state instead.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, has_attention = config.model_dim, config.attention != "none"
        source_tokens = TokenEmbedding(config.vocab_size, width)
        self.target_embedding = source_tokens if config.ties_input else TokenEmbedding(config.vocab_size, width)
        self.encoder = RecurrentEncoder(config, source_tokens)
        num_states = 2 if config.family == "lstm" else 1  # h, and c of an LSTM
        self.bridges = nn.ModuleList(
            nn.ModuleList(projection_to_model_dim(config) for _ in range(num_states))
            for _ in range(config.num_decoder_layers)
        )
        self.decoder = RecurrentStack(config, config.num_decoder_layers, bidirectional=False)
        self.encoder_projection = projection_to_model_dim(config) if has_attention else None
        self.attention = SourceAttention(config) if has_attention else None
        # W_c of h~ = tanh(W_c [c; h]) (Luong et al. 2015, equation 5); without attention, h~ = tanh(W_c h), which is
        # not in the paper.
        self.feed_forward = nn.Linear(2 * width if has_attention else width, width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        tied_weight = self.target_embedding.weight if config.ties_output else None
        self.output = OutputProjection(config.vocab_size, width, tied_weight)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """Return hidden_NTD of all target positions."""
        memory = self.encode(src_NS)
        return self._decode(tgt_NT, RecurrentState(memory.source, 1, memory.initial_states))[0]

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """Return logits_NTV of hidden states."""
        return self.output(hidden_NTD)

    def encode(self, src_NS: Tensor) -> RecurrentMemory:
        """Return the encoded sources, padded at the end."""
        encoded = self.encoder.encode(src_NS)
        source = None
        if self.attention is not None and self.encoder_projection is not None:
            states_NSD = self.encoder_projection(encoded.states_BSE)
            source = self.attention.encoder_states(states_NSD, encoded.is_token_BS)
        return RecurrentMemory(source, self._initial_states(encoded.final_states))

    def _initial_states(self, final_states: tuple[LayerState, ...]) -> tuple[LayerState, ...]:
        """Return the initial state of each decoder layer, from the final states of the encoder layers."""
        offset, initial_states = len(final_states) - len(self.bridges), []
        for number, bridges in enumerate(self.bridges):
            states = final_states[max(0, number + offset)]
            projected = (bridge(each) for bridge, each in zip(cast(nn.ModuleList, bridges), states, strict=True))
            initial_states.append(tuple(projected))
        return tuple(initial_states)

    def start(self, memory: RecurrentMemory, width: int) -> tuple[Tensor, RecurrentState]:
        """Return first_R1, the start token in `width` rows per sentence, and the state before it."""
        layers = tuple(tuple(each.repeat_interleave(width, 0) for each in layer) for layer in memory.initial_states)
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
        """Return the state of these rows, in this order; rows may be repeated or left out.

        The rows of a sentence stay adjacent, and all sentences that are left have the same number of rows.
        """
        sentences = torch.unique_consecutive(rows_R // state.width)
        source = None if state.source is None else state.source.select(sentences)
        layers = tuple(tuple(each.index_select(0, rows_R) for each in layer) for layer in state.layers)
        return RecurrentState(source, len(rows_R) // len(sentences), layers)

    def _decode(self, tokens_RT: Tensor, state: RecurrentState) -> tuple[Tensor, tuple[LayerState, ...], Tensor | None]:
        """Return hidden_RTD, h~ of each token; the state of each layer; and weights_RTS if there is attention."""
        h_RTD, layers = self.decoder(self.dropout(self.target_embedding(tokens_RT)), state.layers)
        input_RTI, weights_RTS = h_RTD, None
        if self.attention is not None and state.source is not None:
            context_RTD, weights_RTS = self.attention(h_RTD, state.source)
            input_RTI = torch.cat((context_RTD, h_RTD), 2)
        hidden_RTD: Tensor = self.dropout(torch.tanh(self.feed_forward(input_RTI)))
        return hidden_RTD, layers, weights_RTS
