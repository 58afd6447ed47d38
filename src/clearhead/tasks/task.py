"""Description of a task, and interfaces between tasks and loaded models.

This module does not import torch: the training module of a task is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from clearhead.config import Config, DecodingConfig
from clearhead.data.records import Corpus, R
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.generator import Generator
from clearhead.engines.engine import EncoderEngine, Engine, ImageEngine, ScoringEngine
from clearhead.errors import TaskError
from clearhead.tasks.text_codec import TextCodec

if TYPE_CHECKING:
    from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles
    from clearhead.tasks.trainable.task import PreparedTask

Log = Callable[[str], object]
"""Function that shows one line to the user."""


class LoadedModel(Protocol):
    """A trained model with the engines that run it, each created on first use."""

    @property
    def config(self) -> Config: ...
    @property
    def task(self) -> Task: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def network(self) -> Any:
        """The torch network, for computations that only torch supports."""

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
    """Scores of a model on a test set; as text, one score per line."""

    def to_json(self) -> Mapping[str, Any]:
        """Return the scores as a JSON object."""


class InferenceModule(Protocol):
    """The module `inference` of a task's package. It does not import torch."""

    CODEC: TextCodec
    """Conversion between text and token ids."""

    def evaluate(
        self, model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log
    ) -> EvaluationReport:
        """Return the scores on test files; `log` receives one line per reason for skipping records."""


class TrainingModule(Protocol):
    """The module `training` of a task's package."""

    def load_records(self, files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Any]:
        """Return the training and validation records."""

    def prepare(self, config: Config, records: TaskRecords[Any], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
        """Return the prepared task; `tokenizer` is that of a pretrained model, without which a new one is trained."""


@dataclass(frozen=True)
class Task:
    """Kind of model, with its command, its settings and the package that implements it."""

    name: str
    """Value of `--task`."""
    package: str
    """Package below `tasks` with the modules `inference` and `training`."""
    verb: str
    """Command that runs models of this task."""
    record_name: str
    """Name of the records in its files, in the plural, for messages."""
    data_fields: tuple[str, ...]
    """Settings of the data section that the task uses, besides those about validation data."""
    base: Mapping[str, Any]
    """Base settings, overridden by presets, recipes and users."""
    untrainable: str = ""
    """Reason why models of this task cannot be trained; empty if they can."""

    @property
    def codec(self) -> TextCodec:
        """Conversion between text and token ids."""
        return self._inference.CODEC

    def load_records(self, files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Any]:
        """Return the training and validation records."""
        return self._training.load_records(files, config, log)

    def prepare(self, config: Config, records: TaskRecords[Any], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
        """Return the prepared task; `tokenizer` is that of a pretrained model, without which a new one is trained."""
        return self._training.prepare(config, records, tokenizer, log)

    def evaluate(
        self, model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log
    ) -> EvaluationReport:
        """Return the scores on test files; `log` receives one line per reason for skipping records."""
        return self._inference.evaluate(model, paths, decoding, log)

    @property
    def _inference(self) -> InferenceModule:
        return cast(InferenceModule, import_module(f"clearhead.tasks.{self.package}.inference"))

    @property
    def _training(self) -> TrainingModule:
        if self.untrainable:
            raise TaskError(self.untrainable)
        return cast(TrainingModule, import_module(f"clearhead.tasks.{self.package}.training"))


def usable_records(corpus: Corpus[R], log: Log) -> Sequence[R]:
    """Return the records of a test set; log how it was read and which records were skipped."""
    for line in corpus.skips.messages():
        log(line)
    return corpus.records
