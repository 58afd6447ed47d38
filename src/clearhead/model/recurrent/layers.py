"""Recurrent layers over sequences, computed by torch's kernels.

Sources are padded at the end, and the kernels run over the padding: what follows a token cannot change its state. To
read backwards, the tokens of each row are reversed. Packed sequences give the same states.

B batch, S length, I input width, D model width, E width of the states of a stack: D, or 2D in both directions
"""

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.encoder_output import select_last
from clearhead.model.recurrent.cells import CELLS, CellStep, LayerState

_KERNELS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
_SATURATED = 1e4  # input of a sigmoid that makes it exactly 0 or 1


class RecurrentLayer(nn.Module):
    """One layer in one direction; `cells` has its equations."""

    def __init__(self, family: str, input_dim: int, model_dim: int, bias: bool) -> None:
        super().__init__()
        self.family, self.model_dim = family, model_dim
        self.rnn = _KERNELS[family](input_dim, model_dim, bias=bias, batch_first=True)
        _initialize(self.rnn)

    def forward(
        self, x_BSI: Tensor, start: LayerState | None = None, is_token_BS: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """Return h_BSD of all positions, and the state after the last token of each row."""
        start = self.initial_state(x_BSI) if start is None else start
        weights: list[Tensor] = list(self.rnn.all_weights[0])
        if is_token_BS is None:
            return self.run_kernel(x_BSI, start, weights)
        if self.family == "lstm":
            x_BSI, weights = self._keep_cell_at_padding(x_BSI, weights, is_token_BS)
        h_BSD, (_, *cell) = self.run_kernel(x_BSI, start, weights)
        return h_BSD, (select_last(h_BSD, is_token_BS), *cell)

    def initial_state(self, x_BSI: Tensor) -> LayerState:
        """Return the state before the first token: zeros."""
        zeros_BD = x_BSI.new_zeros(x_BSI.shape[0], self.model_dim)
        return (zeros_BD, zeros_BD) if self.family == "lstm" else (zeros_BD,)

    def run_kernel(self, x_BSI: Tensor, start: LayerState, weights: list[Tensor]) -> tuple[Tensor, LayerState]:
        """Return h_BSD and the state after the last position."""
        options = self.rnn.bias, 1, 0.0, torch.is_grad_enabled(), False, True
        h_1BD = start[0][None]
        if self.family == "lstm":
            h_BSD, h_1BD, c_1BD = torch.lstm(x_BSI, (h_1BD, start[1][None]), weights, *options)
            return h_BSD, (h_1BD[0], c_1BD[0])
        h_BSD, h_1BD = (torch.gru if self.family == "gru" else torch.rnn_tanh)(x_BSI, h_1BD, weights, *options)
        return h_BSD, (h_1BD[0],)

    def unroll(self, x_BSI: Tensor, start: LayerState | None = None) -> list[CellStep]:
        """Return the state and the gates after each position, computed by the explicit cell."""
        state, weights = self.initial_state(x_BSI) if start is None else start, self.rnn.all_weights[0]
        steps = []
        for x_BI in x_BSI.unbind(1):
            steps.append(CELLS[self.family](x_BI, state, weights))
            state = steps[-1].state
        return steps

    def _keep_cell_at_padding(
        self, x_BSI: Tensor, weights: list[Tensor], is_token_BS: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return inputs and weights with one more input, 1 at padding, that closes the input gate and opens the forget
        gate: the kernel returns the cell after the last position, which then is that of the last token."""
        is_padding_BS1 = (~is_token_BS)[:, :, None].to(x_BSI.dtype)
        gates_4D1 = x_BSI.new_zeros(4 * self.model_dim, 1)  # input, forget, cell, output
        gates_4D1[: self.model_dim] = -_SATURATED
        gates_4D1[self.model_dim : 2 * self.model_dim] = _SATURATED
        return torch.cat((x_BSI, is_padding_BS1), 2), [torch.cat((weights[0], gates_4D1), 1), *weights[1:]]


@torch.no_grad()
def _initialize(rnn: nn.RNN | nn.GRU | nn.LSTM) -> None:
    """Draw orthogonal matrices for the state and Xavier-uniform ones for the input of each gate.

    Biases are 0, that of an LSTM's forget gate is 1 (Jozefowicz et al. 2015).
    """
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
    """Layers with dropout between them, as torch's own with `num_layers`.

    In both directions, states and last states of the two directions are concatenated in each layer.
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
        self, x_BSD: Tensor, starts: tuple[LayerState, ...] | None = None, is_token_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Return y_BSE of the last layer, and each layer's state after the last token (backwards: the first)."""
        y_BSE, lasts = x_BSD, []
        order_BS = None if self.backward_layers is None else _reversal(x_BSD, is_token_BS)
        for number, layer in enumerate(self.forward_layers):
            x_BSE = self.dropout(y_BSE) if number else y_BSE
            y_BSE, last = layer(x_BSE, None if starts is None else starts[number], is_token_BS)
            if self.backward_layers is not None and order_BS is not None:
                back_BSD, back_last = self.backward_layers[number](_rearrange(x_BSE, order_BS), None, is_token_BS)
                y_BSE = torch.cat((y_BSE, _rearrange(back_BSD, order_BS)), 2)
                last = tuple(torch.cat(pair, 1) for pair in zip(last, back_last, strict=True))
            lasts.append(last)
        return y_BSE, tuple(lasts)


def _reversal(x_BSD: Tensor, is_token_BS: Tensor | None) -> Tensor:
    """Return order_BS: the positions of the tokens of each row in reverse, padding where it is."""
    batch, length = x_BSD.shape[:2]
    position_S = torch.arange(length, device=x_BSD.device)
    lengths_B1 = length if is_token_BS is None else is_token_BS.sum(1, keepdim=True)
    return torch.where(position_S < lengths_B1, lengths_B1 - 1 - position_S, position_S).expand(batch, length)


def _rearrange(x_BSD: Tensor, order_BS: Tensor) -> Tensor:
    return x_BSD.gather(1, order_BS[:, :, None].expand_as(x_BSD))
