"""A training run from request to result: prepare, move the model to its device, train, select the weights, save.

Each stage returns one object: `TrainRequest` -> `ResolvedRequest` -> `PreparedRun` -> `Trainer` -> `TrainingResult`.
"""

import platform
import time
from contextlib import ExitStack
from dataclasses import replace

import torch

from clearhead import bundle
from clearhead import config as configs
from clearhead.errors import ClearheadError, ConfigError, TrainingError
from clearhead.model.parameters import count_parameters, restore
from clearhead.training.checkpoint import run_folder
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, RunOrigin
from clearhead.training.checkpoint.finalize import TrainingResult, finalize, report_finished
from clearhead.training.checkpoint.resume import OriginalRun, RestoredRun, planned_steps, requests_longer_run
from clearhead.training.checkpoint.run_folder import METRICS, TRAINING, EventFiles, RunFolder, require_tensorboard
from clearhead.training.checkpoint.run_history import locked
from clearhead.training.distributed.device_setup import PlacedModel, place_model
from clearhead.training.distributed.process_group import (
    SINGLE_PROCESS,
    ProcessGroup,
    init_distributed,
    torchrun_job,
    was_restarted,
)
from clearhead.training.loop.callbacks import Callback, NullCallback, NullRunLogger
from clearhead.training.loop.process_environment import use_single_arena
from clearhead.training.loop.schedule import Schedule
from clearhead.training.loop.trainer import Trainer
from clearhead.training.setup.auto_config import Estimate, benchmark_step
from clearhead.training.setup.finetune import tokenizer_to_text
from clearhead.training.setup.forgetting import VALIDATION, write_records
from clearhead.training.setup.prepare import (
    PreparedRun,
    RunContext,
    prepare_resumed_run,
    prepare_run,
    read_unchanged_data,
)
from clearhead.training.setup.request import ResolvedRequest, TrainRequest

__all__ = ["PreparedRun", "TrainRequest", "dry_run", "prepare", "train"]

REFUSED, FINISHED = "refused", "finished"  # sent by rank 0 to the other ranks instead of a saved run


def train(request: TrainRequest, callback: Callback) -> TrainingResult:
    """Run or resume a training and return its result; every process of a distributed training calls this."""
    resolved = request.resolve()
    if request.tensorboard:
        require_tensorboard()
    with init_distributed(request.device) as group:
        if not group.is_rank0:
            return _run_worker(RunContext(resolved, NullCallback(), group))
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(request.out))
                context = RunContext(_after_restart(resolved), callback, group)
                existing = _find_existing(context)
            except ClearheadError:
                group.broadcast_text(REFUSED)
                raise
            return _run_rank0(context, existing)


def dry_run(request: TrainRequest, callback: Callback) -> None:
    """Report the plan of a training with its time and memory, without writing any file."""
    if request.resume:
        raise ConfigError("--dry-run shows the plan of a new training; leave out --resume")
    with init_distributed(request.device) as group:
        context = RunContext(request.resolve(), callback if group.is_rank0 else NullCallback(), group)
        prepared = prepare_run(context)
        _announce(prepared, context.callback)
        placed = place_model(prepared.model, prepared.config.training, group, context.callback)
        estimate = _measure(prepared, placed, group)
        context.callback.message(str(estimate))
        context.callback.message(estimate.describe_epochs(prepared.default_epochs))
        _warn_short(prepared, estimate, context.callback)


def prepare(request: TrainRequest, callback: Callback, group: ProcessGroup = SINGLE_PROCESS) -> PreparedRun:
    """Return a new run, prepared up to its first update."""
    return prepare_run(RunContext(request.resolve(), callback, group))


# Decision between a new run, a resumed run and a finished one


def _after_restart(request: ResolvedRequest) -> ResolvedRequest:
    """Return the request; after a restart by torchrun, changed to resume the run and not to overwrite it."""
    if not was_restarted():
        return request
    resume = request.options.resume or run_folder.belongs_to_this_job(request.out)
    return replace(request, options=replace(request.options, resume=resume, overwrite=False))


def _find_existing(context: RunContext) -> RestoredRun | TrainingResult | None:
    """Return the run to be resumed, the result of a finished run, or None for a new run."""
    request, options = context.request, context.request.options
    run_folder.check_folder(request.out, overwrite=options.overwrite, resume=options.resume)
    if not options.resume:
        if options.overwrite and torchrun_job():
            run_folder.initialize(request.out)  # before the training, so that a restart recognises the run as its own
        return None
    restored = RestoredRun.load(request.out)
    if restored and not restored.state.is_finished:
        return restored
    if restored or run_folder.is_finished(request.out):
        return _find_finished(context, restored)
    context.callback.message(f"{request.out} has no checkpoint yet: starting from the beginning")
    return None


def _find_finished(context: RunContext, restored: RestoredRun | None) -> RestoredRun | TrainingResult:
    """Return a finished run as resumable if the request makes it longer, else its result."""
    request = context.request
    config = restored.config if restored else configs.parse(bundle.load(request.out).config)
    planned = restored.state.steps if restored else config.training.steps
    if not requests_longer_run(config, request.settings, planned):
        hashes = restored.old_hashes if restored else frozenset[float]()
        read_unchanged_data(context, OriginalRun.load(request.out, restored), hashes, lambda _: None)
        return report_finished(request.out, context.callback)
    if restored is None:
        raise TrainingError(
            f"{request.out} is finished and its {TRAINING}/ was deleted, so it cannot be resumed; "
            f"--from {request.out} with another --out trains its model further"
        )
    return restored


def _run_rank0(context: RunContext, existing: RestoredRun | TrainingResult | None) -> TrainingResult:
    """Send the decision (new, resumed or finished run) to the other processes, and train."""
    if isinstance(existing, TrainingResult):
        context.group.broadcast_text(FINISHED + existing.to_text())
        return existing
    context.group.broadcast_text(existing.to_text() if existing else "")
    return _resume(context, existing) if existing else _start(context)


def _run_worker(context: RunContext) -> TrainingResult:
    """Receive the decision of rank 0, and train without writing to the run folder."""
    text = context.group.broadcast_text("")
    if text == REFUSED:
        raise TrainingError(f"process {context.group.rank} ends because process 0 failed; see the error of process 0")
    if text.startswith(FINISHED):
        return TrainingResult.from_text(text.removeprefix(FINISHED))
    return _resume(context, RestoredRun.from_text(context.request.out, text)) if text else _start(context)


# Training


def _start(context: RunContext) -> TrainingResult:
    """Run a new training."""
    prepared = _score_old_model(context, prepare_run(context))
    use_single_arena()  # afterwards, because tokenizer threads take more than twice as long with a single arena
    if context.group.is_rank0:
        run_folder.initialize(context.request.out)
    placed = place_model(prepared.model, prepared.config.training, context.group, context.callback)
    estimate = _measure(prepared, placed, context.group)
    prepared = prepared.with_length(estimate.steps)
    _announce(prepared, context.callback)
    context.callback.message(str(estimate))
    _warn_short(prepared, estimate, context.callback)
    checkpoint = CheckpointFolder(context.request.out / TRAINING)
    logger = _open_logger(context, prepared, checkpoint, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    if isinstance(logger, RunFolder):
        checkpoint.save_tokenizer(logger.tokenizer)
        tags = prepared.config.data.validation_tags or prepared.config.data.source_tags
        write_records(checkpoint.folder / VALIDATION, prepared.validation, tags)
        if prepared.old:
            prepared.old.save(checkpoint.folder)
    trainer = _build_trainer(context, prepared, placed, logger)
    return finalize(trainer, logger, trainer.run(), prepared.old)


def _resume(context: RunContext, restored: RestoredRun) -> TrainingResult:
    """Resume a training from its checkpoint and run the rest of it."""
    group, callback = context.group, context.callback
    prepared = prepare_resumed_run(context, restored)
    use_single_arena()
    updates_per_epoch = len(prepared.task.plan(0)) / restored.config.training.gradient_accumulation
    before, steps = restored.state.steps, planned_steps(restored, context.request.settings, updates_per_epoch)
    state = restored.train_state(steps)
    if steps != before:  # the new number of updates replaces --minutes
        prepared = replace(
            prepared, config=configs.override(prepared.config, {"training": {"steps": steps, "minutes": 0}})
        )
    changed = f" (instead of {before:,})" if steps != before else ""
    callback.message(f"resuming after update {state.step:,} of {steps:,}{changed}")
    if group.is_rank0:
        _clean_up(context, restored)
    logger = _open_logger(context, prepared, restored.folder, restored.origin.started)
    restore(prepared.model, restored.load_tensors(restored.state.weights, group))
    placed = place_model(prepared.model, prepared.config.training, group, callback)
    trainer = _build_trainer(context, prepared, placed, logger)
    trainer.restore(state, restored.load_tensors(restored.state.optimizer, group))
    return finalize(trainer, logger, trainer.run(), prepared.old)


def _score_old_model(context: RunContext, prepared: PreparedRun) -> PreparedRun:
    """Score the pretrained model on its validation set before the training, on rank 0."""
    old, start = prepared.old, context.request.options.start
    if not old or not start or not old.is_comparable_to(prepared.config) or not context.group.is_rank0:
        return prepared
    scored = old.score_old_model(start, prepared.tokenizer, prepared.threads, context.callback.message)
    return replace(prepared, old=scored)


def _measure(prepared: PreparedRun, placed: PlacedModel, group: ProcessGroup) -> Estimate:
    """Return the length of the run, from the measured time per update."""
    return benchmark_step(prepared.task, placed.model, prepared.config.training, prepared.threads, group)


def _announce(prepared: PreparedRun, callback: Callback) -> None:
    """Report the automatically chosen settings with their reasons, and the size of the model."""
    for reason in prepared.reasons:
        callback.message(f"chosen: {reason}")
    callback.message(f"{prepared.config.model.describe()}: {count_parameters(prepared.model):,} parameters")


def _warn_short(prepared: PreparedRun, estimate: Estimate, callback: Callback) -> None:
    """Warn if the run is shorter than one epoch, except in fine-tuning."""
    if not prepared.pretrained and estimate.warning:
        callback.message(estimate.warning)


def _clean_up(context: RunContext, restored: RestoredRun) -> None:
    """Delete metrics and files that were written after the last save, and make this torchrun job the owner."""
    path = context.request.out / METRICS
    if not run_folder.truncate_metrics(context.request.out, restored.state.metrics_bytes):
        context.callback.message(f"{path} was truncated after the last save: earlier updates are missing in its curves")
    restored.folder.set_owner(torchrun_job())
    restored.folder.remove_unneeded()


def _build_trainer(
    context: RunContext, prepared: PreparedRun, placed: PlacedModel, logger: RunFolder | NullRunLogger
) -> Trainer:
    """Return the trainer of a prepared run."""
    config = prepared.config.training
    return Trainer(
        prepared.task,
        placed.model,
        config,
        Schedule.fit(config, prepared.config.model.model_dim, config.steps),
        context.callback,
        logger,
        prepared.threads,
        context.group,
        placed.validation_model,
    )


def _open_logger(
    context: RunContext, prepared: PreparedRun, checkpoint: CheckpointFolder, started: str
) -> RunFolder | NullRunLogger:
    """Return the run folder on rank 0, and a logger that ignores everything on other ranks."""
    group, out = context.group, context.request.out
    if not group.is_rank0:
        return NullRunLogger()
    summary = {
        "parameters": count_parameters(prepared.model),
        "processes": group.world_size,
        "threads": prepared.threads,
        "device": group.device.type,
        "machine": platform.machine(),
        "began": started,
    }
    origin = RunOrigin(
        config=prepared.config.model_dump(),
        data=prepared.data,
        pretrained=prepared.pretrained,
        threads=prepared.threads,
        processes=group.world_size,
        torch=str(torch.__version__),
        started=started,
    )
    step = checkpoint.state.train_state.step if checkpoint.state else 0
    events = EventFiles(out, step) if context.request.options.tensorboard else None
    tokenizer = tokenizer_to_text(prepared.tokenizer)
    return RunFolder(out, prepared.config, tokenizer, prepared.data, summary, origin, checkpoint, events)
