"""Layouts: which rows of the activations belong to which position of which sequence.

Padded layouts have a row for every position, padding included: activations are [B, T, ...]. Padding-free layouts have a
row for every position that is not padding: activations are [M, ...], the rows of one sequence after the other. Layers
that work on one position at a time accept both; only attention, positions and the loss read the layout.

B sequences, T positions or queries of each, S keys, H heads; 1 = broadcast
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.kernels.padding_free import PaddingFreeLayout
from clearhead.kernels.switch import is_enabled

WIDE = 256
"""Width of a layer from which on oneDNN multiplies. At 128 it saves 1 % of the time, and compiling its kernels costs
10 % of the first updates."""


@dataclass(frozen=True, eq=False)
class PaddedLayout:
    """One row per position, padding included: [B, T, ...]."""

    positions: Tensor
    """Position of each row: [T], or [B, T]."""
    num_positions: int
    """Upper bound of the positions, exclusive; known without a transfer from a GPU."""
    allowed_B11S: Tensor | None = None
    """False at padding; None without padding."""

    @property
    def length(self) -> int:
        """Number of positions of each sequence."""
        return self.positions.shape[-1]

    @classmethod
    def of(
        cls, length: int, device: torch.device | None = None, start: int = 0, allowed_B11S: Tensor | None = None
    ) -> "PaddedLayout":
        """Return the layout of sequences that begin at position `start`."""
        return cls(torch.arange(start, start + length, device=device), start + length, allowed_B11S)

    def rows(self, ids_BT: Tensor) -> Tensor:
        """Return the ids of the rows."""
        return ids_BT

    def padded(self, x_BTD: Tensor) -> Tensor:
        """Return activations as [B, T, D]."""
        return x_BTD


Layout = PaddedLayout | PaddingFreeLayout


def sequence_layout(
    ids_BT: Tensor, pad_id: int, allowed_B11S: Tensor | None, width: int, can_drop_padding: bool
) -> Layout:
    """Return the layout of a batch of token ids: padding-free where a CPU trains.

    `allowed_B11S`: False at padding. `width`: of the model. `can_drop_padding`: False at inference, and for a model
    in which padding has an effect.
    """
    is_trained = torch.is_grad_enabled() and ids_BT.device.type == "cpu"
    if not (can_drop_padding and is_trained and is_enabled()):
        return PaddedLayout.of(ids_BT.shape[1], ids_BT.device, allowed_B11S=allowed_B11S)
    uses_onednn = width >= WIDE or torch.is_autocast_enabled("cpu")  # with autocast torch calls oneDNN for any width
    return PaddingFreeLayout(ids_BT, pad_id, allowed_B11S, rounds_rows=uses_onednn)


@dataclass(frozen=True, eq=False)
class AttentionLayout:
    """Layouts of queries and keys, and which keys each query may attend to."""

    queries: Layout
    keys: Layout
    is_causal: bool = False
    """Whether a query attends to no key after its own position; the last query has the position of the last key."""
    allowed: Tensor | None = None
    """Boolean, broadcastable to [B, H, T, S]: True where a key may be attended to. None: everywhere."""
    bias_1HTS: Tensor | None = None
    """Added to the scores."""

    @property
    def has_only_causality(self) -> bool:
        """Whether causality alone decides which keys are attended to."""
        return self.is_causal and self.allowed is None and self.bias_1HTS is None

    def mask(self, num_queries: int, num_keys: int, num_positions: int | None = None) -> Tensor | None:
        """Return the mask: boolean (True: may be attended to), or additive if there is a bias; None without any limit.

        It is over `num_positions` positions, of which the first `num_keys` have a key; by default all of them.
        """
        num_positions = num_keys if num_positions is None else num_positions
        allowed = self.allowed
        if self.is_causal and num_queries > 1:
            causal_TS = _causal_mask(num_queries, num_keys, self.queries.positions.device)
            allowed = causal_TS if allowed is None else allowed & causal_TS
        if self.bias_1HTS is not None:
            mask = self.bias_1HTS if allowed is None else self.bias_1HTS.masked_fill(~allowed, float("-inf"))
            return F.pad(mask, (0, num_positions - num_keys), value=float("-inf"))
        if num_positions == num_keys:
            return allowed
        if allowed is None:
            allowed = torch.ones(1, num_keys, dtype=torch.bool, device=self.queries.positions.device)
        return F.pad(allowed, (0, num_positions - num_keys), value=False)


def _causal_mask(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return allowed_TS: a query attends to keys up to its own position; the last query is at the last key."""
    allowed = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed.tril(num_keys - num_queries)
