"""Tagging (S6): words in, one tag a word out, and with the tags the spans that they mark.

The tag of a word sits on its first piece; its other pieces count for nothing in the loss. Sentences that are longer
than those trained on are read in windows that overlap.

N sentences, S length in pieces, W words, L tags
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, divide, pad
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.labelled import BEGIN, INSIDE, OUTSIDE, TaggedSentence, load_tagged, sound_tags, tag_type
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import score_spans
from clearhead.model.loss import Loss
from clearhead.model.output_heads import TokenClassifier
from clearhead.tasks.registry import get_task
from clearhead.tasks.tagging.inference import check_tags, max_window_tokens, tag_log_probs
from clearhead.tasks.tagging.overlapping_windows import WordTokens, tokenize_words
from clearhead.tasks.tagging.tagged_text import tag_split_words
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import SPECIAL_TOKENS, EncoderCodec
from clearhead.tasks.trainable.baseline import Baseline, count_ids, frequency_loss
from clearhead.tasks.trainable.batches import SequenceDataset
from clearhead.tasks.trainable.label_training import label_loss
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation, load_and_split

IGNORED = -100  # the target of pieces that carry no tag


@dataclass(frozen=True)
class TagBatch:
    """Sentences as ids, and the number of the tag on each first piece of a word."""

    ids_NS: Tensor
    tags_NS: Tensor


class TaggingTask:
    """The tagging task over one training and one validation corpus."""

    unit = "words"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, examples: SequenceDataset, tags: IdArrays,
        valid: Sequence[TaggedSentence], valid_pieces: Sequence[WordTokens],
    ) -> None:  # fmt: skip
        self.config, self.tokenizer, self.examples, self.tags = config, tokenizer, examples, tags
        self.valid, self.valid_pieces = valid, valid_pieces
        self.words_N = np.array([int((tags[index] != IGNORED).sum()) for index in range(len(tags))])

    def sizes(self) -> tuple[int, int]:
        """Sentences to train on and to validate."""
        return len(self.examples), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        return self.examples.plan(self.config.training, epoch)

    def batch(self, indices: Indices, epoch: int) -> TagBatch:
        """The tensors of these sentences."""
        tags_NS = torch.from_numpy(pad([self.tags[index] for index in indices], IGNORED))
        return TagBatch(self.examples.rows(indices, self.tokenizer.pad_id), tags_NS)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, self.examples.ids.lengths[indices])

    def tokens(self, indices: Indices) -> int:
        """A word is one prediction."""
        return int(self.words_N[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines on which the sentences begin."""
        return self.examples.lines_of(indices)

    def loss(self, model: TokenClassifier, batch: TagBatch) -> Loss:
        """Smoothed cross-entropy over the tags, summed over the words."""
        return tag_loss(model.logits(model(batch.ids_NS)), batch.tags_NS, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the tags. No words tagged has an F1 of 0."""
        size = len(self.config.labels)
        train_V = count_ids(self.tags.ids[self.tags.ids != IGNORED], size)
        valid_V = count_ids((number for tags in self._valid_tags for number in tags), size)
        return Baseline(frequency_loss(train_V, valid_V), "tag frequencies", 0.0, "no tags")

    @cached_property
    def _valid_tags(self) -> list[list[int]]:
        number = {tag: index for index, tag in enumerate(self.config.labels)}
        return [[number[tag] for tag in sentence.tags] for sentence in self.valid]

    def validate(self, model: TokenClassifier, decode: Decode = "always") -> Validation:
        """Return F1 over spans and log-loss per word; nothing is decoded."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        found = tag_log_probs(engine, self.valid_pieces, self.tokenizer, self.config)
        given = [sound_tags(self.config.labels[index] for index in each_WL.argmax(1)) for each_WL in found]
        truth = self._valid_tags
        nll_N = [-each_WL[range(len(tags)), tags].sum() for each_WL, tags in zip(found, truth, strict=True)]
        loss = float(sum(nll_N)) / sum(map(len, truth))
        report = score_spans(given, [sentence.tags for sentence in self.valid])
        shown = [str(tag_split_words(self.valid[0].words, tags)) for tags in (given[0], self.valid[0].tags)]
        example = (self.valid[0].parts[0], shown[0], shown[1])
        perplexity, score = math.exp(min(loss, 50.0)), 100 * report.total.f1
        return Validation(loss, perplexity, score, "f1", report.signature, example, self.baseline)


def tag_loss(logits_NSL: Tensor, tags_NS: Tensor, smoothing: float) -> Loss:
    """The loss of logits against the right tags, summed over the places that have one."""
    has_tag_NS = tags_NS != IGNORED
    return label_loss(logits_NSL[has_tag_NS], tags_NS[has_tag_NS], smoothing)


def collect_tags(records: Sequence[TaggedSentence]) -> list[str]:
    """All tags of the types in these sentences: O first, then B- and I- of each, also where only one of them occurs."""
    types = sorted({tag_type(tag) for record in records for tag in record.tags} - {""})
    return [OUTSIDE, *(begin + name for name in types for begin in (BEGIN, INSIDE))]


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[TaggedSentence]:
    """CoNLL: a word and its tag a line."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[TaggedSentence]:
        return load_tagged(paths, config.data.max_chars, minimum)

    return load_and_split(load, files, config, tell, get_task("tag").record_name)


def make(config: Config, records: TaskRecords[TaggedSentence], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns the tokenizer and the list of tags, which come from the whole training file, held-out part and all."""
    labels = list(config.labels) or collect_tags(records.corpus.records)
    if len(labels) == 1:
        raise DataError("expected tags such as B-PER, found only O; is the tag the last column?")
    check_tags(records.valid, labels, "validation data")
    if tokenizer is None:
        tokenizer = Tokenizer.train((record.parts[0] for record in records.train), config.tokenizer)
    known = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
    config = configs.override(config, {"model": known, "labels": labels})
    skips = SkipReport()
    train, pieces = _fitting(records.train, tokenizer, max_window_tokens(config), skips, "training data")
    valid, valid_pieces = _fitting(records.valid, tokenizer, max_window_tokens(config), skips, "validation data")
    records.account(skips, tell)
    examples = SequenceDataset.build(
        [EncoderCodec().add_special_tokens(tokenizer, each.ids) for each in pieces], [record.line for record in train]
    )
    tags = IdArrays.build(_targets(record, each, labels) for record, each in zip(train, pieces, strict=True))
    return PreparedTask(config, tokenizer, TaggingTask(config, tokenizer, examples, tags, valid, valid_pieces))


def _fitting(
    records: Sequence[TaggedSentence], tokenizer: Tokenizer, room: int, skips: SkipReport, path: str
) -> tuple[list[TaggedSentence], list[WordTokens]]:
    """The sentences that can be read at once, with their pieces; the others are told to `skips`."""
    kept: list[TaggedSentence] = []
    pieces: list[WordTokens] = []
    for record in records:
        each = tokenize_words(tokenizer, record.words)
        if len(each.ids) > room:
            skips.add(f"longer than {room} pieces", path, record.line)
        else:
            kept.append(record)
            pieces.append(each)
    if not kept:
        raise DataError(f"{path}: nothing is left; all sentences are longer than {room} pieces; raise data.max_tokens")
    return kept, pieces


def _targets(record: TaggedSentence, pieces: WordTokens, labels: Sequence[str]) -> list[int]:
    """The number of each word's tag at the place of its first piece in the framed row, and IGNORED elsewhere."""
    row = [IGNORED] * (len(pieces.ids) + SPECIAL_TOKENS)
    for first, tag in zip(pieces.firsts, record.tags, strict=True):
        row[first + 1] = labels.index(tag)
    return row
