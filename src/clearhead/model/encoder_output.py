"""Output of an encoder: one state per position and one vector for the whole input.

B batch, S positions (tokens, patches), D width of the encoder, H heads
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EncoderOutput:
    """States of an input, and their pooled vector."""

    states_BSD: Tensor
    pooled_BD: Tensor
    """The first state, the mean of the states or the last one (recurrent: of each direction); after BERT's pooler, if
    there is one."""
    attention: tuple[Tensor, ...] = ()
    """weights_BHSS of each layer, if they are wanted."""


def pool(states_BSD: Tensor, is_token_BS: Tensor | None, kind: str) -> Tensor:
    """Return pooled_BD: the first state, the mean, or the last; padding does not count."""
    if kind == "first":
        return states_BSD[:, 0]
    if kind == "last":
        return states_BSD[:, -1] if is_token_BS is None else select_last(states_BSD, is_token_BS)
    if is_token_BS is None:
        return states_BSD.mean(1)
    weight_BS1 = is_token_BS[:, :, None].to(states_BSD.dtype)
    return (states_BSD * weight_BS1).sum(1) / weight_BS1.sum(1)


def select_last(states_BSD: Tensor, is_token_BS: Tensor) -> Tensor:
    """Return last_BD, the state of the last token of each row; padding is at the end."""
    last_B = is_token_BS.sum(1) - 1
    rows_B = torch.arange(states_BSD.shape[0], device=states_BSD.device)  # len() would fix the size in exported graphs
    return states_BSD[rows_B, last_B]
