"""What a user asks of a training, and all that is known of it before its first update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.config import Config
from clearhead.data.records import Record
from clearhead.data.tokenizer import Tokenizer
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.old_validation import OldValidation


@dataclass(frozen=True)
class Request:
    """What a user asks for."""

    files: Sequence[Path]
    out: Path
    valid: Sequence[Path] = ()
    preset: str = ""
    settings: Mapping[str, Any] | None = None  # a recipe with the user's settings on top
    overwrite: bool = False
    threads: int = 0
    task: str = ""  # if not in the settings
    start: Path | None = None  # a model whose weights and tokenizer training starts from
    old_valid: Sequence[Path] = ()  # validation files of that model, scored before and after
    replay: Sequence[Path] = ()  # earlier training data to mix into each batch
    resume: bool = False  # go on with the run in `out`, if there is one
    device: str = "auto"  # auto (a GPU where there is one), cpu or cuda
    tensorboard: bool = False  # event files too


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first update."""

    config: Config
    tokenizer: Tokenizer | None
    task: TrainingTask[Any]
    model: nn.Module
    data: dict[str, Any]
    reasons: list[str]
    threads: int
    start: str  # the fingerprint of the model that training starts from
    validation: Sequence[Record]  # up to 500 validation records, to be kept for later fine-tuning
    usual_epochs: int = 0  # passes over the data that a run without a length makes
    old: OldValidation | None = None  # validation set of the model that training starts from
