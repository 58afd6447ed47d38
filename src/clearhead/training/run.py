"""One training from files to a finished bundle: read, choose, tokenise, train, pick the best weights, save."""

import time
from collections.abc import Set
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.corpus.held_out import hash_fraction
from clearhead.data.corpus.sampling_weights import split_names
from clearhead.data.readers.record_files import sample_records
from clearhead.data.records import fingerprint
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ClearheadError, ConfigError, TrainingError
from clearhead.model.parameters import count_parameters, named_weights, restore
from clearhead.model.registry import build_model
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Task, Tell
from clearhead.tasks.trainable.replay import Replay, ReplayTask, make_task, read_replay
from clearhead.tasks.trainable.task import PreparedTask, TaskRecords, TrainingFiles
from clearhead.training.checkpoint import run_folder
from clearhead.training.checkpoint.checkpoint import CheckpointFolder
from clearhead.training.checkpoint.finalize import TrainingResult, finalize, report_finished
from clearhead.training.checkpoint.resume import OriginalRun, RestoredRun, asks_for_more, planned_steps
from clearhead.training.checkpoint.run_folder import METRICS, TRAINING, RunFolder, require_tensorboard
from clearhead.training.checkpoint.run_history import locked
from clearhead.training.distributed.device_setup import place_model
from clearhead.training.distributed.process_group import ALONE, ProcessGroup, init_distributed, job, was_restarted
from clearhead.training.loop.callbacks import Callback, NullCallback
from clearhead.training.loop.process_environment import share_memory
from clearhead.training.setup.auto_config import (
    benchmark_step,
    choose_config,
    default_epochs,
    describe,
    describe_useful,
    warn_short,
    without_length,
)
from clearhead.training.setup.build_trainer import PreparedRun, TrainRequest, build_trainer, open_folder, tokenizer_text
from clearhead.training.setup.finetune import PretrainedModel
from clearhead.training.setup.forgetting import OLD_VALIDATION, VALIDATION, find_old, given_facts, write_records
from clearhead.training.setup.validate_config import check_fine_tuning, check_held_out, check_ids, check_settings

__all__ = ["PreparedRun", "TrainRequest", "announce", "dry_run", "prepare", "train"]

REPLAYED = "replay_examples"
REFUSED, FINISHED = "refused", "finished"  # what the first process says instead of a run to go on with


def train(request: TrainRequest, watcher: Callback) -> TrainingResult:
    """A whole training, or the rest of one. Of several processes each calls it; the first one says what is done."""
    request = _spread_names(request)
    if request.resume and request.overwrite:
        raise ConfigError("--resume goes on with a run and --overwrite replaces it; keep one")
    if request.tensorboard:
        require_tensorboard()
    with init_distributed(request.device) as processes:
        if not processes.is_first:
            return _follow(request, processes)
        with ExitStack() as held:
            try:
                held.enter_context(locked(request.out))
                if was_restarted():  # what it was to overwrite is gone by now, and what is there is worth keeping
                    request = replace(request, resume=request.resume or run_folder.is_own(request.out), overwrite=False)
                kept = _find(request, watcher)
            except ClearheadError:
                processes.tell(REFUSED)
                raise
            return _lead(request, kept, watcher, processes)


def _lead(
    request: TrainRequest, kept: RestoredRun | TrainingResult | None, watcher: Callback, processes: ProcessGroup
) -> TrainingResult:
    """What the first process, or the only one, does."""
    if isinstance(kept, TrainingResult):
        processes.tell(FINISHED + kept.to_text())
        return kept
    processes.tell(kept.to_text() if kept else "")
    return _go_on(request, kept, watcher, processes) if kept else _begin(request, watcher, processes)


def _follow(request: TrainRequest, processes: ProcessGroup) -> TrainingResult:
    """What the other processes do: the same without a folder, once they are told what that is."""
    told = processes.tell("")
    if told == REFUSED:
        raise TrainingError(f"process {processes.rank} ends, for the first one refused; it says why")
    if told.startswith(FINISHED):
        return TrainingResult.from_text(told.removeprefix(FINISHED))
    kept = RestoredRun.from_text(request.out, told) if told else None
    return _go_on(request, kept, NullCallback(), processes) if kept else _begin(request, NullCallback(), processes)


def _find(request: TrainRequest, watcher: Callback) -> RestoredRun | TrainingResult | None:
    """The run to go on with, the result of one that is finished, or nothing where one begins."""
    run_folder.check(request.out, overwrite=request.overwrite, resume=request.resume)
    if not request.resume:
        if request.overwrite and job():
            run_folder.initialise(request.out)  # now, that a restart finds its own
        return None
    kept = RestoredRun.load(request.out)
    if kept and not kept.state.is_finished:
        return kept
    if kept or run_folder.is_finished(request.out):
        config = kept.config if kept else configs.parse(bundle.load(request.out).config)
        planned = kept.state.steps if kept else config.training.steps
        if not asks_for_more(config, request.settings or {}, planned):
            hashes = kept.old_hashes if kept else frozenset[float]()
            _check_same(request, OriginalRun.of(request.out, kept), hashes, watcher, lambda _: None)
            return report_finished(request.out, watcher)
        if kept is None:
            raise TrainingError(
                f"{request.out} is finished and its {TRAINING}/ was removed: it cannot go on; "
                f"--from {request.out} with another --out trains its model further"
            )
        return kept
    watcher.message(f"there is no checkpoint in {request.out} yet: starting from the beginning")
    return None


def _begin(request: TrainRequest, watcher: Callback, processes: ProcessGroup) -> TrainingResult:
    prepared = prepare(request, watcher, processes)
    old = prepared.old
    if old and old.is_comparable_to(prepared.config) and processes.is_first:
        assert request.start is not None
        old = old.measure_before(request.start, prepared.tokenizer, prepared.threads, watcher.message)
    share_memory()  # not before: the threads of tokenizers take more than twice as long with one place
    if processes.is_first:
        run_folder.initialise(request.out)
    placed = place_model(prepared.model, prepared.config.training, processes, watcher)
    estimate = benchmark_step(prepared.task, placed.model, prepared.config.training, prepared.threads, processes)
    prepared = replace(prepared, config=configs.override(prepared.config, {"training": {"steps": estimate.steps}}))
    announce(prepared, watcher)
    watcher.message(describe(estimate))
    if not prepared.start and (warning := warn_short(estimate)):
        watcher.message(warning)
    state = CheckpointFolder(request.out / TRAINING)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    folder = open_folder(request, prepared, state, began, processes)
    if isinstance(folder, RunFolder):
        state.begin(folder.tokenizer)
        write_records(state.folder / VALIDATION, prepared.validation, _valid_tags(prepared.config))
        if old:
            old.save(state.folder)
    trainer = build_trainer(prepared, placed, watcher, folder, processes)
    return finalize(trainer, folder, trainer.run(), watcher, old)


def _go_on(request: TrainRequest, kept: RestoredRun, watcher: Callback, processes: ProcessGroup) -> TrainingResult:
    """Run the rest of a training, from the saved state."""
    prepared = _prepare_again(request, kept, watcher, processes)
    share_memory()
    counts, before = kept.state.counts, kept.state.steps
    accumulate = kept.config.training.gradient_accumulation
    steps = planned_steps(
        kept.state, kept.config, request.settings or {}, lambda: len(prepared.task.plan(0)) / accumulate
    )
    if steps != before:  # a length in updates replaces --minutes, and its plan
        length = {"training": {"steps": steps, "minutes": 0}}
        prepared = replace(prepared, config=configs.override(prepared.config, length))
        counts = counts.model_copy(update={"plan": None, "validate_at": 0})
    if steps > before:
        counts = counts.model_copy(update={"without_gain": 0})  # patience starts anew
    shown = f"{steps:,}" + (f" (instead of {before:,})" if steps != before else "")
    watcher.message(f"resuming after update {counts.step:,} of {shown}")
    if processes.is_first:
        if not run_folder.cut_metrics(request.out, kept.state.metrics_bytes):
            watcher.message(f"{request.out / METRICS} was cut short: curves and figures of before are missing there")
        kept.folder.own(job())
        kept.folder.tidy()
    folder = open_folder(request, prepared, kept.folder, kept.origin.began, processes)
    restore(prepared.model, kept.tensors(kept.state.weights, processes))
    placed = place_model(prepared.model, prepared.config.training, processes, watcher)
    trainer = build_trainer(prepared, placed, watcher, folder, processes)
    trainer.go_on_from(counts, kept.tensors(kept.state.moments, processes))
    return finalize(trainer, folder, trainer.run(), watcher, prepared.old)


def dry_run(request: TrainRequest, watcher: Callback) -> None:
    """Says what a training would do and take, and writes nothing."""
    if request.resume:
        raise ConfigError("--dry-run tells what a new training would take; leave out --resume")
    with init_distributed(request.device) as processes:
        _rehearse(request, watcher if processes.is_first else NullCallback(), processes)


def _rehearse(request: TrainRequest, watcher: Callback, processes: ProcessGroup) -> None:
    prepared = prepare(_spread_names(request), watcher, processes)
    announce(prepared, watcher)
    config = prepared.config.training
    model = place_model(prepared.model, config, processes, watcher).model
    estimate = benchmark_step(prepared.task, model, config, prepared.threads, processes)
    watcher.message(describe(estimate))
    watcher.message(describe_useful(estimate, prepared.usual_epochs))
    if not prepared.start and (warning := warn_short(estimate)):
        watcher.message(warning)


def prepare(request: TrainRequest, watcher: Callback, processes: ProcessGroup = ALONE) -> PreparedRun:
    """Reads the data, chooses what was left open, learns the tokenizer and builds the task and the model.

    Each process reads the data; the tokenizer is the first one's.
    """
    given, preset, task = _named(request)
    chosen = get_task(task or "translate")
    start = PretrainedModel.load(request.start) if request.start else None
    base = start.base(chosen) if start else chosen.base
    draft = configs.build(given, preset=preset, base=base)  # mistakes in the settings come before the data is read
    check_settings(chosen, given, draft)
    check_held_out(given, request.valid)
    check_fine_tuning(given, request.start, request.old_valid, request.replay)
    given = without_length(given)
    if start:
        start.check(draft)
    old = find_old(start, chosen.name, request.old_valid, watcher.message) if start else None
    records = chosen.read(_files(request, watcher), draft, watcher.message)
    replay = _read_replay(request, chosen, records, draft, old.hashes if old else frozenset(), watcher)
    choice = choose_config(
        records.amount, chosen.record_name, given, preset, is_start=start is not None, has_text=draft.model.has_text
    )
    config = configs.build(choice.settings, given, preset=choice.preset, base=base)
    made = _make(chosen, config, records, replay, start.tokenizer if start else None, watcher, processes)
    prepared = replace(_prepared(request, records, replay, made, choice.reasons, processes), old=old)
    if old:
        old.check_labels(made.config, bool(request.old_valid), watcher.message)
    if start:
        start.hand_over(prepared.model, made.config, watcher)
    processes.copy(list(named_weights(prepared.model).values()))
    return prepared


def _make(
    chosen: Task,
    config: Config,
    records: TaskRecords[Any],
    replay: Replay | None,
    tokenizer: Tokenizer | None,
    watcher: Callback,
    processes: ProcessGroup,
) -> PreparedTask:
    """The task. The first process learns the tokenizer, where none is given, and tells the others."""
    if processes.is_first:
        made = make_task(chosen, config, records, replay, tokenizer, watcher.message)
        processes.tell(tokenizer_text(made.tokenizer))
        return made
    text = processes.tell("")
    return make_task(chosen, config, records, replay, _read_tokenizer(text), watcher.message)


def _read_tokenizer(text: str) -> Tokenizer | None:
    return None if text.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(text)


def _prepare_again(request: TrainRequest, kept: RestoredRun, watcher: Callback, processes: ProcessGroup) -> PreparedRun:
    """As `prepare` did when the run began: its settings and its tokenizer are taken, and its data must be the same."""
    before = OriginalRun.of(request.out, kept)
    chosen, records, replay = _check_same(request, before, kept.old_hashes, watcher, watcher.message)
    made = make_task(chosen, kept.config, records, replay, _read_tokenizer(kept.tokenizer), watcher.message)
    assert made.config == kept.config, "the same data made another config"
    prepared = _prepared(request, records, replay, made, [], processes)
    if prepared.data.get(REPLAYED) != kept.origin.data.get(REPLAYED):
        raise TrainingError(f"{request.out / TRAINING / OLD_VALIDATION} was changed; restore it, or begin anew")
    kept.warn(prepared.threads, processes, watcher)
    return replace(prepared, start=kept.origin.start, old=kept.old)


def _check_same(
    request: TrainRequest, before: OriginalRun, old_hashes: Set[float], watcher: Callback, tell: Tell
) -> tuple[Task, TaskRecords[Any], Replay | None]:
    """Refuse data and settings that differ from those of the run's start; return the task and the data."""
    before.check_settings(*_named(request))
    before.check_start(request.start)
    chosen = get_task(before.config.task)
    records = chosen.read(_files(request, watcher), before.config, tell)
    replay = _read_replay(request, chosen, records, before.config, old_hashes, watcher, tell)
    before.check_data(_data_facts(request, records, replay))
    return chosen, records, replay


def _read_replay(
    request: TrainRequest,
    chosen: Task,
    records: TaskRecords[Any],
    config: Config,
    old_hashes: Set[float],
    watcher: Callback,
    tell: Tell | None = None,
) -> Replay | None:
    """Return the replay data, without what is in the new or the old validation set."""
    if not request.replay:
        return None
    named = split_names(request.replay)
    if named.weights:
        raise ConfigError("a weight has no meaning behind --replay, whose share is --replay-share; leave it out")
    files = TrainingFiles(named.files, work=watcher.work)
    hashes = old_hashes | {hash_fraction(record.parts[0].encode()) for record in records.valid}
    return read_replay(chosen, files, named.tags, config, hashes, tell or watcher.message)


def _prepared(
    request: TrainRequest,
    records: TaskRecords[Any],
    replay: Replay | None,
    made: PreparedTask,
    reasons: list[str],
    processes: ProcessGroup,
) -> PreparedRun:
    check_ids(made)
    torch.manual_seed(made.config.training.seed)
    model = build_model(made.config.model)
    threads = request.threads or processes.threads()
    sizes = dict(zip(("train_examples", "valid_examples"), made.task.sizes(), strict=True))
    if isinstance(made.task, ReplayTask):
        sizes[REPLAYED] = made.task.old.sizes()[0]
    tags = {"tags": sorted(set(made.config.data.source_tags))} if made.config.data.source_tags else {}
    languages = made.config.data.language_facts()
    data = {**_data_facts(request, records, replay), **sizes, **tags, **languages, **made.facts}
    start = bundle.read_manifest(request.start).fingerprint if request.start else ""
    validation = sample_records(records.valid)
    epochs = default_epochs(records.amount)
    return PreparedRun(made.config, made.tokenizer, made.task, model, data, reasons, threads, start, validation, epochs)


def _spread_names(request: TrainRequest) -> TrainRequest:
    """The files of a request as files, and the weights and tags behind their names as settings."""
    train, valid = split_names(request.files), split_names(request.valid)
    if valid.weights:
        raise ConfigError("a weight says how often a file is trained on; leave it out behind --valid")
    found = {"file_weights": train.weights, "source_tags": train.tags, "validation_tags": valid.tags}
    given = {name: each for name, each in found.items() if each}
    settings = configs.merge(request.settings or {}, {"data": given} if given else {})
    return replace(request, files=train.files, valid=valid.files, settings=settings)


def _files(request: TrainRequest, watcher: Callback) -> TrainingFiles:
    return TrainingFiles(request.files, request.valid, lambda what, done, total: watcher.work(what, done, total))


def _named(request: TrainRequest) -> tuple[dict[str, Any], str, str]:
    """The settings, the preset and the task that are named, in the request or in its recipe."""
    given = dict(request.settings or {})
    named = str(given.pop("preset", "")), str(given.pop("task", ""))
    preset, task = request.preset or named[0], request.task or named[1]
    if named[1] and named[1] != task:
        raise ConfigError(f"--task {task} contradicts the recipe, which is for the task {named[1]}; keep one")
    return given, preset, task


def announce(prepared: PreparedRun, watcher: Callback) -> None:
    """What was chosen, and why."""
    for reason in prepared.reasons:
        watcher.message(f"chosen: {reason}")
    shape = prepared.config.model.describe()
    watcher.message(f"{shape}: {count_parameters(prepared.model):,} parameters")


def _valid_tags(config: Config) -> tuple[str, ...]:
    """Return the tags of the files that the validation records came from."""
    return config.data.validation_tags or config.data.source_tags


def _data_facts(request: TrainRequest, records: TaskRecords[Any], replay: Replay | None) -> dict[str, Any]:
    return {
        "files": [path.name for path in request.files],
        "valid_files": [path.name for path in request.valid],
        "fingerprint": records.corpus.fingerprint,
        "valid_fingerprint": fingerprint(records.valid),
        "records": len(records.corpus.records),
        "skipped": dict(records.corpus.skips.counts),
        **(replay.facts(split_names(request.replay).files) if replay else {}),
        **given_facts(request.old_valid),
    }
