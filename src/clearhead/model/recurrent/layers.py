"""Recurrent layers over sequences, computed by torch's fused kernels.

Sources are padded at the end, and the kernels run over the padding, which cannot change earlier states; backward layers
read each row with its tokens reversed. The results are those of packed sequences.

B batch, S length, I input width, D model width, E width of the states of a stack: D, or 2 * D if bidirectional
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.encoder_output import select_last
from clearhead.model.recurrent.cells import CELLS, CellStep, LayerState

_TORCH_LAYERS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class RecurrentLayer(nn.Module):
    """One layer in one direction; `cells` has its equations."""

    def __init__(self, family: str, input_dim: int, model_dim: int, bias: bool) -> None:
        super().__init__()
        self.family, self.model_dim = family, model_dim
        self.rnn = _TORCH_LAYERS[family](input_dim, model_dim, bias=bias, batch_first=True)
        _initialize(self.rnn)

    def forward(
        self, x_BSI: Tensor, initial: LayerState | None = None, is_token_BS: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """Return h_BSD of all positions, and the state after the last token of each row."""
        if initial is None:
            initial = self.initial_state(x_BSI)
        weights: list[Tensor] = list(self.rnn.all_weights[0])
        if is_token_BS is None:
            return self.run_kernel(x_BSI, initial, weights)
        if self.family == "lstm":
            x_BSI, weights = kernels.keep_cell_at_padding(x_BSI, weights, is_token_BS)
        h_BSD, (_, *cell) = self.run_kernel(x_BSI, initial, weights)
        return h_BSD, (select_last(h_BSD, is_token_BS), *cell)

    def initial_state(self, x_BSI: Tensor) -> LayerState:
        """Return the state before the first token: zeros."""
        zeros_BD = x_BSI.new_zeros(x_BSI.shape[0], self.model_dim)
        return (zeros_BD, zeros_BD) if self.family == "lstm" else (zeros_BD,)

    def run_kernel(self, x_BSI: Tensor, initial: LayerState, weights: list[Tensor]) -> tuple[Tensor, LayerState]:
        """Return h_BSD and the state after the last position."""
        options: dict[str, Any] = {
            "has_biases": self.rnn.bias,
            "num_layers": 1,
            "dropout": 0.0,
            "train": torch.is_grad_enabled(),  # cuDNN computes gradients only after a forward pass with train=True
            "bidirectional": False,
            "batch_first": True,
        }
        h_1BD = initial[0][None]
        if self.family == "lstm":
            h_BSD, h_1BD, c_1BD = torch.lstm(x_BSI, (h_1BD, initial[1][None]), weights, **options)
            return h_BSD, (h_1BD[0], c_1BD[0])
        kernel = torch.gru if self.family == "gru" else torch.rnn_tanh
        h_BSD, h_1BD = kernel(x_BSI, h_1BD, weights, **options)
        return h_BSD, (h_1BD[0],)

    def unroll(self, x_BSI: Tensor, initial: LayerState | None = None) -> list[CellStep]:
        """Return the state and the gates after each position, computed by `cells` step by step, for inspection."""
        state = self.initial_state(x_BSI) if initial is None else initial
        weights = self.rnn.all_weights[0]
        steps = []
        for x_BI in x_BSI.unbind(1):
            steps.append(CELLS[self.family](x_BI, state, weights))
            state = steps[-1].state
        return steps


@torch.no_grad()
def _initialize(rnn: nn.RNN | nn.GRU | nn.LSTM) -> None:
    """Draw orthogonal matrices (Saxe et al. 2014) for the state and Xavier-uniform ones for the input of each gate.

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

    If bidirectional, states and final states of both directions are concatenated in each layer.
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
        self, x_BSD: Tensor, initial: tuple[LayerState, ...] | None = None, is_token_BS: Tensor | None = None
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Return y_BSE of the last layer, and final states; a layer that reads backwards ends at the first token."""
        y_BSE, final_states = x_BSD, []
        for number, layer in enumerate(self.forward_layers):
            x_BSI = self.dropout(y_BSE) if number else y_BSE
            y_BSE, final = layer(x_BSI, None if initial is None else initial[number], is_token_BS)
            if self.backward_layers is not None:
                back_BSD, back_final = self._read_backwards(self.backward_layers[number], x_BSI, is_token_BS)
                y_BSE = torch.cat((y_BSE, back_BSD), 2)
                final = tuple(torch.cat(pair, 1) for pair in zip(final, back_final, strict=True))
            final_states.append(final)
        return y_BSE, tuple(final_states)

    def _read_backwards(self, layer: nn.Module, x_BSI: Tensor, is_token_BS: Tensor | None) -> tuple[Tensor, LayerState]:
        """Return the states of a layer that reads backwards, in the order of the input, and its final state."""
        order_BS = _reversal(x_BSI, is_token_BS)
        h_BSD, final = layer(_rearrange(x_BSI, order_BS), None, is_token_BS)
        return _rearrange(h_BSD, order_BS), final


def _reversal(x_BSI: Tensor, is_token_BS: Tensor | None) -> Tensor:
    """Return order_BS, positions that reverse the tokens of each row and leave its padding in place."""
    batch, length = x_BSI.shape[:2]
    position_S = torch.arange(length, device=x_BSI.device)
    if is_token_BS is None:
        return (length - 1 - position_S).expand(batch, length)
    lengths_B1 = is_token_BS.sum(1, keepdim=True)
    return torch.where(position_S < lengths_B1, lengths_B1 - 1 - position_S, position_S)


def _rearrange(x_BSI: Tensor, order_BS: Tensor) -> Tensor:
    """Return x with the positions of each row in the given order."""
    return x_BSI.gather(1, order_BS[:, :, None].expand_as(x_BSI))
