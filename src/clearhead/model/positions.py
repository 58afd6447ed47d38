"""Positional encodings: vectors added to embeddings (section 3.5), rotation of queries and keys, or a bias on scores.

L number of positions, D model width, B batch, H heads, T queries, S keys, K head width, C pairs of dimensions;
1 = broadcast. Positions of a layout are [T], [B, T] or [M].
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.errors import DataError
from clearhead.kernels import Layout

FAIRSEQ_START = 2  # fairseq counts positions from padding_idx + 1, and its padding_idx is 1


def sinusoids(num_positions: int, model_dim: int, order: str = "interleaved") -> Tensor:
    """Return table_LD with PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/D)).

    Wavelengths grow geometrically from 2 pi to almost 10000 * 2 pi positions. Imported models have other orders:
    `concatenated` (Hugging Face's MarianMT) has all sines first, and so has `fairseq`, with exponents i / (D/2 - 1) and
    positions that start at 2.
    """
    position_L1 = torch.arange(num_positions, dtype=torch.float64)[:, None]
    exponent_C = torch.arange(0, model_dim, 2, dtype=torch.float64) / model_dim
    if order == "fairseq":
        position_L1 = position_L1 + FAIRSEQ_START
        exponent_C = torch.arange(model_dim // 2, dtype=torch.float64) / max(1, model_dim // 2 - 1)
    angle_LC = position_L1 / 10000.0**exponent_C
    waves = (angle_LC.sin(), angle_LC.cos())
    table_LD = torch.stack(waves, -1).flatten(1) if order == "interleaved" else torch.cat(waves, 1)
    # With odd D the last cosine is cut off, and the table of fairseq gets a last column of zeros.
    return F.pad(table_LD, (0, model_dim - table_LD.shape[1])).float()


def _look_up(table_LD: Tensor, layout: Layout) -> Tensor:
    """Return the rows of a table at the positions of a layout. Raises DataError if the table is too short."""
    if layout.num_positions > len(table_LD):
        limit = f"model.max_positions={len(table_LD)}"
        raise DataError(f"expected at most {limit} tokens per sequence, got {layout.num_positions}; shorten the text.")
    return F.embedding(layout.positions, table_LD)


class AddedPositions(nn.Module):
    """A table with one vector per position, added to the embeddings."""

    weight: Tensor

    def forward(self, layout: Layout) -> Tensor:
        """Return the vectors at the positions of a layout: [T, D], [B, T, D] or [M, D]."""
        return _look_up(self.weight, layout)


class SinusoidalPositions(AddedPositions):
    """Fixed sines and cosines (section 3.5), which are neither trained nor saved."""

    def __init__(self, max_positions: int, model_dim: int, order: str = "interleaved") -> None:
        super().__init__()
        self.register_buffer("weight", sinusoids(max_positions, model_dim, order), persistent=False)


class LearnedPositions(AddedPositions):
    """One trained vector per position, as in BERT and GPT."""

    def __init__(self, max_positions: int, model_dim: int, std: float | None = None) -> None:
        """`std`: standard deviation of the initial values; 1 / sqrt(model_dim) by default, as for embeddings."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, model_dim))
        nn.init.normal_(self.weight, std=model_dim**-0.5 if std is None else std)


def build_added_positions(config: ModelConfig) -> AddedPositions | None:
    """Return the positions that are added to embeddings, if the config has any."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.max_positions, config.model_dim, config.sinusoidal_layout)
    if config.positions == "learned":
        # This scale is not from a paper: language models train better (2.07 instead of 2.17 nats) if learned positions
        # are initially as large as sinusoids, whose mean square is 1/2. It is not used for masked language models,
        # because classifiers fine-tuned from them failed.
        starts_like_sinusoids = config.scale_embeddings and config.head == "generation"
        return LearnedPositions(config.max_positions, config.model_dim, 0.5**0.5 if starts_like_sinusoids else None)
    return None


def positions_in_documents(documents_BT: Tensor) -> Tensor:
    """Return positions_BT that start from 0 at each document; the tokens of a document are adjacent."""
    index_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    is_first_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    is_first_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    first_BT = torch.where(is_first_BT, index_T, 0).cummax(1).values
    return index_T - first_BT


class Rotation(NamedTuple):
    """Cosines and sines of the rotation angles of each pair of dimensions; the same for all heads."""

    cos_1C: Tensor
    sin_1C: Tensor

    def __call__(self, x_HK: Tensor) -> Tensor:
        """Return rotated queries or keys."""
        first_HC, second_HC = x_HK.chunk(2, -1)
        return torch.cat(
            (first_HC * self.cos_1C - second_HC * self.sin_1C, second_HC * self.cos_1C + first_HC * self.sin_1C), -1
        )


class RotaryPositions(nn.Module):
    """Rotation of queries and keys by angles proportional to their position (RoFormer, section 3.2).

    Their dot product then depends on the difference of positions only. Dimension i of a head is paired with i + K/2, as
    in GPT-NeoX and Llama (RoFormer pairs neighbours, which is the same model with the rows of the query and key weights
    in another order). Pair i is rotated by position / 10000^(2i/K). Keys are cached after the rotation.
    """

    table_LK: Tensor

    def __init__(self, max_positions: int, key_dim: int) -> None:
        super().__init__()
        self.register_buffer("table_LK", sinusoids(max_positions, key_dim), persistent=False)

    def forward(self, layout: Layout) -> Rotation:
        """Return the rotation at the positions of a layout."""
        table_1K = _look_up(self.table_LK, layout).unsqueeze(-2)
        return Rotation(cos_1C=table_1K[..., 1::2], sin_1C=table_1K[..., 0::2])


def relative_buckets(offsets: Tensor, num_buckets: int, max_distance: int, is_bidirectional: bool) -> Tensor:
    """Return the bucket of each offset, position of the key minus position of the query (T5, section 2.1).

    Half of the buckets hold one distance each; the others grow logarithmically up to `max_distance`, and the last one
    holds all larger distances. Keys before and after the query have separate buckets; in a decoder, keys after it share
    the bucket of offset 0.
    """
    first_bucket = torch.zeros_like(offsets)
    if is_bidirectional:
        num_buckets //= 2
        first_bucket = (offsets > 0) * num_buckets
    distances = offsets.abs() if is_bidirectional else (-offsets).clamp(min=0)
    # The two calls of max() allow settings for which T5's formula would divide by 0.
    num_exact = max(1, num_buckets // 2)
    growth = math.log(max(max_distance, num_exact + 1) / num_exact)
    steps = (distances.clamp(min=num_exact).float() / num_exact).log() / growth * (num_buckets - num_exact)
    far_bucket = (num_exact + steps.long()).clamp(max=num_buckets - 1)
    return first_bucket + torch.where(distances < num_exact, distances, far_bucket)


class RelativeBias(nn.Module):
    """One learned value per head and bucket of offsets, added to the scores of every layer of a stack (T5)."""

    def __init__(self, config: ModelConfig, is_bidirectional: bool) -> None:
        super().__init__()
        self.max_distance = config.relative_max_distance
        self.is_bidirectional = is_bidirectional
        self.weight = nn.Parameter(torch.empty(config.relative_buckets, config.num_heads))
        nn.init.normal_(self.weight, std=config.model_dim**-0.5)

    def forward(self, num_queries: int, num_keys: int) -> Tensor:
        """Return bias_1HTS; the last query has the position of the last key."""
        position_S = torch.arange(num_keys, device=self.weight.device)
        offset_TS = position_S - position_S[num_keys - num_queries :, None]
        bucket_TS = relative_buckets(offset_TS, len(self.weight), self.max_distance, self.is_bidirectional)
        return F.embedding(bucket_TS, self.weight).permute(2, 0, 1)[None]
