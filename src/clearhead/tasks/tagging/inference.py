"""Tagging (S6): one tag per word, and the spans that the tags mark.

The tag of a word is predicted at its first token. Sentences longer than in training are processed in overlapping
windows.

S length in tokens, W words, C words predicted in one window, L tags
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.config import Config, DecodingConfig
from clearhead.data.readers.labelled import TaggedSentence, load_tagged, repair_tags, span_type
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import EncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import SpanReport, find_spans, score_spans
from clearhead.json_format import JsonResult
from clearhead.tasks.classification.inference import log_softmax
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.tagging.overlapping_windows import (
    WordTokens,
    best_windows,
    cover_words,
    tokenize_words,
    truncate_words,
)
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import NUM_SPECIAL_TOKENS, EncoderCodec, max_training_tokens

# A word consists of letters and digits with apostrophes inside, or of one other character. `find_words` replaces each
# joiner and combining mark, which \w does not match, by U+0301 before it applies this pattern.
_WORD = re.compile(r"(?:\w\u0301*)+(?:['’](?:\w\u0301*)+)*|[^\w\s]\u0301*")
_JOINERS = "\u200c\u200d"
_BRACKETS = re.compile(r"[\\\[\]]")

CODEC = EncoderCodec()


@dataclass(frozen=True)
class Entity:
    """A span of a text; `start` and `end` are in characters, `score` is the mean probability of its words' tags."""

    type: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text and its tag; `start` and `end` are in characters."""

    word: str
    start: int
    end: int
    tag: str


@dataclass(frozen=True)
class TaggedText(JsonResult):
    """A text, the spans that its tags mark, and its words with their tags, which are a valid BIO sequence."""

    text: str
    entities: tuple[Entity, ...]
    words: tuple[TaggedWord, ...]

    def __str__(self) -> str:
        """Return the text with marked spans: `[Nairobi LOC]`. A backslash precedes its brackets and backslashes."""
        parts, done = [], 0
        for entity in self.entities:
            parts.append(_escape(self.text[done : entity.start]))
            parts.append(f"[{_escape(entity.text)} {_escape(entity.type)}]")
            done = entity.end
        return "".join(parts) + _escape(self.text[done:])


def _escape(text: str) -> str:
    return _BRACKETS.sub(r"\\\g<0>", text)


def tag(
    model: LoadedModel, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[TaggedText]:
    """Return the spans of each text. Errors name a text by its line, counted from `first_line`.

    A long text is processed in overlapping windows. The result of a skipped text is empty.
    """
    is_pretokenized, limit = model.tokenizer.config.kind == "pretokenized", max_window_tokens(model.config)
    tally = long_texts or LongTexts()
    texts, spans_of, sentences = [*texts], list[list[tuple[int, int]]](), list[WordTokens]()
    for index, text in enumerate(texts):
        spans = find_words(text, is_pretokenized)
        sentence = tokenize_words(model.tokenizer, [text[start:end] for start, end in spans])
        if len(sentence.ids) > limit and not tally.record(first_line + index, len(sentence.ids), limit):
            texts[index], spans, sentence = "", [], WordTokens([], [])
        spans_of.append(spans)
        sentences.append(truncate_words(sentence, limit))
    results = []
    scores = tag_log_probs(model.encoder_engine, sentences, model.tokenizer, model.config)
    for text, spans, log_probs_WL in zip(texts, spans_of, scores, strict=True):
        tags = repair_tags(model.config.labels[label] for label in log_probs_WL.argmax(1))
        results.append(mark_spans(text, spans, tags, np.exp(log_probs_WL.max(1))))
    return results


def find_words(text: str, is_pretokenized: bool = False) -> list[tuple[int, int]]:
    """Return start and end of each word; the words contain every character that is not whitespace.

    In a pretokenized text, words are separated by whitespace.
    """
    if is_pretokenized:
        return [match.span() for match in re.finditer(r"\S+", text)]
    joined = ("\u0301" if unicodedata.category(char)[0] == "M" or char in _JOINERS else char for char in text)
    return [match.span() for match in _WORD.finditer("".join(joined))]


def mark_spans(
    text: str, words: Sequence[tuple[int, int]], tags: Sequence[str], probs_W: NDArray[np.float64]
) -> TaggedText:
    """Return the tagged text with its spans; `words` are the start and end of each word."""
    entities = []
    for span in find_spans(tags):
        start, end = words[span.start][0], words[span.end - 1][1]
        score = float(probs_W[span.start : span.end].mean())
        entities.append(Entity(span.type, start, end, text[start:end], score))
    tagged = [TaggedWord(text[start:end], start, end, tag) for (start, end), tag in zip(words, tags, strict=True)]
    return TaggedText(text, tuple(entities), tuple(tagged))


def tag_split_words(words: Sequence[str], tags: Sequence[str]) -> TaggedText:
    """Return the tagged text of words joined by spaces, with probability 1 for each tag."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    spans = [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]
    return mark_spans(" ".join(words), spans, tags, np.ones(len(words)))


def tag_log_probs(
    engine: EncoderEngine, sentences: Sequence[WordTokens], tokenizer: Tokenizer, config: Config
) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of the tags of each word of each sentence, [W, L]."""
    results = [np.zeros((len(sentence.firsts), len(config.labels))) for sentence in sentences]
    rows = _window_rows(sentences, tokenizer, max_window_tokens(config))
    for row, logits_SL in zip(rows, engine.logits([row.ids for row in rows]), strict=True):
        results[row.sentence][row.words_C] = log_softmax(logits_SL[row.positions_C])
    return results


def max_window_tokens(config: Config) -> int:
    """Return the largest number of tokens in a window: that of training, because later positions are untrained."""
    return max_training_tokens(config) - NUM_SPECIAL_TOKENS


class _WindowRow(NamedTuple):
    """One window of a sentence as input of the network, with the words predicted in it and the positions of these."""

    ids: list[int]
    sentence: int
    words_C: NDArray[np.int64]
    positions_C: NDArray[np.int64]


def _window_rows(sentences: Sequence[WordTokens], tokenizer: Tokenizer, max_tokens: int) -> list[_WindowRow]:
    """Return all windows of the sentences; each word is predicted in the window in which it has most context."""
    rows = []
    for index, sentence in enumerate(sentences):
        bounds, firsts_W = sentence.bounds, np.array(sentence.firsts, dtype=np.int64)
        windows = cover_words(bounds, max_tokens)
        window_W = np.array(best_windows(bounds, windows))
        for number, (start, end) in enumerate(windows):
            words_C = np.flatnonzero(window_W == number)
            ids = CODEC.add_special_tokens(tokenizer, sentence.ids[bounds[start] : bounds[end]])
            rows.append(_WindowRow(ids, index, words_C, firsts_W[words_C] - bounds[start] + 1))
    return rows


def check_tags(records: Sequence[TaggedSentence], labels: Sequence[str], path: Path | str) -> None:
    """Raise DataError for a tag whose type does not occur in the training data."""
    for record in records:
        for line, tag in enumerate(record.tags, record.line):
            if tag not in labels:
                types = sorted({span_type(label) for label in labels} - {""})
                examples = ", ".join(types[:8]) + (", ..." if len(types) > 8 else "")
                problem = f"expected a type of the training data ({examples}), found {span_type(tag)!r}"
                raise DataError.at(path, line, problem)


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> SpanReport:
    """Return precision, recall and F1 over whole spans."""
    labels, limit = model.config.labels, max_window_tokens(model.config)
    gold: list[TaggedSentence] = []
    for path in paths:
        records = load_tagged([path]).records
        check_tags(records, labels, path)
        gold += records
    sentences = [truncate_words(tokenize_words(model.tokenizer, record.words), limit) for record in gold]
    scores = tag_log_probs(model.encoder_engine, sentences, model.tokenizer, model.config)
    predicted = [[labels[label] for label in log_probs_WL.argmax(1)] for log_probs_WL in scores]
    return score_spans(predicted, [record.tags for record in gold], [span_type(label) for label in labels[1:]])
