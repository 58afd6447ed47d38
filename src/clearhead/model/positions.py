"""Where a token stands: a vector added to its embedding (section 3.5), a turn of query and key, or a bias on scores.

L number of positions, D model width, B batch, H heads, T queries, S keys, K head width, C = K/2 pairs, U buckets;
1 = broadcast
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import DataError

FAIRSEQ_START = 2  # its first place: 0 and 1 were left to padding


def sinusoids(num_positions: int, model_dim: int, layout: str = "interleaved") -> Tensor:
    """table_LD of the paper: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same angle.

    The first dimensions turn fastest (one turn in 2 pi positions), the last slowest (one in 10000 * 2 pi). Layout
    `halves` has all sines first; `fairseq` too, with exponents i/(D/2 - 1) and places counted from 2.
    """
    position_L1 = torch.arange(num_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, model_dim, 2, dtype=torch.float64)
    if layout == "fairseq":
        position_L1, half = position_L1 + FAIRSEQ_START, model_dim // 2
        even = torch.arange(half, dtype=torch.float64) * (model_dim / max(1, half - 1))
    angle = position_L1 / 10000.0 ** (even / model_dim)
    table_LD = torch.zeros(num_positions, model_dim, dtype=torch.float64)
    if layout != "interleaved":
        num_sines = angle.shape[1]
        table_LD[:, :num_sines] = angle.sin()
        num_cosines = min(num_sines, model_dim - num_sines)
        table_LD[:, num_sines : num_sines + num_cosines] = angle.cos()[:, :num_cosines]
        return table_LD.float()
    table_LD[:, 0::2] = angle.sin()
    table_LD[:, 1::2] = angle.cos()[:, : model_dim // 2]
    return table_LD.float()


def _require(table_LD: Tensor, length: int) -> None:
    """Refuses places that a table does not have."""
    if length > len(table_LD):
        limit = f"model.max_positions={len(table_LD)}"
        raise DataError(f"expected at most {limit} tokens in a row, got {length}; cut the text.")


def _cut(table_LD: Tensor, start: int, length: int) -> Tensor:
    """Rows of a table. A slice beyond its end would be short, and might even fit by broadcasting."""
    _require(table_LD, start + length)
    return table_LD[start : start + length]


class AddedPositions(nn.Module):
    """A table with one vector a place, added at the bottom of a stack."""

    table_LD: Tensor

    def forward(self, start: int, length: int) -> Tensor:
        """position_TD of `length` tokens from place `start` on."""
        return _cut(self.table_LD, start, length)

    def at(self, places_BT: Tensor) -> Tensor:
        """position_BTD of tokens at these places."""
        if places_BT.device.type == "cpu":  # a GPU would have to be waited for
            _require(self.table_LD, int(places_BT.max()) + 1)
        return F.embedding(places_BT, self.table_LD)


class SinusoidalPositions(AddedPositions):
    """Fixed sines and cosines: nothing to learn, nothing to save."""

    def __init__(self, max_positions: int, model_dim: int, layout: str = "interleaved") -> None:
        super().__init__()
        self.register_buffer("table_LD", sinusoids(max_positions, model_dim, layout), persistent=False)


class LearnedPositions(AddedPositions):
    """One trained vector a place, as in BERT and GPT."""

    def __init__(self, max_positions: int, model_dim: int, deviation: float = 0.0) -> None:
        """`deviation`: of the numbers that it begins with; 0 for 1 / sqrt(model_dim), as embeddings have."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, model_dim))
        nn.init.normal_(self.weight, std=deviation or model_dim**-0.5)

    @property
    def table_LD(self) -> Tensor:  # type: ignore[override]
        """The trained vectors."""
        return self.weight


def added_positions(config: ModelConfig) -> AddedPositions | None:
    """What is added to embeddings; None where places are marked inside attention, or not at all."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.max_positions, config.model_dim, config.sinusoidal_layout)
    if config.positions == "learned":
        # As sinusoids are, beside embeddings that were scaled, where text is written: a small language model came to
        # 2.07 nats instead of 2.17. Readers want words above places: masked models so made taught a classifier nothing
        # in 4 of 5 seeds, and something in all 5 without.
        loud = 0.5**0.5 if config.scale_embeddings and config.head == "generation" else 0.0
        return LearnedPositions(config.max_positions, config.model_dim, loud)
    return None


def places_in_documents(documents_BT: Tensor) -> Tensor:
    """places_BT that start from 0 again wherever another document begins; the tokens of one stand together."""
    index_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    is_first_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    first_BT = torch.where(is_first_BT, index_T, 0).cummax(1).values
    return index_T - first_BT


class Turn(NamedTuple):
    """The angles of some places, for each pair of a head's dimensions; B1TC where rows have places of their own."""

    cos_TC: Tensor
    sin_TC: Tensor

    def __call__(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys, turned."""
        first, second = x_BHTK.chunk(2, -1)
        turned = first * self.cos_TC - second * self.sin_TC, second * self.cos_TC + first * self.sin_TC
        return torch.cat(turned, -1)


class RotaryPositions(nn.Module):
    """Queries and keys turned by the angle of their absolute place (RoFormer, section 3.2).

    Their dot product then depends on the difference of places only. Dimension i of a head is paired with i + K/2, as in
    GPT-NeoX and Llama (the paper pairs neighbours: the same up to the order of rows); pair i turns by
    place / 10000^(2i/K). Keys are cached turned.
    """

    table_LK: Tensor

    def __init__(self, max_positions: int, key_dim: int) -> None:
        super().__init__()
        self.register_buffer("table_LK", sinusoids(max_positions, key_dim), persistent=False)

    def forward(self, start: int, length: int) -> Turn:
        """The turn of `length` tokens from place `start` on."""
        table_TK = _cut(self.table_LK, start, length)
        return Turn(table_TK[:, 1::2], table_TK[:, 0::2])

    def at(self, places_BT: Tensor) -> Turn:
        """The turn of tokens at these places."""
        table_B1TK = F.embedding(places_BT, self.table_LK)[:, None]
        return Turn(table_B1TK[..., 1::2], table_B1TK[..., 0::2])


def relative_buckets(offsets: Tensor, num_buckets: int, max_distance: int, is_bidirectional: bool) -> Tensor:
    """The bucket of each offset (place of the key minus place of the query), as in T5.

    Half of the buckets hold one distance each, the others grow with the logarithm up to `max_distance`, beyond which
    all are one. Both directions have buckets of their own; in one direction, keys ahead share the bucket of 0.
    """
    first = torch.zeros_like(offsets)
    if is_bidirectional:
        num_buckets //= 2
        first = (offsets > 0) * num_buckets
    distances = offsets.abs() if is_bidirectional else (-offsets).clamp(min=0)
    num_exact = max(1, num_buckets // 2)
    growth = math.log(max(max_distance, num_exact + 1) / num_exact)
    steps = (distances.clamp(min=num_exact).float() / num_exact).log() / growth * (num_buckets - num_exact)
    far = (num_exact + steps.long()).clamp(max=num_buckets - 1)
    return first + torch.where(distances < num_exact, distances, far)


class RelativeBias(nn.Module):
    """One number a head for each bucket of distances, added to the scores of every layer of a stack (T5)."""

    def __init__(self, config: ModelConfig, is_bidirectional: bool) -> None:
        super().__init__()
        self.max_distance = config.relative_max_distance
        self.is_bidirectional = is_bidirectional
        self.weight = nn.Parameter(torch.empty(config.relative_buckets, config.num_heads))
        nn.init.normal_(self.weight, std=config.model_dim**-0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """bias_1HTS of `length` queries from place `start` on, with all keys up to the last of them."""
        places_S = torch.arange(start + length, device=self.weight.device)
        offsets_TS = places_S - places_S[start:, None]
        buckets_TS = relative_buckets(offsets_TS, len(self.weight), self.max_distance, self.is_bidirectional)
        return F.embedding(buckets_TS, self.weight).permute(2, 0, 1)[None]
