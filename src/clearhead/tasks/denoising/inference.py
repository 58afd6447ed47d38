"""Denoising (S9): span corruption (T5, section 3.1.4), sentinels in texts, and evaluation with fixed corruptions.

Sentinels such as <x0> are special tokens. Text is never encoded as a sentinel, except in inputs in which users mark
missing spans.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearhead.config import Config, DecodingConfig
from clearhead.data.corpus.id_arrays import IdArrays, PairIds
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.perplexity import perplexity
from clearhead.tasks.scoring import mean_target_nll
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import TextCodec, encode_documents, max_training_tokens
from clearhead.tasks.translation.inference import search_texts

MEAN_SPAN_LENGTH = 3
SENTINEL = re.compile(r"<x[0-9]+>")
FIXED_SEED = 0  # validation and test texts are corrupted in the same way for every model and run


class CorruptedText(NamedTuple):
    """A corrupted text as source and target.

    The source has sentinels instead of some spans; the target has each sentinel with its span.
    """

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class SpanCorruption:
    """Random replacement of a share of the tokens by sentinels, in spans of mean length 3."""

    sentinels: tuple[int, ...]
    share: float

    def counts(self, length: int) -> tuple[int, int]:
        """Return the numbers of corrupted tokens and of spans in a text of this length."""
        corrupted = min(max(1, round(length * self.share)), length - 1)
        spans = max(1, min(round(corrupted / MEAN_SPAN_LENGTH), len(self.sentinels) - 1, length - corrupted + 1))
        return corrupted, spans

    def apply(self, ids: Sequence[int], rng: np.random.Generator) -> CorruptedText:
        """Return the corrupted text. Span positions are equally probable; at least one token separates two spans."""
        num_corrupted, num_spans = self.counts(len(ids))
        corrupted_lengths = _random_composition(num_corrupted, num_spans, rng)
        intact_lengths = _random_composition(len(ids) - num_corrupted + 2, num_spans + 1, rng)
        intact_lengths[0] -= 1  # the text may begin or end with a span
        source: list[int] = []
        target: list[int] = []
        position = 0
        for sentinel, intact, corrupted in zip(self.sentinels, intact_lengths, corrupted_lengths, strict=False):
            source += [*ids[position : position + intact], sentinel]
            target += [sentinel, *ids[position + intact : position + intact + corrupted]]
            position += intact + corrupted
        return CorruptedText([*source, *ids[position:]], [*target, self.sentinels[num_spans]])

    def apply_fixed(self, texts: Sequence[Sequence[int]], lines: Sequence[int]) -> PairIds:
        """Return the corrupted texts; the corruption of a text depends only on its index."""
        corrupted = [self.apply(ids, np.random.default_rng([FIXED_SEED, index])) for index, ids in enumerate(texts)]
        sources, targets = (IdArrays.build(side) for side in zip(*corrupted, strict=True))
        return PairIds(sources, targets, np.asarray(lines, dtype=np.int64))


def _random_composition(total: int, count: int, rng: np.random.Generator) -> list[int]:
    """Return `count` numbers of at least 1 whose sum is `total`; all compositions are equally probable."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return [int(part) for part in np.diff(np.concatenate(([0], cuts, [total])))]


def find_sentinels(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of <x0>, <x1>, ... in a tokenizer; raise ConfigError if there are fewer than two."""
    names = [name for name in tokenizer.config.special_tokens if SENTINEL.fullmatch(name)]
    if len(names) < 2:
        raise ConfigError(
            f"denoising needs a tokenizer with two or more sentinels such as <x0>, this one has {len(names)}; "
            "name them in tokenizer.special_tokens, or do not start from this model."
        )
    return tuple(tokenizer.config.all_special_tokens.index(name) for name in names)


def spans_by_sentinel(ids: Sequence[int], sentinels: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the tokens that follow each sentinel; for a repeated sentinel, those after its first occurrence."""
    spans: dict[int, tuple[int, ...]] = {}
    starts = [position for position, token in enumerate(ids) if token in sentinels]
    for start, end in pairwise([*starts, len(ids)]):
        spans.setdefault(ids[start], tuple(ids[start + 1 : end]))
    return spans


def encode_with_sentinels(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text; names of sentinels such as <x0> are encoded as sentinels."""
    id_of = {tokenizer.config.all_special_tokens[token]: token for token in find_sentinels(tokenizer)}
    parts = re.split(f"({'|'.join(map(re.escape, id_of))})", text)
    ids: list[int] = []
    for number, part in enumerate(parts):
        if number % 2:
            ids.append(id_of[part])
        elif part:
            ids += _encode_between(tokenizer, part, is_first=number == 0, is_last=number == len(parts) - 1)
    return ids


def _encode_between(tokenizer: Tokenizer, part: str, is_first: bool, is_last: bool) -> list[int]:
    """Return the ids of the text between two sentinels, as they would be in the whole text.

    A tokenizer adds a space before every text and removes spaces at its ends, which would be wrong for a part. To
    preserve the spaces of the part, it is encoded with an unrelated character at each end, whose tokens are removed
    again. Where a space is part of the token after it, the space before a sentinel belongs to the missing span.
    """
    if tokenizer.config.kind != "char" and not is_last:
        part = part.rstrip()
    if not part:
        return []
    has_space = part[0].isspace() and tokenizer.config.kind != "char"
    part = part[1:] if has_space and not is_first else part
    before = "" if is_first or has_space else _unrelated_character(part[0])
    after = "" if is_last or tokenizer.config.kind != "char" else "0"
    lengths = [len(tokenizer.encode_batch([edge])[0]) if edge else 0 for edge in (before, after)]
    ids = tokenizer.encode_batch([before + part + after])[0]
    return ids[lengths[0] : len(ids) - lengths[1]]


def _unrelated_character(char: str) -> str:
    """Return a character that no tokenizer merges with `char`: a period for a digit, a digit otherwise."""
    return "." if char.isdecimal() else "0"


def decode_with_sentinels(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of the ids, with the names of the sentinels."""
    sentinels = find_sentinels(tokenizer)
    starts = [0, *(position for position, token in enumerate(ids) if token in sentinels), len(ids)]
    parts = []
    for start, end in pairwise(starts):
        span = ids[start:end]
        name = tokenizer.token(span[0]) if len(span) and span[0] in sentinels else ""
        parts += [part for part in (name, tokenizer.decode(span)) if part]
    return " ".join(parts)


class SentinelCodec(TextCodec):
    """Text in which sentinels such as <x0> mark missing spans."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens except sentinels."""
        return [encode_with_sentinels(tokenizer, text) for text in texts]

    def detokenize(self, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
        """Return the text of generated ids, with the sentinels."""
        return decode_with_sentinels(tokenizer, ids)


CODEC = SentinelCodec()


@dataclass(frozen=True)
class SpanMatch:
    """Number of spans that were restored exactly, and one example: source, output, target."""

    correct: int
    spans: int
    texts: int
    example: tuple[Sequence[int], Sequence[int], Sequence[int]]

    @property
    def share(self) -> float:
        """Share of correct spans, from 0 to 1."""
        return self.correct / self.spans

    @property
    def signature(self) -> str:
        """Number of texts and spans."""
        return f"texts:{self.texts}|spans:{self.spans}"


@dataclass(frozen=True)
class DenoisingReport:
    """Scores on a test set."""

    spans: SpanMatch
    perplexity: float

    def to_json(self) -> dict[str, Any]:
        """Return the scores as a JSON object."""
        return {
            "span_match": {"score": self.spans.share, "signature": self.spans.signature},
            "perplexity": self.perplexity,
            "examples": self.spans.texts,
        }

    def __str__(self) -> str:
        return (
            f"span match {100 * self.spans.share:.2f} % {self.spans.signature}\n"
            f"perplexity {self.perplexity:.3f}\nexamples {self.spans.texts}"
        )


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> DenoisingReport:
    """Return the share of restored spans with fixed corruptions, and the perplexity of the targets."""
    tokenizer, config = model.tokenizer, model.config
    documents = load_documents(paths, config.data.document_unit).records
    skips = SkipReport()
    texts, lines = split_documents(documents, tokenizer, max_text_tokens(config), skips, paths[0])
    for line in skips.summary():
        log(f"skipped {line}")
    corruption = SpanCorruption(find_sentinels(tokenizer), config.data.mask_probability)
    pairs = corruption.apply_fixed(texts, lines)
    sources = [pairs.source[index].tolist() for index in range(len(pairs))]
    results = search_texts(model, sources, 1, decoding)
    outputs = [hypotheses[0].tokens if hypotheses else () for hypotheses in results]
    nll = mean_target_nll(model.scoring_engine, pairs, tokenizer.eos_id)
    return DenoisingReport(score_spans(pairs, outputs, tokenizer), perplexity(nll))


def score_spans(pairs: PairIds, outputs: Sequence[Sequence[int]], tokenizer: Tokenizer) -> SpanMatch:
    """Return how many spans the outputs restore, for the first `len(outputs)` texts.

    A span is correct if all of its tokens are correct.
    """
    sentinels = find_sentinels(tokenizer)
    targets = [pairs.target[index].tolist() for index in range(len(outputs))]
    num_correct = num_spans = 0
    for output, target in zip(outputs, targets, strict=True):
        expected, restored = spans_by_sentinel(target, sentinels), spans_by_sentinel(output, sentinels)
        del expected[target[-1]]  # the last sentinel only ends the last span
        num_correct += sum(restored.get(sentinel) == span for sentinel, span in expected.items())
        num_spans += len(expected)
    middle = len(outputs) // 2
    example = pairs.source[middle].tolist(), outputs[middle], targets[middle]
    return SpanMatch(num_correct, num_spans, len(outputs), example)


def split_documents(
    documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: SkipReport, path: Path
) -> tuple[list[list[int]], list[int]]:
    """Return texts of at most `limit` tokens and their lines; longer documents are split into equal parts."""
    texts: list[list[int]] = []
    lines: list[int] = []
    for document, ids in encode_documents(documents, tokenizer):
        if len(ids) < 2:
            skips.add("fewer than 2 tokens", path, document.line)
            continue
        for part in np.array_split(ids, math.ceil(len(ids) / limit)):
            texts.append(part.tolist())
            lines.append(document.line)
    if not texts:
        raise DataError(f"{path}: expected texts of at least 2 tokens, found none; set data.document_unit or add text")
    return texts, lines


def max_text_tokens(config: Config) -> int:
    """Return the largest number of tokens of a text; the end token and the last sentinel need positions too."""
    return max(2, max_training_tokens(config) - 2)
