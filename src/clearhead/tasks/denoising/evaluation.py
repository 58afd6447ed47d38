"""Evaluation of denoising models (S9): restored spans at fixed masks, and the perplexity of what was masked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.config import Config, DecodingConfig
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError
from clearhead.tasks.denoising.span_corruption import SpanCorruption, find_sentinels, spans_by_sentinel
from clearhead.tasks.scoring import mean_target_nll
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import encode_documents
from clearhead.tasks.translation.inference import search_texts


@dataclass(frozen=True)
class SpanMatch:
    """Spans that were restored exactly, and one example: source, output, target."""

    right: int
    spans: int
    texts: int
    example: tuple[Sequence[int], Sequence[int], Sequence[int]]

    @property
    def share(self) -> float:
        """Share of the spans, from 0 to 1."""
        return self.right / self.spans

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
        """Return the scores for programs."""
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


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> DenoisingReport:
    """Return the share of restored spans at fixed masks, and the perplexity of the targets."""
    tokenizer, config = model.tokenizer, model.config
    documents = load_documents(paths, config.data.document_unit).records
    skips = SkipReport()
    texts, lines = split_documents(documents, tokenizer, max_text_tokens(config), skips, paths[0])
    for line in skips.lines():
        tell(f"skipped {line}")
    store = SpanCorruption(find_sentinels(tokenizer), config.data.mask_probability).fixed(texts, lines)
    sources = [store.source[index].tolist() for index in range(len(store))]
    found = search_texts(model, sources, 1, decoding)
    outputs = [hypotheses[0].tokens if hypotheses else () for hypotheses in found]
    nll = mean_target_nll(model.scoring_engine, store, tokenizer.eos_id)
    return DenoisingReport(score_spans(store, outputs, tokenizer), math.exp(nll))


def score_spans(store: PairIds, outputs: Sequence[Sequence[int]], tokenizer: Tokenizer) -> SpanMatch:
    """Return how many spans of the first texts the outputs restore; a span is right if all of its tokens are."""
    sentinels = find_sentinels(tokenizer)
    targets = [store.target[index].tolist() for index in range(len(outputs))]
    right = spans = 0
    for output, target in zip(outputs, targets, strict=True):
        expected, found = spans_by_sentinel(target, sentinels), spans_by_sentinel(output, sentinels)
        del expected[target[-1]]  # the last sentinel only ends the last span
        right += sum(found.get(sentinel) == span for sentinel, span in expected.items())
        spans += len(expected)
    shown = len(outputs) // 2
    return SpanMatch(right, spans, len(outputs), (store.source[shown].tolist(), outputs[shown], targets[shown]))


def split_documents(
    documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: SkipReport, path: Path
) -> tuple[list[list[int]], list[int]]:
    """Return texts of at most `limit` tokens and the line of each; longer documents are cut into equal parts."""
    texts: list[list[int]] = []
    lines: list[int] = []
    for document, ids in encode_documents(documents, tokenizer):
        if len(ids) < 2:
            skips.add("fewer than 2 pieces", path, document.line)
            continue
        for part in np.array_split(ids, math.ceil(len(ids) / limit)):
            texts.append(part.tolist())
            lines.append(document.line)
    if not texts:
        raise DataError(f"{path}: expected texts of at least 2 pieces, found none; set data.document_unit or add text")
    return texts, lines


def max_text_tokens(config: Config) -> int:
    """Return how many tokens a text may have; the end and one sentinel more than it masks need positions too."""
    return max(2, min(config.data.max_tokens, config.model.max_positions) - 2)
