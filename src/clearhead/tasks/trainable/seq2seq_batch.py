"""Targets under teacher forcing, as every task that writes text has them: batches, and their loss.

N sentences, S source length, T target length, C colours, Y height, X width
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.data.batching import Indices, pad, plan_batches
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.engines.torch_forward import device_of, on_device
from clearhead.model.loss import Loss, cross_entropy


@dataclass(frozen=True)
class Seq2SeqBatch:
    """Sources; targets shifted right behind the start, and the same targets with their end."""

    src: Tensor  # src_NS with the end of each sentence, or pictures_NCYX
    tgt_in_NT: Tensor
    tgt_out_NT: Tensor


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """The tensors of these sources and targets, which come without start and end, padded behind."""
    ended = [[*source, model.eos_id] for source in sources]
    return with_targets(torch.from_numpy(pad(ended, model.pad_id)), targets, model)


def with_targets(src: Tensor, targets: Sequence[Sequence[int]], model: ModelConfig) -> Seq2SeqBatch:
    """Sources that are tensors already, and the targets that belong to them."""
    shifted = [[model.decoder_start_id, *target] for target in targets]
    ended = [[*target, model.eos_id] for target in targets]
    tgt_in_NT, tgt_out_NT = (torch.from_numpy(pad(rows, model.pad_id)) for rows in (shifted, ended))
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
