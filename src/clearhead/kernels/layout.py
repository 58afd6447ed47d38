"""Layouts: which rows of the activations belong to which position of which sequence.

Padded layouts have a row for every position, padding included: activations are [B, T, ...]. Padding-free layouts have a
row for every position that is not padding: activations are [M, ...], the rows of one sequence after the other. Layers
that work on one position at a time accept both; only embeddings, positions and attention read the layout, and `pad`
returns the output of a model as [B, T, D].

B sequences, T positions or queries of each, S keys, H heads; 1 = broadcast
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.kernels.onednn import WIDE
from clearhead.kernels.padding_free import PaddingFreeLayout
from clearhead.kernels.short_attention import MAX_KEYS
from clearhead.kernels.switch import is_enabled

MIN_PADDING = 1 / 8  # minimum fraction of padding for which long sequences use the padding-free layout


@dataclass(frozen=True, eq=False)
class PaddedLayout:
    """One row per position, padding included: [B, T, ...]."""

    positions: Tensor
    """Position of each row: [T], or [B, T]."""
    num_positions: int
    """Exclusive upper bound of the positions, as an integer so that it needs no transfer from a GPU."""
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

    def unpad(self, x_BT: Tensor) -> Tensor:
        """Return [B, T, ...] as rows of this layout."""
        return x_BT

    def pad(self, x_BT: Tensor) -> Tensor:
        """Return rows of this layout as [B, T, ...]."""
        return x_BT

    def select(self, sequences: Tensor) -> "PaddedLayout":
        """Return the layout of these sequences, in this order, if all have the same positions."""
        assert self.positions.ndim == 1
        allowed_B11S = None if self.allowed_B11S is None else self.allowed_B11S.index_select(0, sequences)
        return PaddedLayout(self.positions, self.num_positions, allowed_B11S)


Layout = PaddedLayout | PaddingFreeLayout


def sequence_layout(
    ids_BT: Tensor, pad_id: int, allowed_B11S: Tensor | None, width: int, can_drop_padding: bool
) -> Layout:
    """Return the layout of a batch of token ids: padding-free during training on a CPU if that is faster, else padded.

    `allowed_B11S`: attention mask, False at padding; None if none is needed. `width`: width of the model; for wide
    models the number of rows is rounded up, for oneDNN. `can_drop_padding`: False at inference, and for models whose
    output depends on padding.
    """
    trains_on_cpu = torch.is_grad_enabled() and ids_BT.device.type == "cpu"
    if not (can_drop_padding and trains_on_cpu and is_enabled() and _is_worthwhile(ids_BT, pad_id)):
        return PaddedLayout.of(ids_BT.shape[1], ids_BT.device, allowed_B11S=allowed_B11S)
    uses_onednn = width >= WIDE or torch.is_autocast_enabled("cpu")  # with autocast torch calls oneDNN for any width
    return PaddingFreeLayout(ids_BT, pad_id, allowed_B11S, rounds_rows=uses_onednn)


def _is_worthwhile(ids_BT: Tensor, pad_id: int) -> bool:
    """Return whether a batch is faster without padding, although attention copies rows from and to padded sequences.

    Short attention makes these copies in any case. For longer sequences with 2 % of padding, they made an encoder of
    width 128 10 % slower.
    """
    return ids_BT.shape[1] <= MAX_KEYS or int((ids_BT == pad_id).sum()) > MIN_PADDING * ids_BT.numel()


@dataclass(frozen=True, eq=False)
class AttentionLayout:
    """Layouts of queries and keys, and the keys that each query may attend to."""

    queries: Layout
    keys: Layout
    """Layout of the new keys; in decoding the cache contains more keys, those of earlier positions."""
    is_causal: bool = False
    """Whether queries attend only to keys up to their position; the last query has the position of the last key."""
    allowed: Tensor | None = None
    """Boolean, broadcastable to [B, H, T, S]: True where a key may be attended to. None: everywhere."""
    bias_1HTS: Tensor | None = None
    """Added to the scores."""

    @property
    def has_only_causality(self) -> bool:
        """Whether causality is the only restriction on the keys that are attended to."""
        return self.is_causal and self.allowed is None and self.bias_1HTS is None

    def allowed_keys(self, num_queries: int, num_keys: int) -> Tensor | None:
        """Return the mask, broadcastable to [B, H, T, S]: True where a key may be attended to. None: everywhere."""
        if not self.is_causal or num_queries == 1:  # a single query has the last position
            return self.allowed
        causal_TS = causal_mask(num_queries, num_keys, self.queries.positions.device)
        return causal_TS if self.allowed is None else self.allowed & causal_TS

    def mask(self, num_queries: int, num_keys: int) -> Tensor | None:
        """Return the mask for torch's kernels: that of `allowed_keys`, or additive if there is a bias."""
        allowed = self.allowed_keys(num_queries, num_keys)
        if self.bias_1HTS is None or allowed is None:
            return allowed if self.bias_1HTS is None else self.bias_1HTS
        return self.bias_1HTS.masked_fill(~allowed, -torch.inf)


def causal_mask(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return allowed_TS: a query attends to keys up to its own position; the last query is at the last key."""
    allowed_TS = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return allowed_TS.tril(num_keys - num_queries)
