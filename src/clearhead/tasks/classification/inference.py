"""Text classification (S5): one label per text. The functions for labels are used for images too.

N examples, P parts of texts, L labels
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.data.readers.labelled import LabelledText, load_labelled
from clearhead.data.readers.tables import TableOptions
from clearhead.engines.engine import EncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.json_format import INLINE, OMIT_IF_EMPTY, JsonResult
from clearhead.tasks.long_texts import LongTexts, split_into_rows
from clearhead.tasks.task import LoadedModel, Log, usable_records
from clearhead.tasks.text_codec import EncoderCodec, check_length, max_input_tokens

CODEC = EncoderCodec()


@dataclass(frozen=True)
class Classification(JsonResult):
    """The label of a text or image, and the probability of each label."""

    label: str
    """The predicted label; empty for an empty or skipped text."""
    probabilities: dict[str, float]
    parts: tuple["ClassificationPart", ...] = field(default=(), metadata=OMIT_IF_EMPTY)
    """The parts of a text that was too long for the model; its log-probabilities are the mean over them."""


@dataclass(frozen=True)
class ClassificationPart(JsonResult):
    """One part of a text and its label."""

    text: str
    classification: Classification = field(metadata=INLINE)


def classify(
    model: LoadedModel, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[Classification]:
    """Return the label of each text, an empty one for an empty text.

    The log-probabilities of a long text are the mean over its parts. Errors name a text by its line, counted from
    `first_line`.
    """
    split = split_into_rows(model, texts, long_texts or LongTexts(), first_line)
    log_probs_PL, labels = label_log_probs(model.encoder_engine, split.rows), model.config.labels
    part_results = to_classifications(log_probs_PL, labels)
    results = []
    for parts, span in zip(split.parts, split.spans, strict=True):
        if len(parts) <= 1:
            results += part_results[span] or [Classification("", {})]
            continue
        mean_L = log_probs_PL[span].mean(0)
        [whole] = to_classifications((mean_L - np.logaddexp.reduce(mean_L))[None], labels)
        results.append(replace(whole, parts=tuple(map(ClassificationPart, parts, part_results[span]))))
    return results


def label_log_probs(engine: EncoderEngine, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each row, [N, L]."""
    return log_softmax(np.stack(engine.logits(rows))) if rows else np.zeros((0, 0))


def to_classifications(log_probs_NL: NDArray[np.float64], labels: Sequence[str]) -> list[Classification]:
    """Return the best label of each example, with the probabilities of all labels."""
    results = []
    for probs_L in np.exp(log_probs_NL):
        probabilities = {label: float(prob) for label, prob in zip(labels, probs_L, strict=True)}
        results.append(Classification(labels[int(probs_L.argmax())], probabilities))
    return results


def label_ids(located_labels: Iterable[tuple[str, str]], labels: Sequence[str]) -> NDArray[np.int64]:
    """Return the label ids of (location, label) pairs; raise DataError with the location of an unknown label."""
    id_of = {label: index for index, label in enumerate(labels)}
    ids = []
    for location, label in located_labels:
        if label not in id_of:
            examples = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
            advice = "; if line 1 is a header, set data.header=yes" if location.endswith(":1") else ""
            raise DataError(f"{location}: expected a label of the training data ({examples}), found {label!r}{advice}")
        ids.append(id_of[label])
    return np.array(ids, dtype=np.int64)


def labels_with_locations(records: Sequence[LabelledText], path: Path | str) -> Iterator[tuple[str, str]]:
    """Yield the location (file and line) and the label of each record."""
    return ((f"{path}:{record.line}", record.label) for record in records)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log-probabilities over the last axis."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    log_probs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return log_probs


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> LabelReport:
    """Return accuracy, F1 and confusion matrix."""
    rows: list[list[int]] = []
    gold: list[int] = []
    for path in paths:
        records = usable_records(
            load_labelled([path], sys.maxsize, table=TableOptions.from_config(model.config.data)), log
        )
        gold += label_ids(labels_with_locations(records, path), model.config.labels).tolist()
        encoded = model.tokenizer.encode_batch([record.text for record in records])
        for record, ids in zip(records, encoded, strict=True):
            rows.append(CODEC.add_special_tokens(model.tokenizer, ids))
            check_length(record.line, len(rows[-1]), max_input_tokens(model.config), f"{path}: line")
    log_probs_NL = label_log_probs(model.encoder_engine, rows)
    return score_labels(log_probs_NL.argmax(1).tolist(), gold, model.config.labels)
