"""One step of each recurrent layer, as equations; `RecurrentLayer` computes the same by torch's fused kernels.

x is the input, h the hidden state, c the cell state of an LSTM; W, b and U, d are weight and bias of the input and of
the state (torch's weight_ih, bias_ih and weight_hh, bias_hh). Biases are left out of the equations below. sigma is the
sigmoid, * the element-wise product.

B batch, I input width, D model width
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

LayerState = tuple[Tensor, ...]
"""h_BD of a layer, and for an LSTM c_BD."""


class CellStep(NamedTuple):
    """State after a step, and the gates from which it was computed."""

    state: LayerState
    gates: dict[str, Tensor]
    """Values of the gates by name, each [B, D]; empty for an RNN."""


def _gate_inputs(x_BI: Tensor, h_BD: Tensor, weights: Sequence[Tensor], count: int) -> list[tuple[Tensor, Tensor]]:
    """Return the pair (W x + b, U h + d) of each of `count` gates."""
    w, u, *biases = weights
    b, d = biases or (None, None)
    return [*zip(F.linear(x_BI, w, b).chunk(count, 1), F.linear(h_BD, u, d).chunk(count, 1), strict=True)]


def rnn_cell(x_BI: Tensor, state: LayerState, weights: Sequence[Tensor]) -> CellStep:
    """h' = tanh(W x + U h) (Elman 1990)."""
    [(wx_BD, uh_BD)] = _gate_inputs(x_BI, state[0], weights, 1)
    return CellStep((torch.tanh(wx_BD + uh_BD),), {})


def gru_cell(x_BI: Tensor, state: LayerState, weights: Sequence[Tensor]) -> CellStep:
    """Reset gate r, update gate z, candidate n (Cho et al. 2014), with r applied after U, as in torch and cuDNN.

    r = sigma(W_r x + U_r h), z = sigma(W_z x + U_z h), n = tanh(W_n x + r * (U_n h)), h' = (1 - z) * n + z * h
    """
    (r_wx, r_uh), (z_wx, z_uh), (n_wx, n_uh) = _gate_inputs(x_BI, state[0], weights, 3)
    r_BD, z_BD = torch.sigmoid(r_wx + r_uh), torch.sigmoid(z_wx + z_uh)
    n_BD = torch.tanh(n_wx + r_BD * n_uh)
    return CellStep(((1 - z_BD) * n_BD + z_BD * state[0],), {"reset": r_BD, "update": z_BD, "candidate": n_BD})


def lstm_cell(x_BI: Tensor, state: LayerState, weights: Sequence[Tensor]) -> CellStep:
    """Input gate i, forget gate f, candidate g, output gate o (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    i, f, o = sigma(W x + U h), g = tanh(W_g x + U_g h), c' = f * c + i * g, h' = o * tanh(c')
    """
    h_BD, c_BD = state
    i_BD, f_BD, g_BD, o_BD = (wx + uh for wx, uh in _gate_inputs(x_BI, h_BD, weights, 4))
    i_BD, f_BD, o_BD = torch.sigmoid(i_BD), torch.sigmoid(f_BD), torch.sigmoid(o_BD)
    g_BD = torch.tanh(g_BD)
    c_BD = f_BD * c_BD + i_BD * g_BD
    gates = {"input": i_BD, "forget": f_BD, "candidate": g_BD, "output": o_BD}
    return CellStep((o_BD * torch.tanh(c_BD), c_BD), gates)


CELLS: dict[str, Callable[[Tensor, LayerState, Sequence[Tensor]], CellStep]] = {
    "rnn": rnn_cell,
    "gru": gru_cell,
    "lstm": lstm_cell,
}
