"""Classification (S5): a text in, one label out. Any body that reads will do: an encoder, or a recurrent network.

N texts, S length, L labels
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices
from clearhead.data.corpus import Corpus, Skips
from clearhead.data.labelled import Labelled, load_labelled
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.model.heads import LabelNetwork
from clearhead.model.loss import Loss
from clearhead.tasks.examples import Examples, check_length, drop_long, framed, in_batches, pad, split_indices
from clearhead.tasks.task import Files, Made, Ready, Records, Tell, Validation, hold_out


@dataclass(frozen=True)
class LabelBatch:
    """Texts as ids, and the number of each one's label."""

    ids_NS: Tensor
    labels_N: Tensor


@dataclass(frozen=True)
class Classified:
    """The label of a text, and how probable each label is."""

    label: str
    probabilities: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"label": self.label, "probabilities": self.probabilities}


class ClassificationTask:
    """The classification task over one training and one validation corpus."""

    unit = "texts"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[Labelled], examples: Examples,
        valid: Sequence[Labelled],
    ) -> None:  # fmt: skip
        self.config, self.tokenizer, self.examples, self.valid = config, tokenizer, examples, valid
        self.labels_N = label_numbers(train, config.labels, "training data")
        self.valid_rows = [framed(tokenizer, ids) for ids in tokenizer.encode_batch([one.text for one in valid])]
        self.valid_labels_N = label_numbers(valid, config.labels, "validation data")

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
        return split_indices(indices, parts)

    def tokens(self, indices: Indices) -> int:
        """A text is one prediction."""
        return len(indices)

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the training file."""
        return self.examples.lines_of(indices)

    def loss(self, model: LabelNetwork, batch: LabelBatch) -> Loss:
        """Smoothed cross-entropy over the labels, summed over the texts."""
        return label_loss(model(batch.ids_NS), batch.labels_N, self.config.training.label_smoothing)

    def validate(self, model: LabelNetwork) -> Validation:
        """Accuracy and log-loss."""
        log_probs_NL = label_log_probs(model, self.valid_rows, self.config)
        loss = float(-log_probs_NL[np.arange(len(self.valid)), self.valid_labels_N].mean())
        report = score_labels(log_probs_NL.argmax(1).tolist(), self.valid_labels_N.tolist(), self.config.labels)
        given = self.config.labels[int(log_probs_NL[0].argmax())]
        example = (self.valid[0].text, given, self.valid[0].label)
        return Validation(loss, math.exp(min(loss, 50.0)), 100 * report.accuracy, "accuracy", report.signature, example)


def label_loss(logits_NL: Tensor, labels_N: Tensor, smoothing: float) -> Loss:
    """The loss of logits against the right labels, summed."""
    smoothed = F.cross_entropy(logits_NL, labels_N, label_smoothing=smoothing, reduction="sum")
    nll = F.cross_entropy(logits_NL.detach(), labels_N, reduction="sum")
    return Loss(smoothed, nll, len(labels_N))


@torch.inference_mode()
def label_log_probs(network: LabelNetwork, rows: Sequence[Sequence[int]], config: Config) -> NDArray[np.float64]:
    """log_probs_NL of texts, those of like length together."""
    was_training = network.training
    network.eval()
    log_probs_NL = np.zeros((len(rows), len(config.labels)))
    for batch in in_batches([len(row) for row in rows], config.training.batch_tokens):
        ids_BS = torch.from_numpy(pad([rows[index] for index in batch], config.model.pad_id))
        log_probs_NL[batch] = network(ids_BS).double().log_softmax(-1).numpy()
    network.train(was_training)
    return log_probs_NL


def label_numbers(records: Sequence[Labelled], labels: Sequence[str], path: Path | str) -> NDArray[np.int64]:
    """The number of each record's label."""
    number = {label: index for index, label in enumerate(labels)}
    for record in records:
        if record.label not in number:
            known = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
            problem = f"the label {record.label!r} is none of the labels trained on; these are {known}"
            raise DataError.at(path, record.line, problem)
    return np.array([number[record.label] for record in records], dtype=np.int64)


def classify(model: Ready, texts: Sequence[str], first_line: int = 1) -> list[Classified]:
    """The label of each text. Errors name a text by its line, counted from `first_line`."""
    encoded = model.tokenizer.encode_batch(texts)
    for line, ids in enumerate(encoded, first_line):
        if not ids:
            raise DataError(f"line {line} is empty; there is nothing to classify")
        check_length(line, len(ids), model.config.model.max_positions - 2)
    rows = [framed(model.tokenizer, ids) for ids in encoded]
    labels = model.config.labels
    results = []
    for row_L in np.exp(label_log_probs(model.network, rows, model.config)):
        probabilities = {label: float(share) for label, share in zip(labels, row_L, strict=True)}
        results.append(Classified(labels[int(row_L.argmax())], probabilities))
    return results


class Classification:
    """What `--task classify` does."""

    name = "classify"
    verb = "classify"
    noun = "labelled texts"
    base: Mapping[str, Any] = {
        "task": "classify",
        "model": {"family": "encoder", "head": "label"},
        "training": {"label_smoothing": 0.0},
    }

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Labelled]:
        """TSV or JSONL of text and label."""

        def load(paths: Sequence[Path], minimum: int) -> Corpus[Labelled]:
            return load_labelled(paths, config.data.max_chars, minimum)

        return hold_out(load, files, config, tell, self.noun)

    def make(self, config: Config, records: Records[Labelled], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Learns the tokenizer and the list of labels."""
        labels = sorted({record.label for record in records.corpus.records})
        if len(labels) < 2:
            raise DataError(f"expected at least two different labels, found {labels}; is the label the second column?")
        if tokenizer is None:
            tokenizer = Tokenizer.train((record.text for record in records.train), config.tokenizer)
        known = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
        config = configs.override(config, {"model": known, "labels": labels})
        rows = [framed(tokenizer, ids) for ids in tokenizer.encode_batch([one.text for one in records.train])]
        limit = min(config.data.max_pieces, config.model.max_positions)
        skips = Skips()
        train, rows = drop_long(records.train, rows, limit, skips, Path("training data"))
        for line in skips.lines():
            tell(f"skipped {line}")
        records.corpus.skips.absorb(skips)
        examples = Examples.build(rows, [record.line for record in train])
        return Made(config, tokenizer, ClassificationTask(config, tokenizer, train, examples, records.valid))

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig) -> LabelReport:
        """Accuracy, F1 and confusion matrix."""
        rows: list[list[int]] = []
        truth: list[int] = []
        for path in paths:
            records = load_labelled([path], max_chars=sys.maxsize).records
            truth += label_numbers(records, model.config.labels, path).tolist()
            for record, ids in zip(records, model.tokenizer.encode_batch([one.text for one in records]), strict=True):
                rows.append(framed(model.tokenizer, ids))
                check_length(record.line, len(rows[-1]), model.config.model.max_positions, f"{path}: line")
        log_probs_NL = label_log_probs(model.network, rows, model.config)
        return score_labels(log_probs_NL.argmax(1).tolist(), truth, model.config.labels)
