"""Training of denoising (S9): the missing spans of a corrupted text are the targets (T5, section 3.1.4, appendix D).

    Thank you <x0> me to your party <x1> week.    ->    <x0> for inviting <x1> last <x2>

N texts
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.tasks.denoising.inference import (
    CorruptedText,
    SpanCorruption,
    decode_with_sentinels,
    find_sentinels,
    max_text_tokens,
    score_spans,
    split_documents,
)
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.records import (
    SequenceDataset,
    TaskRecords,
    TrainingFiles,
    load_and_split_text,
    tokenizer_texts,
)
from clearhead.tasks.trainable.seq2seq import (
    LENGTH_FACTOR,
    DecodingScore,
    Seq2SeqBatch,
    Seq2SeqTask,
    collate,
    decode_examples,
    mean_nll,
    pair_batches,
    require_text_to_text,
    validation_decoding,
)
from clearhead.tasks.trainable.task import ExampleTable, PreparedTask

BASELINE_TEXTS = 10_000  # training texts from which token frequencies are counted


class DenoisingTask(Seq2SeqTask):
    """Denoising over one training and one validation corpus."""

    score_name = "span_match"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: SequenceDataset, valid: SequenceDataset) -> None:
        self.corruption = SpanCorruption(find_sentinels(tokenizer), config.data.mask_probability)
        counts_N2 = np.array([self.corruption.counts(int(length)) for length in train.ids.lengths], dtype=np.int64)
        corrupted_N, spans_N = counts_N2.T
        source_lengths_N = train.ids.lengths - corrupted_N + spans_N + 1
        target_lengths_N = corrupted_N + spans_N + 2
        examples = ExampleTable(source_lengths_N, target_lengths_N, target_lengths_N, train.lines_N)
        super().__init__(config, tokenizer, examples, len(valid))
        self.train = train
        texts = [valid.ids[index].tolist() for index in range(len(valid))]
        self.valid = self.corruption.apply_fixed(texts, valid.lines_N.tolist())

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """Return the tensors of these texts, corrupted differently in every epoch."""
        corrupted = [self._corrupt(int(index), epoch) for index in indices]
        return collate([text.source for text in corrupted], [text.target for text in corrupted], self.config.model)

    def _corrupt(self, index: int, epoch: int) -> CorruptedText:
        rng = np.random.default_rng([self.config.training.seed, epoch, index])
        return self.corruption.apply(self.train.ids[index].tolist(), rng)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of the target token frequencies, counted on the first training texts with the corruption of epoch 0."""
        size, eos_id = self.tokenizer.vocab_size, self.tokenizer.eos_id
        targets = (self._corrupt(index, 0).target for index in range(min(len(self.train), BASELINE_TEXTS)))
        train_V = count_targets(IdArrays.build(targets), size, eos_id)
        valid_V = count_targets(self.valid.target, size, eos_id)
        return Baseline(frequency_loss(train_V, valid_V), TOKENS, 0.0, "no output")

    def valid_nll(self, model: Any) -> float:
        """Return the mean negative log-likelihood per token of the validation targets."""
        batches = pair_batches(self.valid, self.config.model, self.config.training.batch_tokens)
        return mean_nll(model, batches, self.tokenizer.pad_id)

    def score_outputs(self, model: Any, count: int) -> DecodingScore:
        """Return the share of spans of the first `count` validation texts that greedy outputs restore."""
        share = self.config.data.mask_probability
        decoding = validation_decoding(max(LENGTH_FACTOR, share / (1 - share)))
        sources = [self.valid.source[index].tolist() for index in range(count)]
        outputs = decode_examples(model, sources, self.tokenizer.eos_id, decoding)
        match = score_spans(self.valid, outputs, self.tokenizer)
        source, output, target = (decode_with_sentinels(self.tokenizer, ids) for ids in match.example)
        return DecodingScore(100 * match.share, match.signature, (source, output, target))


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Document]:
    """Read plain text, or JSON lines with "text"."""
    return load_and_split_text(files, config, log)


def prepare(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
    """Train a tokenizer with sentinels, encode the texts, and return the prepared task."""
    require_text_to_text(config)
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, log), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    skips = SkipReport()
    train = _build_dataset(records.train, tokenizer, config, skips, "training data")
    valid = _build_dataset(records.valid, tokenizer, config, skips, "validation data")
    records.report_skips(skips, log)
    return PreparedTask(config, tokenizer, DenoisingTask(config, tokenizer, train, valid))


def _build_dataset(
    documents: Sequence[Document], tokenizer: Tokenizer, config: Config, skips: SkipReport, name: str
) -> SequenceDataset:
    return SequenceDataset.build(*split_documents(documents, tokenizer, max_text_tokens(config), skips, Path(name)))
