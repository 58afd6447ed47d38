"""What a user asks of a training, and all that is known of it before its first update.

The folder and the loop of a run, from what was prepared for it.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead import bundle
from clearhead.config import Config
from clearhead.data.records import Record
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.parameters import count_parameters
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, RunOrigin
from clearhead.training.checkpoint.run_folder import EventFiles, NullRunFolder, RunFolder
from clearhead.training.distributed.device_setup import PlacedModel
from clearhead.training.distributed.process_group import ProcessGroup
from clearhead.training.loop.callbacks import Callback
from clearhead.training.loop.schedule import Schedule
from clearhead.training.loop.trainer import Trainer
from clearhead.training.setup.forgetting import OldValidation


@dataclass(frozen=True)
class TrainRequest:
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
class PreparedRun:
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


def build_trainer(
    prepared: PreparedRun,
    placed: PlacedModel,
    watcher: Callback,
    folder: RunFolder | NullRunFolder,
    processes: ProcessGroup,
) -> Trainer:
    """The loop over what was prepared."""
    config = prepared.config.training
    schedule = Schedule.fit(config, prepared.config.model.model_dim, config.steps)
    return Trainer(
        prepared.task, placed.model, config, schedule, watcher, folder, prepared.threads, processes, placed.whole
    )


def open_folder(
    request: TrainRequest, prepared: PreparedRun, state: CheckpointFolder, began: str, processes: ProcessGroup
) -> RunFolder | NullRunFolder:
    """Where the first process leaves the run; the others leave nothing."""
    if not processes.is_first:
        return NullRunFolder()
    facts = {
        "parameters": count_parameters(prepared.model),
        "processes": processes.count,
        "threads": prepared.threads,
        "device": processes.device.type,
        "machine": platform.machine(),
        "began": began,
    }
    origin = RunOrigin(
        config=prepared.config.model_dump(),
        data=prepared.data,
        start=prepared.start,
        threads=prepared.threads,
        processes=processes.count,
        torch=str(torch.__version__),
        began=began,
    )
    step = state.state.counts.step if state.state else 0
    events = EventFiles(request.out, step) if request.tensorboard else None
    text = tokenizer_text(prepared.tokenizer)
    return RunFolder(request.out, prepared.config, text, prepared.data, facts, origin, state, events)


def tokenizer_text(tokenizer: Tokenizer | None) -> str:
    """As it is kept, and told to other processes."""
    return tokenizer.to_json() if tokenizer else bundle.NO_TOKENIZER
