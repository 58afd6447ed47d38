"""Classification (S5): a text in, one label out. Any body that reads will do: an encoder, or a recurrent network.

N texts, S length, L labels
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, divide
from clearhead.data.corpus import Corpus, Skips
from clearhead.data.labelled import Labelled, load_labelled
from clearhead.data.tables import TABLE_FIELDS, TableOptions
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import EncoderEngine
from clearhead.engines.torch_encoder_engine import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.model.heads import LabelNetwork
from clearhead.model.loss import Loss
from clearhead.tasks.baseline import Baseline, label_baseline
from clearhead.tasks.examples import (
    Examples,
    check_length,
    drop_long,
    framed,
    most_pieces,
)
from clearhead.tasks.framed_texts import split_framed
from clearhead.tasks.labels import (
    Classified,
    ClassifiedPart,
    answers,
    label_loss,
    label_numbers,
    label_validation,
    log_softmax,
    report_labels,
)
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.task import Decode, Files, Made, Ready, Records, Tell, Validation, hold_out, tested
from clearhead.tasks.texts import FramedText


@dataclass(frozen=True)
class LabelBatch:
    """Texts as ids, and the number of each one's label."""

    ids_NS: Tensor
    labels_N: Tensor


class ClassificationTask:
    """The classification task over one training and one validation corpus."""

    unit = "texts"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[Labelled], examples: Examples,
        valid: Sequence[Labelled], valid_rows: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        self.config, self.tokenizer, self.examples = config, tokenizer, examples
        self.valid, self.valid_rows = valid, valid_rows
        self.labels_N = label_numbers(places(train, "training data"), config.labels)
        self.valid_labels_N = label_numbers(places(valid, "validation data"), config.labels)

    def sizes(self) -> tuple[int, int]:
        """Texts to train on and to validate."""
        return len(self.examples), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        return self.examples.plan(self.config.training, epoch)

    def batch(self, indices: Indices, epoch: int) -> LabelBatch:
        """The tensors of these texts."""
        ids_NS = self.examples.rows(indices, self.tokenizer.pad_id)
        return LabelBatch(ids_NS, torch.from_numpy(self.labels_N[indices]))

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, self.examples.ids.lengths[indices])

    def tokens(self, indices: Indices) -> int:
        """A text is one prediction."""
        return len(indices)

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the training file."""
        return self.examples.lines_of(indices)

    def loss(self, model: LabelNetwork, batch: LabelBatch) -> Loss:
        """Smoothed cross-entropy over the labels, summed over the texts."""
        return label_loss(model(batch.ids_NS), batch.labels_N, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the labels, and the accuracy of the most frequent one."""
        return label_baseline(self.labels_N, self.valid_labels_N, len(self.config.labels), "the most frequent label")

    def validate(self, model: LabelNetwork, decode: Decode = "always") -> Validation:
        """Return accuracy and log-loss; nothing is decoded."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        log_probs_NL = label_log_probs(engine, self.valid_rows)
        return label_validation(
            log_probs_NL, self.valid_labels_N, self.config.labels, self.valid[0].text, self.baseline
        )


def label_log_probs(engine: EncoderEngine, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each row, [N, L]."""
    return log_softmax(np.stack(engine.logits(rows))) if rows else np.zeros((0, 0))


def places(records: Sequence[Labelled], path: Path | str) -> Iterator[tuple[str, str]]:
    """Each record's label with the place that it stands on."""
    return ((f"{path}:{record.line}", record.label) for record in records)


def classify(
    model: Ready, texts: Sequence[str], first_line: int = 1, long_texts: LongTexts | None = None
) -> list[Classified]:
    """Return the label of each text, an empty one for an empty text.

    The log-probabilities of a long text are the mean over its parts. Errors name a text by its line, counted from
    `first_line`.
    """
    split = split_framed(model, texts, long_texts or LongTexts(), first_line)
    log_probs_PL = label_log_probs(TorchEncoderEngine(model.network), split.rows)
    of_parts, labels = answers(log_probs_PL, model.config.labels), model.config.labels
    results = []
    for parts, span in zip(split.parts, split.spans, strict=True):
        if len(parts) <= 1:
            results += of_parts[span] or [Classified("", {})]
            continue
        mean_L = log_probs_PL[span].mean(0)
        [whole] = answers((mean_L - np.logaddexp.reduce(mean_L))[None], labels)
        results.append(replace(whole, parts=tuple(map(ClassifiedPart, parts, of_parts[span]))))
    return results


class Classification(FramedText):
    """What `--task classify` does."""

    name = "classify"
    verb = "classify"
    noun = "labelled texts"
    data_fields: tuple[str, ...] = (*TABLE_FIELDS, "max_chars", "max_tokens")
    base: Mapping[str, Any] = {
        "task": "classify",
        "model": {"family": "encoder", "head": "classification"},
        "training": {"label_smoothing": 0.0},
    }

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Labelled]:
        """Read tables of text and label."""

        def load(paths: Sequence[Path], minimum: int) -> Corpus[Labelled]:
            return load_labelled(paths, config.data.max_chars, minimum, TableOptions.of(config.data))

        return hold_out(load, files, config, tell, self.noun)

    def make(self, config: Config, records: Records[Labelled], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Train the tokenizer and collect the labels."""
        counts = report_labels([record.label for record in records.corpus.records], "texts", tell)
        labels = list(config.labels) or sorted(counts)
        if len(labels) < 2:
            problem = f"expected at least two different labels, found {labels}"
            raise DataError(f"{problem}; say which column is the label, as in --columns text=1,label=2")
        if tokenizer is None:
            tokenizer = Tokenizer.train((record.text for record in records.train), config.tokenizer)
        known = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
        config = configs.override(config, {"model": known, "labels": labels})
        rows = [framed(tokenizer, ids) for ids in tokenizer.encode_batch([one.text for one in records.train])]
        limit = min(config.data.max_tokens, config.model.max_positions)
        skips = Skips()
        train, rows = drop_long(records.train, rows, limit, skips, Path("training data"))
        valid_rows = [framed(tokenizer, ids) for ids in tokenizer.encode_batch([one.text for one in records.valid])]
        valid, valid_rows = drop_long(records.valid, valid_rows, limit, skips, Path("validation data"))
        records.account(skips, tell)
        examples = Examples.build(rows, [record.line for record in train])
        task = ClassificationTask(config, tokenizer, train, examples, valid, valid_rows)
        return Made(config, tokenizer, task, {"label_counts": counts})

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> LabelReport:
        """Accuracy, F1 and confusion matrix."""
        rows: list[list[int]] = []
        truth: list[int] = []
        for path in paths:
            records = tested(load_labelled([path], sys.maxsize, table=TableOptions.of(model.config.data)), tell)
            truth += label_numbers(places(records, path), model.config.labels).tolist()
            for record, ids in zip(records, model.tokenizer.encode_batch([one.text for one in records]), strict=True):
                rows.append(framed(model.tokenizer, ids))
                check_length(record.line, len(rows[-1]), most_pieces(model.config), f"{path}: line")
        log_probs_NL = label_log_probs(TorchEncoderEngine(model.network), rows)
        return score_labels(log_probs_NL.argmax(1).tolist(), truth, model.config.labels)
