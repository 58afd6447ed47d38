"""Recurrent layers: one state a token, made of the token and the state before it, by torch's kernels.

Sources are padded behind, and kernels run over the padding: what stands behind a token cannot touch it. To read
backwards the real tokens of each row are put in reverse order. Packed sequences would give the same.

B batch, S length, D model width, I width of a layer's input, E width of what a stack gives (D, or 2D in both
directions), P = B*S places
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.reading import select_last

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
        self.rnn = _KERNELS[family](input_dim, model_dim, bias=bias, batch_first=True)
        _initialise(self.rnn)

    def forward(
        self, x_BSI: Tensor, start: LayerState | None = None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """h_BSD of all places, and the state after the last real token of each row."""
        if start is None:
            zeros_BD = x_BSI.new_zeros(x_BSI.shape[0], self.model_dim)
            start = (zeros_BD, zeros_BD) if isinstance(self.rnn, nn.LSTM) else (zeros_BD,)
        weights: list[Tensor] = list(self.rnn.all_weights[0])
        if real_BS is None:
            return self._run(x_BSI, start, weights)
        if isinstance(self.rnn, nn.LSTM):
            x_BSI, weights = self._hold(x_BSI, weights, real_BS)
        h_BSD, (_, *cell) = self._run(x_BSI, start, weights)
        return h_BSD, (select_last(h_BSD, real_BS), *cell)

    def _run(self, x_BSI: Tensor, start: LayerState, weights: list[Tensor]) -> tuple[Tensor, LayerState]:
        """h_BSD, and the state at the end of the rows."""
        has_bias, needs_grad = self.rnn.bias, torch.is_grad_enabled()
        h_1BD = start[0][None]
        if isinstance(self.rnn, nn.LSTM):
            if not torch.compiler.is_exporting() and x_BSI.shape[1] == 1 and len(x_BSI) < _FEW_ROWS:
                h_BD, c_BD = torch.lstm_cell(x_BSI[:, 0], start, *weights)
                return h_BD[:, None], (h_BD, c_BD)
            both = (h_1BD, start[1][None])
            h_BSD, h_1BD, c_1BD = torch.lstm(x_BSI, both, weights, has_bias, 1, 0.0, needs_grad, False, True)
            return h_BSD, (h_1BD[0], c_1BD[0])
        run = torch.gru if isinstance(self.rnn, nn.GRU) else torch.rnn_tanh
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
def _initialise(rnn: nn.RNN | nn.GRU | nn.LSTM) -> None:
    """Each gate orthogonal in the state and Xavier-uniform in the input; no bias, but 1 for an LSTM's forget gate."""
    input_weight, state_weight, *biases = rnn.all_weights[0]
    num_gates = len(input_weight) // rnn.hidden_size
    for part in input_weight.chunk(num_gates):
        nn.init.xavier_uniform_(part)
    for part in state_weight.chunk(num_gates):
        nn.init.orthogonal_(part)
    for bias in biases:
        nn.init.zeros_(bias)
    if biases and isinstance(rnn, nn.LSTM):
        nn.init.ones_(biases[0][rnn.hidden_size : 2 * rnn.hidden_size])


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

        self.forward_layers = layers()
        self.backward_layers = layers() if bidirectional else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x_BSD: Tensor, starts: tuple[LayerState, ...] | None = None, real_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """y_BSE of the last layer, and each layer's state after the last real token (backwards: after the first)."""
        y_BSE, lasts = x_BSD, []
        order_P = None if self.backward_layers is None else _reversal(x_BSD, real_BS)
        for number, layer in enumerate(self.forward_layers):
            x_BSE = self.dropout(y_BSE) if number else y_BSE
            y_BSE, last = layer(x_BSE, None if starts is None else starts[number], real_BS)
            if self.backward_layers is not None:
                back_BSD, back_last = self.backward_layers[number](_rearrange(x_BSE, order_P), None, real_BS)
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
