"""Examples that are one sequence of ids each: what the tasks of encoders and language models have in common.

N examples of a batch, S length
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import TrainingConfig
from clearhead.data.batching import Indices, pad, plan_batches
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.records import R, SkipReport
from clearhead.errors import DataError


@dataclass(frozen=True)
class SequenceDataset:
    """Sequences of ids as the network reads them, and the lines that they came from."""

    ids: IdArrays
    lines: NDArray[np.int64]

    @classmethod
    def build(cls, sequences: Sequence[Sequence[int]], lines: Sequence[int]) -> "SequenceDataset":
        """The examples of these sequences."""
        return cls(IdArrays.build(sequences), np.asarray(lines, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def plan(self, training: TrainingConfig, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        lengths = self.ids.lengths
        return plan_batches(lengths, lengths, training.batch_tokens, training.seed, epoch)

    def rows(self, indices: Indices, pad_id: int) -> Tensor:
        """ids_NS of these examples, padded behind."""
        return torch.from_numpy(pad([self.ids[index] for index in indices], pad_id))

    def lines_of(self, indices: Indices) -> list[int]:
        """Where these examples stand."""
        return [int(line) for line in self.lines[indices]]


def drop_long(
    records: Sequence[R], rows: list[list[int]], limit: int, skips: SkipReport, path: Path
) -> tuple[list[R], list[list[int]]]:
    """The records whose rows fit; the others are told to `skips`."""
    kept = [index for index, row in enumerate(rows) if len(row) <= limit]
    for index, row in enumerate(rows):
        if len(row) > limit:
            skips.add(f"longer than {limit} pieces", path, records[index].line)
    if not kept:
        raise DataError(f"{path}: nothing is left; all examples are longer than {limit} pieces")
    return [records[index] for index in kept], [rows[index] for index in kept]
