"""One training from files to a finished bundle: read, choose, tokenise, train, pick the best weights, save."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.corpus import fingerprint
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.weights import split_names
from clearhead.errors import ConfigError, TrainingError
from clearhead.model.families import build_model
from clearhead.model.weights import count_parameters, restore
from clearhead.tasks.purposes import purpose
from clearhead.tasks.task import Files, Made, Records, Task
from clearhead.training import keeper
from clearhead.training.checks import check_held_out, check_ids, check_settings
from clearhead.training.choose import choose
from clearhead.training.events import Watcher
from clearhead.training.finish import TrainingResult, finish, report_finished
from clearhead.training.keeper import TRAINING, RunFolder
from clearhead.training.lock import locked
from clearhead.training.measure import describe, measure
from clearhead.training.resume import Kept, asks_for_more, planned_steps
from clearhead.training.schedule import Schedule
from clearhead.training.start import Start
from clearhead.training.state import Origin, StateFolder
from clearhead.training.trainer import Trainer


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
    resume: bool = False  # go on with the run in `out`, if there is one


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first update."""

    config: Config
    tokenizer: Tokenizer | None
    task: Task[Any]
    model: nn.Module
    data: dict[str, Any]
    reasons: list[str]
    threads: int
    start: str  # the fingerprint of the model that training starts from


def train(request: Request, watcher: Watcher) -> TrainingResult:
    """A whole training, or the rest of one."""
    request = _spread_names(request)
    if request.resume and request.overwrite:
        raise ConfigError("--resume goes on with a run and --overwrite replaces it; keep one")
    with locked(request.out):
        keeper.check(request.out, overwrite=request.overwrite, resume=request.resume)
        if not request.resume:
            return _begin(request, watcher)
        kept = Kept.load(request.out)
        if kept and not kept.state.is_finished:
            return _go_on(request, kept, watcher)
        if kept or keeper.is_finished(request.out):
            config = kept.config if kept else configs.parse(bundle.load(request.out).config)
            if not asks_for_more(config, request.settings or {}):
                return report_finished(request.out, watcher)
            if kept is None:
                raise TrainingError(
                    f"{request.out} is finished and its {TRAINING}/ was removed: it cannot go on; "
                    f"--from {request.out} with another --out trains its model further"
                )
            return _go_on(request, kept, watcher)
        watcher.message(f"there is no checkpoint in {request.out} yet: starting from the beginning")
        return _begin(request, watcher)


def _begin(request: Request, watcher: Watcher) -> TrainingResult:
    prepared = prepare(request, watcher)
    keeper.claim(request.out)
    estimate = measure(prepared.task, prepared.model, prepared.config.training, prepared.threads)
    prepared = replace(prepared, config=configs.override(prepared.config, {"training": {"steps": estimate.steps}}))
    announce(prepared, watcher)
    watcher.message(describe(estimate))
    state = StateFolder(request.out / TRAINING)
    folder = _folder(request.out, prepared, state, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    state.begin(folder.tokenizer)
    trainer = _trainer(prepared, watcher, folder)
    return finish(trainer, folder, trainer.run(), watcher)


def _go_on(request: Request, kept: Kept, watcher: Watcher) -> TrainingResult:
    """The rest of a run, from where its state was saved."""
    prepared = _prepare_again(request, kept, watcher)
    counts, before = kept.state.counts, kept.config.training
    steps = planned_steps(
        kept.config,
        request.settings or {},
        counts.step,
        lambda: len(prepared.task.plan(0)) / before.accumulate,
    )
    prepared = replace(prepared, config=configs.override(prepared.config, {"training": {"steps": steps}}))
    if steps > before.steps:
        counts = counts.model_copy(update={"without_gain": 0})  # who asks for more is patient again
    shown = f"{steps:,} updates" + (f" instead of {before.steps:,}" if steps != before.steps else "")
    watcher.message(f"going on after update {counts.step:,} of {shown}")
    keeper.cut_metrics(request.out, kept.state.metrics_bytes)
    kept.folder.tidy()
    folder = _folder(request.out, prepared, kept.folder, kept.origin.began)
    trainer = _trainer(prepared, watcher, folder)
    restore(prepared.model, kept.folder.tensors(kept.state.weights))
    trainer.go_on_from(counts, kept.folder.tensors(kept.state.moments))
    return finish(trainer, folder, trainer.run(), watcher)


def rehearse(request: Request, watcher: Watcher) -> None:
    """Says what a training would do and take, and writes nothing."""
    if request.resume:
        raise ConfigError("--dry-run tells what a new training would take; leave out --resume")
    prepared = prepare(_spread_names(request), watcher)
    announce(prepared, watcher)
    watcher.message(describe(measure(prepared.task, prepared.model, prepared.config.training, prepared.threads)))


def prepare(request: Request, watcher: Watcher) -> Prepared:
    """Reads the data, chooses what was left open, learns the tokenizer and builds the task and the model."""
    given, preset, task = _named(request)
    chosen = purpose(task or "translate")
    start = Start.load(request.start) if request.start else None
    base = start.base(chosen) if start else chosen.base
    draft = configs.build(given, preset=preset, base=base)  # mistakes in the settings come before the data is read
    check_settings(chosen, given, draft)
    check_held_out(given, request.valid)
    if start:
        start.check(draft)
    records = chosen.read(_files(request, watcher), draft, watcher.message)
    choice = choose(
        records.amount, chosen.noun, given, preset, is_start=start is not None, has_text=draft.model.has_text
    )
    config = configs.build(choice.settings, given, preset=choice.preset, base=base)
    made = chosen.make(config, records, start.tokenizer if start else None, watcher.message)
    prepared = _prepared(request, records, made, choice.reasons)
    if start:
        start.hand_over(prepared.model, made.config, watcher)
    return prepared


def _prepare_again(request: Request, kept: Kept, watcher: Watcher) -> Prepared:
    """As `prepare` did when the run began: its settings and its tokenizer are taken, and its data must be the same."""
    given, preset, task = _named(request)
    kept.check_settings(given, preset, task)
    kept.check_start(request.start)
    chosen = purpose(kept.config.task)
    records = chosen.read(_files(request, watcher), kept.config, watcher.message)
    kept.check_data(_data_facts(request, records))
    text = kept.folder.tokenizer()
    tokenizer = None if text.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(text)
    made = chosen.make(kept.config, records, tokenizer, watcher.message)
    assert made.config == kept.config, "the same data made another config"
    prepared = replace(_prepared(request, records, made, []), start=kept.origin.start)
    kept.warn(prepared.threads, watcher)
    return prepared


def _prepared(request: Request, records: Records[Any], made: Made, reasons: list[str]) -> Prepared:
    check_ids(made)
    torch.manual_seed(made.config.training.seed)
    model = build_model(made.config.model)
    threads = request.threads or torch.get_num_threads()
    sizes = dict(zip(("train_examples", "valid_examples"), made.task.sizes(), strict=True))
    tags = {"tags": sorted(set(made.config.data.tags))} if made.config.data.tags else {}
    data = {**_data_facts(request, records), **sizes, **tags}
    start = bundle.read_manifest(request.start).fingerprint if request.start else ""
    return Prepared(made.config, made.tokenizer, made.task, model, data, reasons, threads, start)


def _spread_names(request: Request) -> Request:
    """The files of a request as files, and the weights and tags behind their names as settings."""
    train, valid = split_names(request.files), split_names(request.valid)
    if valid.weights:
        raise ConfigError("a weight says how often a file is trained on; leave it out behind --valid")
    found = {"weights": train.weights, "tags": train.tags, "valid_tags": valid.tags}
    given = {name: each for name, each in found.items() if each}
    settings = configs.merge(request.settings or {}, {"data": given} if given else {})
    return replace(request, files=train.files, valid=valid.files, settings=settings)


def _files(request: Request, watcher: Watcher) -> Files:
    return Files(request.files, request.valid, lambda what, done, total: watcher.work(what, done, total))


def _named(request: Request) -> tuple[dict[str, Any], str, str]:
    """The settings, the preset and the task that are named, in the request or in its recipe."""
    given = dict(request.settings or {})
    named = str(given.pop("preset", "")), str(given.pop("task", ""))
    preset, task = request.preset or named[0], request.task or named[1]
    if named[1] and named[1] != task:
        raise ConfigError(f"--task {task} contradicts the recipe, which is for the task {named[1]}; keep one")
    return given, preset, task


def announce(prepared: Prepared, watcher: Watcher) -> None:
    """What was chosen, and why."""
    for reason in prepared.reasons:
        watcher.message(f"chosen: {reason}")
    shape = prepared.config.model.describe()
    watcher.message(f"{shape}: {count_parameters(prepared.model):,} parameters")


def _trainer(prepared: Prepared, watcher: Watcher, folder: RunFolder) -> Trainer:
    config = prepared.config.training
    schedule = Schedule.fit(config, prepared.config.model.model_dim, config.steps)
    return Trainer(prepared.task, prepared.model, config, schedule, watcher, folder, prepared.threads)


def _folder(out: Path, prepared: Prepared, state: StateFolder, began: str) -> RunFolder:
    tokenizer = prepared.tokenizer.to_json() if prepared.tokenizer else bundle.NO_TOKENIZER
    facts = {
        "parameters": count_parameters(prepared.model),
        "threads": prepared.threads,
        "machine": platform.machine(),
        "began": began,
    }
    origin = Origin(
        config=prepared.config.model_dump(),
        data=prepared.data,
        start=prepared.start,
        threads=prepared.threads,
        torch=str(torch.__version__),
        began=began,
    )
    return RunFolder(out, prepared.config, tokenizer, prepared.data, facts, origin, state)


def _data_facts(request: Request, records: Records[Any]) -> dict[str, Any]:
    return {
        "files": [path.name for path in request.files],
        "fingerprint": records.corpus.fingerprint,
        "valid_fingerprint": fingerprint(records.valid),
        "records": len(records.corpus.records),
        "skipped": dict(records.corpus.skips.counts),
    }
