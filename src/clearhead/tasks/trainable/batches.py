"""Examples that are one sequence of ids each: what the tasks of encoders and language models have in common.

N examples of a batch, S length

Targets under teacher forcing, as every task that writes text has them: batches, and their loss.

N sentences, S source length, T target length, C colours, Y height, X width
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import ModelConfig, TrainingConfig
from clearhead.data.batching import Indices, pad_rows, plan_batches
from clearhead.data.corpus.id_arrays import IdArrays, PairIds
from clearhead.data.records import R, SkipReport
from clearhead.engines.torch_forward import device_of, on_device
from clearhead.errors import DataError
from clearhead.model.loss import Loss, cross_entropy


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
        return torch.from_numpy(pad_rows([self.ids[index] for index in indices], pad_id))

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


@dataclass(frozen=True)
class Seq2SeqBatch:
    """Sources; targets shifted right behind the start, and the same targets with their end."""

    src: Tensor  # src_NS with the end of each sentence, or pictures_NCYX
    tgt_in_NT: Tensor
    tgt_out_NT: Tensor


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """The tensors of these sources and targets, which come without start and end, padded behind."""
    ended = [[*source, model.eos_id] for source in sources]
    return with_targets(torch.from_numpy(pad_rows(ended, model.pad_id)), targets, model)


def with_targets(src: Tensor, targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """Sources that are tensors already, and the targets that belong to them."""
    shifted = [[model.decoder_start_id, *target] for target in targets]
    ended = [[*target, model.eos_id] for target in targets]
    tgt_in_NT, tgt_out_NT = (torch.from_numpy(pad_rows(rows, model.pad_id)) for rows in (shifted, ended))
    return Seq2SeqBatch(src, tgt_in_NT, tgt_out_NT)


def collate_pairs(store: PairIds, indices: Indices, model: ModelConfig) -> Seq2SeqBatch:
    """The tensors of these pairs."""
    return collate(
        [store.source[index].tolist() for index in indices],
        [store.target[index].tolist() for index in indices],
        model,
    )


def pair_batches(store: PairIds, model: ModelConfig, batch_tokens: int) -> Iterator[Seq2SeqBatch]:
    """All pairs once, those of like length together."""
    for indices in plan_batches(store.source.lengths + 1, store.target.lengths + 1, batch_tokens, seed=0, epoch=0):
        yield collate_pairs(store, indices, model)


def seq2seq_loss(model: Any, batch: Seq2SeqBatch, pad_id: int, smoothing: float) -> Loss:
    """Cross-entropy under teacher forcing, summed over the target tokens."""
    hidden_NTD = model(batch.src, batch.tgt_in_NT)
    return cross_entropy(hidden_NTD, model.output.weight, batch.tgt_out_NT, pad_id, smoothing, model.output.bias)


@torch.inference_mode()
def mean_nll(model: Any, batches: Iterable[Seq2SeqBatch], pad_id: int) -> float:
    """Mean negative log-likelihood of a target token (the end included), without smoothing."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for batch in batches:
        loss = seq2seq_loss(model, on_device(batch, device_of(model)), pad_id, 0.0)
        total, count = total + float(loss.nll), count + loss.tokens
    model.train(was_training)
    return total / count
