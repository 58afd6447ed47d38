"""Training of text classification (S5) with a Transformer encoder or a recurrent network.

N texts, S length, L labels
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices
from clearhead.data.readers.labelled import LabelledText, load_labelled
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.tasks.classification.inference import CODEC, label_ids, label_log_probs, labels_with_locations
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import max_training_tokens
from clearhead.tasks.trainable.labels import LabelBatch, LabelTask, report_labels
from clearhead.tasks.trainable.records import (
    SequenceDataset,
    TaskRecords,
    TrainingFiles,
    drop_long,
    load_and_split,
)
from clearhead.tasks.trainable.task import PreparedTask


class ClassificationTask(LabelTask):
    """Classification of texts over one training and one validation corpus."""

    unit = "texts"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[LabelledText], dataset: SequenceDataset,
        valid: Sequence[LabelledText], valid_rows: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        super().__init__(
            config,
            dataset.examples(np.ones(len(dataset), dtype=np.int64)),
            label_ids(labels_with_locations(train, "training data"), config.labels),
            label_ids(labels_with_locations(valid, "validation data"), config.labels),
        )
        self.tokenizer, self.dataset = tokenizer, dataset
        self.valid, self.valid_rows = valid, valid_rows

    def batch(self, indices: Indices, epoch: int) -> LabelBatch:
        """Return the tensors of these texts."""
        ids_NS = self.dataset.rows(indices, self.tokenizer.pad_id)
        return LabelBatch(ids_NS, torch.from_numpy(self.labels_N[indices]))

    def valid_log_probs(self, model: Any) -> NDArray[np.float64]:
        """Return the log-probabilities of the labels of each validation text, [N, L]."""
        return label_log_probs(TorchEncoderEngine(model, self.config.training.batch_tokens), self.valid_rows)

    @property
    def valid_input(self) -> str:
        """The first validation text."""
        return self.valid[0].text


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[LabelledText]:
    """Read tables of text and label."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[LabelledText]:
        return load_labelled(paths, config.data.max_chars, minimum, TableOptions.from_config(config.data))

    return load_and_split(load, files, config, log, get_task("classify").record_name)


def prepare(config: Config, records: TaskRecords[LabelledText], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
    """Train the tokenizer, collect the labels, and return the prepared task."""
    counts = report_labels([record.label for record in records.corpus.records], "texts", log)
    labels = list(config.labels) or sorted(counts)
    if len(labels) < 2:
        problem = f"expected at least two different labels, found {labels}"
        raise DataError(f"{problem}; say which column is the label, as in --columns text=1,label=2")
    if tokenizer is None:
        tokenizer = Tokenizer.train((record.text for record in records.train), config.tokenizer)
    data_settings = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
    config = configs.override(config, {"model": data_settings, "labels": labels})
    limit, skips = max_training_tokens(config), SkipReport()
    train, rows = drop_long(records.train, _encode(records.train, tokenizer), limit, skips, Path("training data"))
    valid, valid_rows = drop_long(
        records.valid, _encode(records.valid, tokenizer), limit, skips, Path("validation data")
    )
    records.report_skips(skips, log)
    dataset = SequenceDataset.build(rows, [record.line for record in train])
    task = ClassificationTask(config, tokenizer, train, dataset, valid, valid_rows)
    return PreparedTask(config, tokenizer, task, {"label_counts": counts})


def _encode(records: Sequence[LabelledText], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of each text, with special tokens."""
    encoded = tokenizer.encode_batch([record.text for record in records])
    return [CODEC.add_special_tokens(tokenizer, ids) for ids in encoded]
