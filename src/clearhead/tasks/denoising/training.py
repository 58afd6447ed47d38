"""Denoising (S9): a text with holes in, what was in the holes out (T5, section 3.1.4 and appendix D).

    Thank you <x0> me to your party <x1> week.    ->    <x0> for inviting <x1> last <x2>

How holes are made and marked stands in `holes`. N texts
"""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, divide, plan_batches, work_of_pairs
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.loss import Loss
from clearhead.tasks.denoising.evaluation import max_text_tokens, score_spans, split_documents
from clearhead.tasks.denoising.span_corruption import SpanCorruption, decode_with_sentinels, find_sentinels
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.batches import (
    Seq2SeqBatch,
    SequenceDataset,
    collate,
    mean_nll,
    pair_batches,
    seq2seq_loss,
)
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation
from clearhead.tasks.trainable.text_data import load_and_split_text, tokenizer_texts
from clearhead.tasks.trainable.validation_decoding import (
    LENGTH_FACTOR,
    decode_examples,
    lines_to_decode,
    validation_decoding,
)
from clearhead.tasks.translation.training import require_text_to_text

NUM_SENTINELS = 32
BASELINE_TEXTS = 10_000  # training texts from which token frequencies are counted


class DenoisingTask:
    """Denoising over one training and one validation corpus."""

    unit = "tok"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: SequenceDataset, valid: SequenceDataset) -> None:
        self.config, self.tokenizer, self.train = config, tokenizer, train
        self.corruption = SpanCorruption(find_sentinels(tokenizer), config.data.mask_probability)
        texts = [valid.ids[index].tolist() for index in range(len(valid))]
        self.valid = self.corruption.fixed(texts, [int(line) for line in valid.lines])
        counts_N2 = np.array([self.corruption.counts(int(length)) for length in train.ids.lengths], dtype=np.int64)
        hidden_N, spans_N = counts_N2.T
        self._source_lengths = train.ids.lengths - hidden_N + spans_N + 1
        self._target_lengths = hidden_N + spans_N + 2

    def sizes(self) -> tuple[int, int]:
        """Texts to train on and to validate."""
        return len(self.train), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        training = self.config.training
        return plan_batches(self._source_lengths, self._target_lengths, training.batch_tokens, training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """The tensors of these texts, with other holes in every epoch."""
        seed = self.config.training.seed
        made = [
            self.corruption.apply(self.train.ids[index].tolist(), np.random.default_rng([seed, epoch, int(index)]))
            for index in indices
        ]
        return collate([one.source for one in made], [one.target for one in made], self.config.model)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, work_of_pairs(self._source_lengths[indices], self._target_lengths[indices]))

    def tokens(self, indices: Indices) -> int:
        """Hidden pieces, sentinels and the ends."""
        return int(self._target_lengths[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the training file."""
        return self.train.lines_of(indices)

    def loss(self, model: Any, batch: Seq2SeqBatch) -> Loss:
        """Smoothed cross-entropy, summed over the target tokens."""
        return seq2seq_loss(model, batch, self.tokenizer.pad_id, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the target tokens of the first training texts, as the first epoch hides them."""
        seed, size, end = self.config.training.seed, self.tokenizer.vocab_size, self.tokenizer.eos_id
        made = (
            self.corruption.apply(self.train.ids[index].tolist(), np.random.default_rng([seed, 0, index])).target
            for index in range(min(len(self.train), BASELINE_TEXTS))
        )
        train_V = count_targets(IdArrays.build(made), size, end)
        return Baseline(frequency_loss(train_V, count_targets(self.valid.target, size, end)), TOKENS, 0.0, "no output")

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the loss over all validation texts, and the share of spans of the first ones that are restored."""
        batches = pair_batches(self.valid, self.config.model, self.config.training.batch_tokens)
        loss = mean_nll(model, batches, self.tokenizer.pad_id)
        count = min(len(self.valid), self.config.training.validate_lines)
        count = lines_to_decode(decode, loss, self.baseline, count)
        perplexity = math.exp(min(loss, 50.0))
        if not count:
            return Validation(loss, perplexity, None, "span_match", "", ("", "", ""), self.baseline)
        hidden = self.config.data.mask_probability
        decoding = validation_decoding(max(LENGTH_FACTOR, hidden / (1 - hidden)))
        sources = [self.valid.source[index].tolist() for index in range(count)]
        outputs = decode_examples(model, sources, self.tokenizer.eos_id, decoding)
        report = score_spans(self.valid, outputs, self.tokenizer)
        shown_as = (decode_with_sentinels(self.tokenizer, ids) for ids in report.example)
        example = (next(shown_as), next(shown_as), next(shown_as))
        score, signature = 100 * report.share, report.signature
        return Validation(loss, perplexity, score, "span_match", signature, example, self.baseline)


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Document]:
    """Plain text."""
    return load_and_split_text(files, config, tell)


def make(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns a tokenizer with sentinels."""
    require_text_to_text(config)
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, tell), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    limit, skips = max_text_tokens(config), SkipReport()
    train = SequenceDataset.build(*split_documents(records.train, tokenizer, limit, skips, Path("training data")))
    valid = SequenceDataset.build(*split_documents(records.valid, tokenizer, limit, skips, Path("validation data")))
    records.account(skips, tell)
    return PreparedTask(config, tokenizer, DenoisingTask(config, tokenizer, train, valid))
