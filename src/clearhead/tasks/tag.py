"""Tagging (S6): words in, one tag a word out, and with the tags the spans that they mark.

The tag of a word sits on its first piece; its other pieces count for nothing in the loss. Sentences that are longer
than those trained on are read in windows that overlap.

N sentences, S length in pieces, W words, L tags
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, divide, pad
from clearhead.data.corpus import Corpus, Skips
from clearhead.data.store import IdStore
from clearhead.data.tagged import BEGIN, INSIDE, OUTSIDE, Tagged, load_tagged, sound_tags, tag_type
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import EncoderEngine
from clearhead.engines.torch_encoder_engine import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.spans import SpanReport, score_spans
from clearhead.model.heads import TagNetwork
from clearhead.model.loss import Loss
from clearhead.tasks.baseline import Baseline, count_ids, frequency_loss
from clearhead.tasks.examples import Examples, framed
from clearhead.tasks.framed_texts import SPECIAL_TOKENS
from clearhead.tasks.labels import label_loss, log_softmax
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.tagged_text import TaggedText, find_words, mark, mark_words
from clearhead.tasks.task import Decode, Files, Made, Ready, Records, Tell, Validation, hold_out
from clearhead.tasks.texts import FramedText
from clearhead.tasks.windows import Pieces, best_windows, cut_words, shorten_words, windows

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
        self, config: Config, tokenizer: Tokenizer, examples: Examples, tags: IdStore, valid: Sequence[Tagged],
        valid_pieces: Sequence[Pieces],
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

    def loss(self, model: TagNetwork, batch: TagBatch) -> Loss:
        """Smoothed cross-entropy over the tags, summed over the words."""
        return tag_loss(model(batch.ids_NS), batch.tags_NS, self.config.training.label_smoothing)

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

    def validate(self, model: TagNetwork, decode: Decode = "always") -> Validation:
        """Return F1 over spans and log-loss per word; nothing is decoded."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        found = tag_log_probs(engine, self.valid_pieces, self.tokenizer, self.config)
        given = [sound_tags(self.config.labels[index] for index in each_WL.argmax(1)) for each_WL in found]
        truth = self._valid_tags
        nll_N = [-each_WL[range(len(tags)), tags].sum() for each_WL, tags in zip(found, truth, strict=True)]
        loss = float(sum(nll_N)) / sum(map(len, truth))
        report = score_spans(given, [sentence.tags for sentence in self.valid])
        shown = [str(mark_words(self.valid[0].words, tags)) for tags in (given[0], self.valid[0].tags)]
        example = (self.valid[0].parts[0], shown[0], shown[1])
        perplexity, score = math.exp(min(loss, 50.0)), 100 * report.total.f1
        return Validation(loss, perplexity, score, "f1", report.signature, example, self.baseline)


def tag_loss(logits_NSL: Tensor, tags_NS: Tensor, smoothing: float) -> Loss:
    """The loss of logits against the right tags, summed over the places that have one."""
    has_tag_NS = tags_NS != IGNORED
    return label_loss(logits_NSL[has_tag_NS], tags_NS[has_tag_NS], smoothing)


def room_of(config: Config) -> int:
    """How many pieces of a sentence are read at once: as many as in training, for later places were never trained."""
    return min(config.data.max_tokens, config.model.max_positions) - SPECIAL_TOKENS


class _Row(NamedTuple):
    """One window as the network reads it, and which words of which sentence are taken from it, and where."""

    ids: list[int]
    sentence: int
    words_C: NDArray[np.int64]
    places_C: NDArray[np.int64]


def _rows(sentences: Sequence[Pieces], tokenizer: Tokenizer, room: int) -> list[_Row]:
    """All windows of the sentences; every word is taken from the one in which it has most context."""
    rows = []
    for index, pieces in enumerate(sentences):
        bounds, firsts_W = pieces.bounds, np.array(pieces.firsts, dtype=np.int64)
        found = windows(bounds, room)
        chosen_W = np.array(best_windows(bounds, found))
        for number, (start, end) in enumerate(found):
            words_C = np.flatnonzero(chosen_W == number)
            ids = framed(tokenizer, pieces.ids[bounds[start] : bounds[end]])
            rows.append(_Row(ids, index, words_C, firsts_W[words_C] - bounds[start] + 1))
    return rows


def tag_log_probs(
    engine: EncoderEngine, sentences: Sequence[Pieces], tokenizer: Tokenizer, config: Config
) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of the tags of each word of each sentence, [W, L]."""
    results = [np.zeros((len(pieces.firsts), len(config.labels))) for pieces in sentences]
    rows = _rows(sentences, tokenizer, room_of(config))
    for row, logits_SL in zip(rows, engine.logits([row.ids for row in rows]), strict=True):
        results[row.sentence][row.words_C] = log_softmax(logits_SL[row.places_C])
    return results


def tag(
    model: Ready, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[TaggedText]:
    """Return the spans of each text. Errors name a text by its line, counted from `first_line`.

    A long text is read in overlapping windows; a skipped one gives an empty text.
    """
    is_split, limit = model.tokenizer.config.kind == "pretokenized", room_of(model.config)
    tally = long_texts or LongTexts()
    texts, places, sentences = [*texts], list[list[tuple[int, int]]](), list[Pieces]()
    for index, text in enumerate(texts):
        spans = find_words(text, is_split)
        words = [text[start:end] for start, end in spans]
        sentence = cut_words(model.tokenizer, words)
        if len(sentence.ids) > limit and not tally.record(first_line + index, len(sentence.ids), limit):
            texts[index], spans, sentence = "", [], Pieces([], [])
        places.append(spans)
        sentences.append(shorten_words(sentence, limit))
    results = []
    found = tag_log_probs(TorchEncoderEngine(model.network), sentences, model.tokenizer, model.config)
    for text, spans, log_probs_WL in zip(texts, places, found, strict=True):
        best_W = log_probs_WL.argmax(1)
        tags = sound_tags(model.config.labels[index] for index in best_W)
        results.append(mark(text, spans, tags, np.exp(log_probs_WL.max(1))))
    return results


def tags_of(records: Sequence[Tagged]) -> list[str]:
    """All tags of the types in these sentences: O first, then B- and I- of each, also where only one of them occurs."""
    types = sorted({tag_type(tag) for record in records for tag in record.tags} - {""})
    return [OUTSIDE, *(begin + name for name in types for begin in (BEGIN, INSIDE))]


def check_types(records: Sequence[Tagged], labels: Sequence[str], path: Path | str) -> None:
    """Refuses a type of spans that the model cannot know."""
    for record in records:
        for line, tag in enumerate(record.tags, record.line):
            if tag not in labels:
                types = sorted({tag_type(label) for label in labels} - {""})
                known = ", ".join(types[:8]) + (", ..." if len(types) > 8 else "")
                problem = f"the type {tag_type(tag)!r} is none of the types trained on; these are {known}"
                raise DataError.at(path, line, problem)


class Tagging(FramedText):
    """What `--task tag` does."""

    name = "tag"
    verb = "tag"
    noun = "tagged sentences"
    data_fields: tuple[str, ...] = ("max_chars", "max_tokens")
    base: Mapping[str, Any] = {
        "task": "tag",
        "model": {"family": "encoder", "head": "token_classification"},
        "training": {"label_smoothing": 0.0},
    }

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Tagged]:
        """CoNLL: a word and its tag a line."""

        def load(paths: Sequence[Path], minimum: int) -> Corpus[Tagged]:
            return load_tagged(paths, config.data.max_chars, minimum)

        return hold_out(load, files, config, tell, self.noun)

    def pieces(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """The words of each text, joined by single spaces."""
        is_split = tokenizer.config.kind == "pretokenized"
        words = ([text[start:end] for start, end in find_words(text, is_split)] for text in texts)
        return [cut_words(tokenizer, each).ids for each in words]

    def make(self, config: Config, records: Records[Tagged], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Learns the tokenizer and the list of tags, which come from the whole training file, held-out part and all."""
        labels = list(config.labels) or tags_of(records.corpus.records)
        if len(labels) == 1:
            raise DataError("expected tags such as B-PER, found only O; is the tag the last column?")
        check_types(records.valid, labels, "validation data")
        if tokenizer is None:
            tokenizer = Tokenizer.train((record.parts[0] for record in records.train), config.tokenizer)
        known = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
        config = configs.override(config, {"model": known, "labels": labels})
        skips = Skips()
        train, pieces = _fitting(records.train, tokenizer, room_of(config), skips, "training data")
        valid, valid_pieces = _fitting(records.valid, tokenizer, room_of(config), skips, "validation data")
        records.account(skips, tell)
        examples = Examples.build([framed(tokenizer, each.ids) for each in pieces], [record.line for record in train])
        tags = IdStore.build(_targets(record, each, labels) for record, each in zip(train, pieces, strict=True))
        return Made(config, tokenizer, TaggingTask(config, tokenizer, examples, tags, valid, valid_pieces))

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> SpanReport:
        """Precision, recall and F1 over whole spans."""
        labels = model.config.labels
        truth: list[Tagged] = []
        sentences: list[Pieces] = []
        for path in paths:
            records = load_tagged([path]).records
            check_types(records, labels, path)
            for record in records:
                sentences.append(shorten_words(cut_words(model.tokenizer, record.words), room_of(model.config)))
            truth += records
        found = tag_log_probs(TorchEncoderEngine(model.network), sentences, model.tokenizer, model.config)
        given = [[labels[index] for index in each_WL.argmax(1)] for each_WL in found]
        return score_spans(given, [record.tags for record in truth], [tag_type(name) for name in labels[1:]])


def _fitting(
    records: Sequence[Tagged], tokenizer: Tokenizer, room: int, skips: Skips, path: str
) -> tuple[list[Tagged], list[Pieces]]:
    """The sentences that can be read at once, with their pieces; the others are told to `skips`."""
    kept: list[Tagged] = []
    pieces: list[Pieces] = []
    for record in records:
        each = cut_words(tokenizer, record.words)
        if len(each.ids) > room:
            skips.add(f"longer than {room} pieces", path, record.line)
        else:
            kept.append(record)
            pieces.append(each)
    if not kept:
        raise DataError(f"{path}: nothing is left; all sentences are longer than {room} pieces; raise data.max_tokens")
    return kept, pieces


def _targets(record: Tagged, pieces: Pieces, labels: Sequence[str]) -> list[int]:
    """The number of each word's tag at the place of its first piece in the framed row, and IGNORED elsewhere."""
    row = [IGNORED] * (len(pieces.ids) + SPECIAL_TOKENS)
    for first, tag in zip(pieces.firsts, record.tags, strict=True):
        row[first + 1] = labels.index(tag)
    return row
