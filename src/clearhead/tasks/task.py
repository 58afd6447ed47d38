"""A task: one kind of model, with its command, its settings and its text codec; and a loaded model as tasks see it.

Does not import torch: the training side of a task is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from clearhead.config import Config, DecodingConfig
from clearhead.data.records import Corpus, R
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.generator import Generator
from clearhead.engines.engine import EncoderEngine, Engine, ImageEngine, ScoringEngine
from clearhead.tasks.text_codec import TextCodec

if TYPE_CHECKING:
    from clearhead.tasks.trainable.task import PreparedTask, TaskRecords, TrainingFiles

Log = Callable[[str], object]


class LoadedModel(Protocol):
    """A trained model with the engines that run it, each made on first use."""

    @property
    def config(self) -> Config: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def network(self) -> Any:
        """The torch network, for what only torch can do."""

    @property
    def generating_engine(self) -> Engine: ...
    @property
    def generator(self) -> Generator: ...
    @property
    def encoder_engine(self) -> EncoderEngine: ...
    @property
    def image_engine(self) -> ImageEngine: ...
    @property
    def scoring_engine(self) -> ScoringEngine: ...


class EvaluationReport(Protocol):
    """Scores of a model on a test set; as text, one line each."""

    def to_json(self) -> Mapping[str, Any]:
        """Return the scores for programs."""


class TrainingModule(Protocol):
    """Training side of a task: the module `training` of its package."""

    def read(self, files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Any]:
        """Return the records to train and to validate on."""

    def make(self, config: Config, records: TaskRecords[Any], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
        """Return the prepared task; a given tokenizer (of a pretrained model) is used instead of a new one."""


class EvaluationModule(Protocol):
    """Evaluation side of a task."""

    def evaluate(
        self, model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log
    ) -> EvaluationReport:
        """Return the scores on test files; `tell` receives what was skipped."""


@dataclass(frozen=True)
class Task:
    """One kind of model."""

    name: str
    """As in `--task`."""
    verb: str
    """The command that runs such a model."""
    record_name: str
    """What files of the task contain, in the plural."""
    data_fields: tuple[str, ...]
    """The settings of the data section that it uses, besides those about holding out."""
    base: Mapping[str, Any]
    """Base settings, overridden by presets, recipes and users."""
    training: str
    """Name of the module below `tasks` with `read` and `make`."""
    evaluation: str
    """Name of the module below `tasks` with `evaluate`."""
    codec: TextCodec = field(default_factory=TextCodec)

    def read(self, files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Any]:
        """Return the records to train and to validate on."""
        return self._training.read(files, config, tell)

    def make(self, config: Config, records: TaskRecords[Any], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
        """Return the prepared task; a given tokenizer (of a pretrained model) is used instead of a new one."""
        return self._training.make(config, records, tokenizer, tell)

    def evaluate(
        self, model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log
    ) -> EvaluationReport:
        """Return the scores on test files; `tell` receives what was skipped."""
        module = cast(EvaluationModule, import_module(f"clearhead.tasks.{self.evaluation}"))
        return module.evaluate(model, paths, decoding, tell)

    @property
    def _training(self) -> TrainingModule:
        return cast(TrainingModule, import_module(f"clearhead.tasks.{self.training}"))


def test_records(corpus: Corpus[R], tell: Log) -> Sequence[R]:
    """Return the records of a test set; `tell` receives how it was read and what was skipped."""
    for line in corpus.skips.messages():
        tell(line)
    return corpus.records
