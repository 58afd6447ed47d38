"""Final cell states of padded sequences from torch's fused LSTM, without packed sequences.

B batch, S length, I input width, D model width
"""

import torch
from torch import Tensor

_SATURATED = 1e4  # input of a sigmoid that makes it exactly 0 or 1


def keep_cell_at_padding(x_BSI: Tensor, weights: list[Tensor], is_token_BS: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return inputs and weights with which the LSTM does not change its cell state at padding.

    The LSTM returns the cell after the last position, which is then that after the last token. One more input, 1 at
    padding, closes the input gate and opens the forget gate.
    """
    model_dim = len(weights[0]) // 4  # gates in torch's order: input, forget, cell, output
    is_padding_BS1 = (~is_token_BS)[:, :, None].to(x_BSI.dtype)
    gates_4D1 = x_BSI.new_zeros(4 * model_dim, 1)
    gates_4D1[:model_dim] = -_SATURATED
    gates_4D1[model_dim : 2 * model_dim] = _SATURATED
    return torch.cat((x_BSI, is_padding_BS1), 2), [torch.cat((weights[0], gates_4D1), 1), *weights[1:]]
