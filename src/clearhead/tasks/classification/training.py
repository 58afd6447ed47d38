"""Classification (S5): a text in, one label out. Any body that reads will do: an encoder, or a recurrent network.

N texts, S length, L labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, divide
from clearhead.data.readers.labelled import LabelledText, load_labelled
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.model.loss import Loss
from clearhead.model.output_heads import SequenceClassifier
from clearhead.tasks.classification.inference import label_locations, label_log_probs
from clearhead.tasks.label_prediction import label_ids
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import EncoderCodec
from clearhead.tasks.trainable.baseline import Baseline, label_baseline
from clearhead.tasks.trainable.batches import SequenceDataset, drop_long
from clearhead.tasks.trainable.label_training import label_loss, label_validation, report_labels
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation, load_and_split


@dataclass(frozen=True)
class LabelBatch:
    """Texts as ids, and the number of each one's label."""

    ids_NS: Tensor
    labels_N: Tensor


class ClassificationTask:
    """The classification task over one training and one validation corpus."""

    unit = "texts"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[LabelledText], examples: SequenceDataset,
        valid: Sequence[LabelledText], valid_rows: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        self.config, self.tokenizer, self.examples = config, tokenizer, examples
        self.valid, self.valid_rows = valid, valid_rows
        self.labels_N = label_ids(label_locations(train, "training data"), config.labels)
        self.valid_labels_N = label_ids(label_locations(valid, "validation data"), config.labels)

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

    def loss(self, model: SequenceClassifier, batch: LabelBatch) -> Loss:
        """Smoothed cross-entropy over the labels, summed over the texts."""
        return label_loss(model.logits(model(batch.ids_NS)), batch.labels_N, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the labels, and the accuracy of the most frequent one."""
        return label_baseline(self.labels_N, self.valid_labels_N, len(self.config.labels), "the most frequent label")

    def validate(self, model: SequenceClassifier, decode: Decode = "always") -> Validation:
        """Return accuracy and log-loss; nothing is decoded."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        log_probs_NL = label_log_probs(engine, self.valid_rows)
        return label_validation(
            log_probs_NL, self.valid_labels_N, self.config.labels, self.valid[0].text, self.baseline
        )


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[LabelledText]:
    """Read tables of text and label."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[LabelledText]:
        return load_labelled(paths, config.data.max_chars, minimum, TableOptions.of(config.data))

    return load_and_split(load, files, config, tell, get_task("classify").record_name)


def make(config: Config, records: TaskRecords[LabelledText], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
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
    rows = [
        EncoderCodec().add_special_tokens(tokenizer, ids)
        for ids in tokenizer.encode_batch([one.text for one in records.train])
    ]
    limit = min(config.data.max_tokens, config.model.max_positions)
    skips = SkipReport()
    train, rows = drop_long(records.train, rows, limit, skips, Path("training data"))
    valid_rows = [
        EncoderCodec().add_special_tokens(tokenizer, ids)
        for ids in tokenizer.encode_batch([one.text for one in records.valid])
    ]
    valid, valid_rows = drop_long(records.valid, valid_rows, limit, skips, Path("validation data"))
    records.account(skips, tell)
    examples = SequenceDataset.build(rows, [record.line for record in train])
    task = ClassificationTask(config, tokenizer, train, examples, valid, valid_rows)
    return PreparedTask(config, tokenizer, task, {"label_counts": counts})
