"""How heads see any body that reads: inputs in, one state a place and one for the whole out.

B batch, S places (pieces, patches), D model width, H heads
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Read:
    """What a body made of its input."""

    states_BSD: Tensor
    pooled_BD: Tensor  # stands for the whole: the first place, the mean of all, or the last
    attention: tuple[Tensor, ...] = ()  # weights_BHSS of each layer, where they were asked for


class Reader(Protocol):
    """A body that reads: text encoders take ids, picture encoders pixels."""

    width: int
    """Width of a state: what a head stands on."""

    def __call__(self, inputs: Tensor, /, want_attention: bool = False) -> Read:
        """inputs_BS of ids, padded behind, or inputs_BCYX of pixels."""


def pool(states_BSD: Tensor, real_BS: Tensor | None, kind: str) -> Tensor:
    """pooled_BD of states of which only the real ones count: the first, the mean or the last."""
    if kind == "first":
        return states_BSD[:, 0]
    if real_BS is None:
        return states_BSD[:, -1] if kind == "last" else states_BSD.mean(1)
    if kind == "mean":
        share_BS1 = real_BS[:, :, None].to(states_BSD.dtype)
        return (states_BSD * share_BS1).sum(1) / share_BS1.sum(1)
    return select_last(states_BSD, real_BS)


def select_last(states_BSD: Tensor, real_BS: Tensor) -> Tensor:
    """Return last_BD, the state at the last real position of each row."""
    last_B = real_BS.sum(1) - 1
    rows_B = torch.arange(
        states_BSD.shape[0], device=states_BSD.device
    )  # len() would fix the size of an exported graph
    return states_BSD[rows_B, last_B]
