"""Recurrent networks (S1, S2, S3): one state a token, made of the token and the state before it, by torch's kernels.

Sources are padded behind, and kernels run over the padding: what stands behind a token cannot touch it. To read
backwards the real tokens of each row are put in reverse order. Packed sequences would give the same.

N sentences, W hypotheses of each, R = N*W rows, B batch, S source length, T target length, D model width, I width of a
layer's input, E width of what an encoder gives (D, or 2D in both directions), V vocabulary
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.reading import Read, pool
from clearhead.model.recurrent_attention import Source, SourceAttention

LayerState = tuple[Tensor, ...]
"""h_BD of one layer, and for an LSTM c_BD, its cell."""

_KERNELS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}

# Far enough for the sigmoid to be exactly 0 or 1, whatever the rest of a gate's input says.
_SHUT = 1e4

# One step of fewer rows is faster by torch's function for a single cell than by its kernel for whole sequences.
_FEW_ROWS = 32


class RecurrentLayer(nn.Module):
    """One layer in one direction: rnn is h' = tanh(A x + B h + b); gru and lstm have gates."""

    def __init__(self, family: str, input_dim: int, model_dim: int, bias: bool) -> None:
        super().__init__()
        self.model_dim = model_dim
        self.kernel = _KERNELS[family](input_dim, model_dim, bias=bias, batch_first=True)
        _initialise(self.kernel)

    def forward(
        self, x_BSI: Tensor, start: LayerState | None = None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """h_BSD of all places, and the state after the last real token of each row."""
        if start is None:
            zeros_BD = x_BSI.new_zeros(len(x_BSI), self.model_dim)
            start = (zeros_BD, zeros_BD) if isinstance(self.kernel, nn.LSTM) else (zeros_BD,)
        weights: list[Tensor] = list(self.kernel.all_weights[0])
        if real_BS is None:
            return self._run(x_BSI, start, weights)
        if isinstance(self.kernel, nn.LSTM):
            x_BSI, weights = self._hold(x_BSI, weights, real_BS)
        h_BSD, (_, *cell) = self._run(x_BSI, start, weights)
        h_BD = h_BSD[torch.arange(len(h_BSD), device=h_BSD.device), real_BS.sum(1) - 1]
        return h_BSD, (h_BD, *cell)

    def _run(self, x_BSI: Tensor, start: LayerState, weights: list[Tensor]) -> tuple[Tensor, LayerState]:
        """h_BSD, and the state at the end of the rows."""
        has_bias, needs_grad = self.kernel.bias, torch.is_grad_enabled()
        h_1BD = start[0][None]
        if isinstance(self.kernel, nn.LSTM):
            if x_BSI.shape[1] == 1 and len(x_BSI) < _FEW_ROWS:
                h_BD, c_BD = torch.lstm_cell(x_BSI[:, 0], start, *weights)
                return h_BD[:, None], (h_BD, c_BD)
            both = (h_1BD, start[1][None])
            h_BSD, h_1BD, c_1BD = torch.lstm(x_BSI, both, weights, has_bias, 1, 0.0, needs_grad, False, True)
            return h_BSD, (h_1BD[0], c_1BD[0])
        run = torch.gru if isinstance(self.kernel, nn.GRU) else torch.rnn_tanh
        h_BSD, h_1BD = run(x_BSI, h_1BD, weights, has_bias, 1, 0.0, needs_grad, False, True)
        return h_BSD, (h_1BD[0],)

    def _hold(self, x_BSI: Tensor, weights: list[Tensor], real_BS: Tensor) -> tuple[Tensor, list[Tensor]]:
        """One more input that is 1 at padding, shuts the input gate and opens the forget gate.

        The kernel gives the cell only at the end of the padded rows. So padding leaves it exactly as it is.
        """
        padding_BS1 = (~real_BS)[:, :, None].to(x_BSI.dtype)
        gates_4D1 = x_BSI.new_zeros(4 * self.model_dim, 1)  # input, forget, cell, output
        gates_4D1[: self.model_dim] = -_SHUT
        gates_4D1[self.model_dim : 2 * self.model_dim] = _SHUT
        return torch.cat((x_BSI, padding_BS1), 2), [torch.cat((weights[0], gates_4D1), 1), *weights[1:]]


@torch.no_grad()
def _initialise(kernel: nn.RNN | nn.GRU | nn.LSTM) -> None:
    """Each gate orthogonal in the state and Xavier-uniform in the input; no bias, but 1 for an LSTM's forget gate."""
    input_weight, state_weight, *biases = kernel.all_weights[0]
    num_gates = len(input_weight) // kernel.hidden_size
    for part in input_weight.chunk(num_gates):
        nn.init.xavier_uniform_(part)
    for part in state_weight.chunk(num_gates):
        nn.init.orthogonal_(part)
    for bias in biases:
        nn.init.zeros_(bias)
    if biases and isinstance(kernel, nn.LSTM):
        nn.init.ones_(biases[0][kernel.hidden_size : 2 * kernel.hidden_size])


class RecurrentStack(nn.Module):
    """Layers on each other with dropout between them, as in torch's own with `num_layers`.

    In both directions a layer gives the two directions' states side by side, and so does its last state.
    """

    def __init__(self, config: ModelConfig, num_layers: int, bidirectional: bool) -> None:
        super().__init__()
        width = config.model_dim * (2 if bidirectional else 1)
        inputs = [config.model_dim, *[width] * (num_layers - 1)]

        def layers() -> nn.ModuleList:
            return nn.ModuleList(RecurrentLayer(config.family, each, config.model_dim, config.bias) for each in inputs)

        self.onward = layers()
        self.reverse = layers() if bidirectional else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x_BSD: Tensor, starts: tuple[LayerState, ...] | None = None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """y_BSE of the last layer, and each layer's state after the last real token (backwards: after the first)."""
        y_BSE, lasts = x_BSD, []
        order_P = None if self.reverse is None else _reversal(x_BSD, real_BS)
        for number, layer in enumerate(self.onward):
            x_BSE = self.dropout(y_BSE) if number else y_BSE
            y_BSE, last = layer(x_BSE, None if starts is None else starts[number], real_BS)
            if self.reverse is not None:
                back_BSD, back_last = self.reverse[number](_rearrange(x_BSE, order_P), None, real_BS)
                y_BSE = torch.cat((y_BSE, _rearrange(back_BSD, order_P)), 2)
                last = tuple(torch.cat(pair, 1) for pair in zip(last, back_last, strict=True))
            lasts.append(last)
        return y_BSE, tuple(lasts)


def _reversal(x_BSD: Tensor, real_BS: Tensor | None) -> Tensor:
    """order_P over all P = B*S places: the real tokens of each row in reverse, padding where it is."""
    batch, length = x_BSD.shape[:2]
    place_S = torch.arange(length, device=x_BSD.device)
    lengths_B1 = length if real_BS is None else real_BS.sum(1, keepdim=True)
    order_BS = torch.where(place_S < lengths_B1, lengths_B1 - 1 - place_S, place_S).expand(batch, length)
    return (order_BS + torch.arange(batch, device=x_BSD.device)[:, None] * length).flatten()


class _Rearrange(Function):
    """Places in another order that is its own inverse: so the gradient is rearranged, where torch would add it up."""

    @staticmethod
    def forward(ctx: Any, x_BSD: Tensor, order_P: Tensor) -> Tensor:
        ctx.save_for_backward(order_P)
        return x_BSD.flatten(0, 1).index_select(0, order_P).view(x_BSD.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order_P,) = ctx.saved_tensors
        return grads[0].flatten(0, 1).index_select(0, order_P).view(grads[0].shape), None


def _rearrange(x_BSD: Tensor, order_P: Tensor | None) -> Tensor:
    rearranged_BSD: Tensor = _Rearrange.apply(x_BSD, order_P)  # type: ignore[no-untyped-call]
    return rearranged_BSD


@dataclass(frozen=True)
class Encoded:
    """What an encoder made of its sources."""

    states_BSE: Tensor
    lasts: tuple[LayerState, ...]  # of each layer, of width E
    real_BS: Tensor | None  # None: there is no padding


class RecurrentEncoder(nn.Module):
    """Embeddings and a stack over them, in one direction or both."""

    def __init__(self, config: ModelConfig, tokens: TokenEmbedding) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.tokens = tokens
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(config, config.num_encoder_layers, config.bidirectional)

    def forward(self, src_BS: Tensor) -> Encoded:
        """States of sources that are padded behind."""
        is_real_BS = src_BS != self.pad_id
        real_BS = None if bool(is_real_BS.all()) else is_real_BS
        states_BSE, lasts = self.stack(self.dropout(self.tokens(src_BS)), real_BS=real_BS)
        return Encoded(states_BSE, lasts, real_BS)


def _merge(config: ModelConfig) -> nn.Module:
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
        self.merge = _merge(config)

    def forward(self, inputs_BS: Tensor, want_attention: bool = False) -> Read:
        """One state a place and one for the whole: `last` is where each direction ended. There is no attention."""
        encoded: Encoded = self.encoder(inputs_BS)
        states_BSD = self.merge(encoded.states_BSE)
        if self.config.pooling == "last":
            return Read(states_BSD, self.merge(encoded.lasts[-1][0]))
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
        shared = config.embeddings in ("shared", "input")
        self.target_tokens = source_tokens if shared else TokenEmbedding(config.vocab_size, width)
        self.encoder = RecurrentEncoder(config, source_tokens)
        kinds = 2 if config.family == "lstm" else 1
        self.bridges = nn.ModuleList(
            nn.ModuleList(_merge(config) for _ in range(kinds)) for _ in range(config.num_decoder_layers)
        )
        self.decoder = RecurrentStack(config, config.num_decoder_layers, bidirectional=False)
        self.merge = _merge(config) if has_attention else None
        self.attention = SourceAttention(config) if has_attention else None
        self.feed_forward = nn.Linear(2 * width if has_attention else width, width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        separate = config.embeddings in ("input", "separate")
        self.output = TokenEmbedding(config.vocab_size, width) if separate else self.target_tokens

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """hidden_NTD for all target positions at once, each made of targets up to itself (teacher forcing)."""
        memory = self.encode(src_NS)
        return self._decode(tgt_NT, State(memory.source, 1, memory.starts))[0]

    def logits(self, hidden_NTD: Tensor) -> Tensor:
        """logits_NTV: the output projection, with the embedding's own table where they are tied."""
        return F.linear(hidden_NTD, self.output.weight)

    def encode(self, src_NS: Tensor) -> Memory:
        """The sources, read once."""
        encoded: Encoded = self.encoder(src_NS)
        starts, above = [], len(encoded.lasts) - len(self.bridges)
        for number, bridges in enumerate(self.bridges):
            last = encoded.lasts[max(0, number + above)]
            starts.append(tuple(bridge(each) for bridge, each in zip(bridges, last, strict=True)))  # type: ignore[call-overload]
        if self.attention is None or self.merge is None:
            return Memory(None, tuple(starts))
        return Memory(self.attention.source(self.merge(encoded.states_BSE), encoded.real_BS), tuple(starts))

    def start(self, memory: Memory, width: int) -> tuple[Tensor, State]:
        """first_R1, the start token in each of `width` rows a sentence, and the state before it."""
        layers = tuple(tuple(each.repeat_interleave(width, 0) for each in layer) for layer in memory.starts)
        h_RD = layers[0][0]
        first_R1 = torch.full((len(h_RD), 1), self.config.start_id, device=h_RD.device)
        return first_R1, State(memory.source, width, layers)

    def step(self, tokens_RT: Tensor, state: State, want_attention: bool = False) -> Step:
        """Logits after each of the tokens, which follow what the state has seen; without attention an empty list."""
        hidden_RTD, layers, weights_RTS = self._decode(tokens_RT, state)
        attention = [] if weights_RTS is None else [SourceWeights(weights_RTS[:, None])]
        new_state = replace(state, layers=layers)
        return Step(self.logits(hidden_RTD), new_state, attention if want_attention else None)

    def _decode(self, tokens_RT: Tensor, state: State) -> tuple[Tensor, tuple[LayerState, ...], Tensor | None]:
        """hidden_RTD, the state of each layer, and weights_RTS where there is attention."""
        x_RTD = self.dropout(self.target_tokens(tokens_RT))
        h_RTD, layers = self.decoder(x_RTD, state.layers)
        weights_RTS = None
        if self.attention is not None and state.source is not None:
            context_RTD, weights_RTS = self.attention(h_RTD, state.source)
            h_RTD = torch.cat((context_RTD, h_RTD), 2)
        hidden_RTD: Tensor = self.dropout(torch.tanh(self.feed_forward(h_RTD)))
        return hidden_RTD, layers, weights_RTS

    def select(self, state: State, rows_R: Tensor) -> State:
        """The state with these rows in this order, in whole groups of `width` that each stay with one sentence."""
        layers = tuple(tuple(each.index_select(0, rows_R) for each in layer) for layer in state.layers)
        source, sentences = state.source, rows_R[:: state.width] // state.width
        if source is not None and not torch.equal(sentences, torch.arange(len(source.keys_NSD), device=rows_R.device)):
            source = source.pick(sentences)
        return State(source, state.width, layers)
