"""Captions (S11, a vector to a sequence): a picture in, a text about it out. A Transformer whose encoder reads patches.

N pictures, C colours, Y height, X width, T target length
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, divide, plan_batches, work_of_pairs
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.images import Pixels, read_image
from clearhead.data.readers.tables import ColumnNames, TableOptions, read_table
from clearhead.data.records import Corpus, SkipReport, build_corpus
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.metrics import TranslationReport, count_outputs, evaluate_texts, exact_match
from clearhead.model.loss import Loss
from clearhead.tasks.captioning.inference import caption_requests, generate_captions
from clearhead.tasks.image_classification.inference import (
    AnnotatedImage,
    image_shape,
    num_patches,
    scale_pixels,
    stack_pixels,
)
from clearhead.tasks.image_classification.training import images_per_batch, random_shift
from clearhead.tasks.lexical_constraints import resolve_constraints
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel, Log, test_records
from clearhead.tasks.text_codec import check_length
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.batches import Seq2SeqBatch, drop_long, mean_nll, seq2seq_loss, with_targets
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation, load_and_split
from clearhead.tasks.trainable.validation_decoding import EXTRA_TOKENS, decode_requests, lines_to_decode
from clearhead.tasks.translation.evaluation import reference_text, scoring_tokenizer

COLUMNS = ColumnNames("picture", "text")
IMAGES_PER_CALL = 256  # pictures


def load_captions(
    paths: Sequence[Path], max_chars: int, minimum: int = 1, table: TableOptions | None = None
) -> Corpus[AnnotatedImage]:
    """Read whole tables of images and texts; the path of an image is relative to the folder of the table."""
    skips = SkipReport()
    return build_corpus(_read(paths, skips, max_chars, table), skips, paths, minimum, "captions")


def _read(
    paths: Sequence[Path], skips: SkipReport, max_chars: int, table: TableOptions | None
) -> Iterator[AnnotatedImage]:
    for path in paths:
        for row in read_table(path, COLUMNS, table, skips.note):
            name, text = row.first.strip(), row.second.strip()
            reason = _fault(name, text, max_chars)
            if reason:
                skips.add(reason, path, row.line)
                continue
            try:
                pixels_CYX = read_image(path.parent / name)
            except DataError as error:
                raise DataError.at(path, row.line, str(error)) from error
            yield AnnotatedImage(pixels_CYX, text, path.parent / name, row.line)


def _fault(name: str, text: str, max_chars: int) -> str:
    """Why a line is of no use, or nothing."""
    if not name:
        return "empty picture" if text else "empty line"
    if not text:
        return "empty text"
    return f"text longer than {max_chars} characters" if len(text) > max_chars else ""


class CaptionTask:
    """Captions over one training and one validation set."""

    unit = "tok"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[AnnotatedImage], rows: Sequence[Sequence[int]],
        valid: Sequence[AnnotatedImage],
    ) -> None:  # fmt: skip
        self.config, self.tokenizer, self.valid = config, tokenizer, valid
        shape = image_shape(config.model)
        self.pixels_NCYX, self.valid_NCYX = stack_pixels(train, shape), stack_pixels(valid, shape)
        self.texts = IdArrays.build(rows)
        self.valid_rows = tokenizer.encode_batch([record.text for record in valid])
        self._target_lengths = self.texts.lengths + 1
        self._patches_N = np.full(len(self.texts), num_patches(config.model), dtype=np.int64)
        self._lines = np.array([record.line for record in train], dtype=np.int64)

    def sizes(self) -> tuple[int, int]:
        """Captions to train on and to validate."""
        return len(self.pixels_NCYX), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        longest = max(int(self._patches_N[0]), int(self._target_lengths.max()))
        training = self.config.training
        budget = min(training.batch_tokens, longest * images_per_batch(self.config, len(self.texts)))
        return plan_batches(self._patches_N, self._target_lengths, budget, training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """The tensors of these pictures and their texts."""
        shift, seed = self.config.data.random_shift, self.config.training.seed
        pixels_NCYX = random_shift(self.pixels_NCYX[indices], shift, seed, epoch, indices)
        return with_targets(
            torch.from_numpy(scale_pixels(pixels_NCYX)),
            [self.texts[index].tolist() for index in indices],
            self.config.model,
        )

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, work_of_pairs(self._patches_N[indices], self._target_lengths[indices]))

    def tokens(self, indices: Indices) -> int:
        """Target tokens with the end of each text."""
        return int(self._target_lengths[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the table."""
        return [int(line) for line in self._lines[indices]]

    def loss(self, model: Any, batch: Seq2SeqBatch) -> Loss:
        """Smoothed cross-entropy, summed over the target tokens."""
        return seq2seq_loss(model, batch, self.tokenizer.pad_id, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of target tokens, and the exact matches of the most frequent training caption."""
        size, end = self.tokenizer.vocab_size, self.tokenizer.eos_id
        train_V, valid_V = (count_targets(store, size, end) for store in (self.texts, IdArrays.build(self.valid_rows)))
        rows = Counter(tuple(self.texts[index].tolist()) for index in range(len(self.texts)))
        [(commonest, _)] = rows.most_common(1)
        score = 100 * sum(tuple(row) == commonest for row in self.valid_rows) / len(self.valid_rows)
        return Baseline(frequency_loss(train_V, valid_V), TOKENS, score, "the most frequent caption")

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the loss over all validation captions, and the share of greedy ones that equal their reference."""
        loss = mean_caption_nll(model, self.valid_NCYX, self.valid_rows)
        perplexity = math.exp(min(loss, 50.0))
        count = min(len(self.valid), self.config.training.validate_lines)
        count = lines_to_decode(decode, loss, self.baseline, count)
        if not count:
            return Validation(loss, perplexity, None, "exact_match", "", ("", "", ""), self.baseline)
        shown = self.valid[:count]
        longest = (
            int(self.texts.lengths.max()) + EXTRA_TOKENS
        )  # of the training captions: an image has no source length
        decoding = DecodingConfig(beam_size=1, max_length=str(longest))
        texts = self.tokenizer.decode_batch(
            decode_requests(caption_requests(self.config.model, self.valid_NCYX[:count]), model, decoding)
        )
        references = [reference_text(self.tokenizer, record.text) for record in shown]
        score, outputs = 100 * exact_match(texts, references), count_outputs(texts, references)
        example = (str(shown[0].path), texts[0], shown[0].text)
        signature = f"examples:{count}"
        return Validation(loss, perplexity, score, "exact_match", signature, example, self.baseline, outputs)


def mean_caption_nll(network: Any, pixels_NCYX: Pixels, rows: Sequence[Sequence[int]]) -> float:
    """Mean negative log-likelihood of a token of these captions (the end included)."""
    parts = (slice(start, start + IMAGES_PER_CALL) for start in range(0, len(rows), IMAGES_PER_CALL))
    batches = (
        with_targets(torch.from_numpy(scale_pixels(pixels_NCYX[part])), rows[part], network.config) for part in parts
    )
    return mean_nll(network, batches, network.config.pad_id)


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[AnnotatedImage]:
    """Read tables of image and text."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[AnnotatedImage]:
        return load_captions(paths, config.data.max_chars, minimum, TableOptions.of(config.data))

    return load_and_split(load, files, config, tell, get_task("caption").record_name)


def make(config: Config, records: TaskRecords[AnnotatedImage], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns the tokenizer of the texts, and takes the size of the pictures from the data."""
    if config.model.input != "image":
        raise ConfigError(f"captions need a network that reads pictures: model.input=image, not {config.model.input}.")
    if tokenizer is None:
        tokenizer = Tokenizer.train((record.text for record in records.train), config.tokenizer)
    channels, size, _ = records.train[0].pixels_CYX.shape
    known = {"vocab_size": tokenizer.vocab_size, "image_size": size, "image_channels": channels}
    config = configs.override(config, {"model": known})
    limit = min(config.data.max_tokens, config.model.max_positions) - 1  # the end of a text takes a place too
    rows = tokenizer.encode_batch([record.text for record in records.train])
    skips = SkipReport()
    train, rows = drop_long(records.train, rows, limit, skips, Path("captions"))
    records.account(skips, tell)
    for record, row in zip(records.valid, tokenizer.encode_batch([one.text for one in records.valid]), strict=True):
        check_length(record.line, len(row), config.model.max_positions - 1, "the validation caption on line")
    return PreparedTask(config, tokenizer, CaptionTask(config, tokenizer, train, rows, records.valid))


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> TranslationReport:
    """BLEU, chrF, exact match and perplexity."""
    records = test_records(load_captions(paths, sys.maxsize, table=TableOptions.of(model.config.data)), tell)
    pixels_NCYX = stack_pixels(records, image_shape(model.config.model))
    rows = model.tokenizer.encode_batch([record.text for record in records])
    for record, row in zip(records, rows, strict=True):
        check_length(record.line, len(row), model.config.model.max_positions - 1)
    asked = resolve_constraints(decoding, model.tokenizer)
    written = generate_captions(model, pixels_NCYX, decoding, constraints=asked)
    texts = model.tokenizer.decode_batch(best[0].tokens for best in written)
    perplexity = math.exp(mean_caption_nll(model.network, pixels_NCYX, rows))
    references = [reference_text(model.tokenizer, record.text) for record in records]
    return evaluate_texts(texts, references, tokenize=scoring_tokenizer(model.config), perplexity=perplexity)
