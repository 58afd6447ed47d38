"""Classification of texts (S5): one label per text.

N texts, P parts of texts, L labels
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.data.readers.labelled import LabelledText, load_labelled
from clearhead.data.readers.tables import TableOptions
from clearhead.engines.engine import EncoderEngine
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.tasks.label_prediction import (
    Classification,
    ClassificationPart,
    label_ids,
    log_softmax,
    to_classifications,
)
from clearhead.tasks.long_texts import LongTexts, split_into_rows
from clearhead.tasks.task import LoadedModel, Log, test_records
from clearhead.tasks.text_codec import EncoderCodec, check_length, max_input_tokens


def classify(
    model: LoadedModel, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[Classification]:
    """Return the label of each text, an empty one for an empty text.

    The log-probabilities of a long text are the mean over its parts. Errors name a text by its line, counted from
    `first_line`.
    """
    split = split_into_rows(model, texts, long_texts or LongTexts(), first_line)
    log_probs_PL = label_log_probs(model.encoder_engine, split.rows)
    of_parts, labels = to_classifications(log_probs_PL, model.config.labels), model.config.labels
    results = []
    for parts, span in zip(split.parts, split.spans, strict=True):
        if len(parts) <= 1:
            results += of_parts[span] or [Classification("", {})]
            continue
        mean_L = log_probs_PL[span].mean(0)
        [whole] = to_classifications((mean_L - np.logaddexp.reduce(mean_L))[None], labels)
        results.append(replace(whole, parts=tuple(map(ClassificationPart, parts, of_parts[span]))))
    return results


def label_log_probs(engine: EncoderEngine, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each row, [N, L]."""
    return log_softmax(np.stack(engine.logits(rows))) if rows else np.zeros((0, 0))


def label_locations(records: Sequence[LabelledText], path: Path | str) -> Iterator[tuple[str, str]]:
    """Each record's label with the place that it stands on."""
    return ((f"{path}:{record.line}", record.label) for record in records)


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> LabelReport:
    """Accuracy, F1 and confusion matrix."""
    rows: list[list[int]] = []
    truth: list[int] = []
    for path in paths:
        records = test_records(load_labelled([path], sys.maxsize, table=TableOptions.of(model.config.data)), tell)
        truth += label_ids(label_locations(records, path), model.config.labels).tolist()
        for record, ids in zip(records, model.tokenizer.encode_batch([one.text for one in records]), strict=True):
            rows.append(EncoderCodec().add_special_tokens(model.tokenizer, ids))
            check_length(record.line, len(rows[-1]), max_input_tokens(model.config), f"{path}: line")
    log_probs_NL = label_log_probs(model.encoder_engine, rows)
    return score_labels(log_probs_NL.argmax(1).tolist(), truth, model.config.labels)
