"""The folder and the loop of a run, from what was prepared for it."""

import platform

import torch

from clearhead import bundle
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.parameters import count_parameters
from clearhead.training.events import Watcher
from clearhead.training.keeper import Elsewhere, RunFolder
from clearhead.training.placing import Placed
from clearhead.training.processes import Processes
from clearhead.training.request import Prepared, Request
from clearhead.training.schedule import Schedule
from clearhead.training.state import Origin, StateFolder
from clearhead.training.tensorboard import EventFiles
from clearhead.training.trainer import Trainer


def open_trainer(
    prepared: Prepared, placed: Placed, watcher: Watcher, folder: RunFolder | Elsewhere, processes: Processes
) -> Trainer:
    """The loop over what was prepared."""
    config = prepared.config.training
    schedule = Schedule.fit(config, prepared.config.model.model_dim, config.steps)
    return Trainer(
        prepared.task, placed.model, config, schedule, watcher, folder, prepared.threads, processes, placed.whole
    )


def open_folder(
    request: Request, prepared: Prepared, state: StateFolder, began: str, processes: Processes
) -> RunFolder | Elsewhere:
    """Where the first process leaves the run; the others leave nothing."""
    if not processes.is_first:
        return Elsewhere()
    facts = {
        "parameters": count_parameters(prepared.model),
        "processes": processes.count,
        "threads": prepared.threads,
        "device": processes.device.type,
        "machine": platform.machine(),
        "began": began,
    }
    origin = Origin(
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
