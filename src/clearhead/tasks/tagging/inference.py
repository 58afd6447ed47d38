"""Tagging (S6): one tag per word, and the spans that the tags mark.

The tag of a word is read at its first token. Sentences that are longer than those trained on are read in overlapping
windows.

S length in tokens, W words, C words taken from one window, L tags
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.config import Config, DecodingConfig
from clearhead.data.readers.labelled import TaggedSentence, load_tagged, sound_tags, tag_type
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import EncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import SpanReport, score_spans
from clearhead.tasks.label_prediction import log_softmax
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.tagging.overlapping_windows import (
    WordTokens,
    best_windows,
    cover_words,
    tokenize_words,
    truncate_words,
)
from clearhead.tasks.tagging.tagged_text import TaggedText, find_words, mark_spans
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import SPECIAL_TOKENS, EncoderCodec


def tag(
    model: LoadedModel, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[TaggedText]:
    """Return the spans of each text. Errors name a text by its line, counted from `first_line`.

    A long text is read in overlapping windows; a skipped one gives an empty text.
    """
    is_split, limit = model.tokenizer.config.kind == "pretokenized", max_window_tokens(model.config)
    tally = long_texts or LongTexts()
    texts, places, sentences = [*texts], list[list[tuple[int, int]]](), list[WordTokens]()
    for index, text in enumerate(texts):
        spans = find_words(text, is_split)
        words = [text[start:end] for start, end in spans]
        sentence = tokenize_words(model.tokenizer, words)
        if len(sentence.ids) > limit and not tally.record(first_line + index, len(sentence.ids), limit):
            texts[index], spans, sentence = "", [], WordTokens([], [])
        places.append(spans)
        sentences.append(truncate_words(sentence, limit))
    results = []
    found = tag_log_probs(model.encoder_engine, sentences, model.tokenizer, model.config)
    for text, spans, log_probs_WL in zip(texts, places, found, strict=True):
        best_W = log_probs_WL.argmax(1)
        tags = sound_tags(model.config.labels[index] for index in best_W)
        results.append(mark_spans(text, spans, tags, np.exp(log_probs_WL.max(1))))
    return results


def tag_log_probs(
    engine: EncoderEngine, sentences: Sequence[WordTokens], tokenizer: Tokenizer, config: Config
) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of the tags of each word of each sentence, [W, L]."""
    results = [np.zeros((len(pieces.firsts), len(config.labels))) for pieces in sentences]
    rows = _rows(sentences, tokenizer, max_window_tokens(config))
    for row, logits_SL in zip(rows, engine.logits([row.ids for row in rows]), strict=True):
        results[row.sentence][row.words_C] = log_softmax(logits_SL[row.places_C])
    return results


def max_window_tokens(config: Config) -> int:
    """How many pieces of a sentence are read at once: as many as in training, for later places were never trained."""
    return min(config.data.max_tokens, config.model.max_positions) - SPECIAL_TOKENS


class _Row(NamedTuple):
    """One window as the network reads it, and which words of which sentence are taken from it, and where."""

    ids: list[int]
    sentence: int
    words_C: NDArray[np.int64]
    places_C: NDArray[np.int64]


def _rows(sentences: Sequence[WordTokens], tokenizer: Tokenizer, room: int) -> list[_Row]:
    """All windows of the sentences; every word is taken from the one in which it has most context."""
    rows = []
    for index, pieces in enumerate(sentences):
        bounds, firsts_W = pieces.bounds, np.array(pieces.firsts, dtype=np.int64)
        found = cover_words(bounds, room)
        chosen_W = np.array(best_windows(bounds, found))
        for number, (start, end) in enumerate(found):
            words_C = np.flatnonzero(chosen_W == number)
            ids = EncoderCodec().add_special_tokens(tokenizer, pieces.ids[bounds[start] : bounds[end]])
            rows.append(_Row(ids, index, words_C, firsts_W[words_C] - bounds[start] + 1))
    return rows


def check_tags(records: Sequence[TaggedSentence], labels: Sequence[str], path: Path | str) -> None:
    """Refuses a type of spans that the model cannot know."""
    for record in records:
        for line, tag in enumerate(record.tags, record.line):
            if tag not in labels:
                types = sorted({tag_type(label) for label in labels} - {""})
                known = ", ".join(types[:8]) + (", ..." if len(types) > 8 else "")
                problem = f"the type {tag_type(tag)!r} is none of the types trained on; these are {known}"
                raise DataError.at(path, line, problem)


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> SpanReport:
    """Precision, recall and F1 over whole spans."""
    labels = model.config.labels
    truth: list[TaggedSentence] = []
    sentences: list[WordTokens] = []
    for path in paths:
        records = load_tagged([path]).records
        check_tags(records, labels, path)
        for record in records:
            sentences.append(
                truncate_words(tokenize_words(model.tokenizer, record.words), max_window_tokens(model.config))
            )
        truth += records
    found = tag_log_probs(model.encoder_engine, sentences, model.tokenizer, model.config)
    given = [[labels[index] for index in each_WL.argmax(1)] for each_WL in found]
    return score_spans(given, [record.tags for record in truth], [tag_type(name) for name in labels[1:]])
