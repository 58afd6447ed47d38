"""One training from files to a finished bundle: read, choose, tokenise, train, pick the best weights, save."""

import math
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.corpus import Corpus
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError
from clearhead.model.families import build_model
from clearhead.model.weights import Weights, count_parameters, restore, snapshot
from clearhead.tasks.purposes import purpose
from clearhead.tasks.task import Files, Task, Validation
from clearhead.training import keeper
from clearhead.training.checks import check_ids, check_settings
from clearhead.training.choose import choose
from clearhead.training.events import Silent, Watcher
from clearhead.training.keeper import RunFolder
from clearhead.training.schedule import Schedule
from clearhead.training.start import Start
from clearhead.training.trainer import Outcome, Trainer, seconds_per_update, torch_threads

VALIDATION_SHARE = 0.1  # of the time of a run with --minutes that is kept for validations


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


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first update."""

    config: Config
    tokenizer: Tokenizer | None
    task: Task[Any]
    model: nn.Module
    corpus: Corpus[Any]
    reasons: list[str]
    threads: int


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from measured updates."""

    steps: int
    epochs: float
    seconds_per_update: float
    minutes: float
    memory_mib: float  # peak of this process while it measured


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: where the model lies and how good it is on the validation data."""

    folder: Path
    outcome: Outcome
    weights_kind: str
    validation: Validation
    verb: str  # the command that runs it


def train(request: Request, watcher: Watcher) -> TrainingResult:
    """A whole training."""
    keeper.check(request.out, request.overwrite)
    prepared = prepare(request, watcher)
    keeper.claim(request.out)
    estimate = measure(prepared)
    config = configs.override(prepared.config, {"training": {"steps": estimate.steps}})
    announce(prepared, watcher)
    watcher.message(describe(estimate))
    folder = RunFolder(
        request.out,
        config,
        prepared.tokenizer.to_json() if prepared.tokenizer else bundle.NO_TOKENIZER,
        _data_facts(request, prepared),
        _facts(prepared),
    )
    trainer = _trainer(prepared, config, watcher, folder)
    outcome = trainer.run()
    return _finish(prepared, folder, outcome, watcher)


def prepare(request: Request, watcher: Watcher) -> Prepared:
    """Reads the data, chooses what was left open, learns the tokenizer and builds the task and the model."""
    given = dict(request.settings or {})
    named = str(given.pop("preset", "")), str(given.pop("task", ""))
    preset, task = request.preset or named[0], request.task or named[1] or "translate"
    if named[1] and named[1] != task:
        raise ConfigError(f"--task {task} contradicts the recipe, which is for the task {named[1]}; keep one")
    chosen = purpose(task)
    start = Start.load(request.start) if request.start else None
    base = start.base(chosen) if start else chosen.base
    draft = configs.build(given, preset=preset, base=base)  # mistakes in the settings come before the data is read
    check_settings(chosen, given, draft)
    if start:
        start.check(draft)
    records = chosen.read(Files(request.files, request.valid), draft, watcher.message)
    choice = choose(
        records.amount, chosen.noun, given, preset, is_start=start is not None, has_text=draft.model.has_text
    )
    config = configs.build(choice.settings, given, preset=choice.preset, base=base)
    made = chosen.make(config, records, start.tokenizer if start else None, watcher.message)
    check_ids(made)
    torch.manual_seed(config.training.seed)
    model = build_model(made.config.model)
    if start:
        start.hand_over(model, made.config, watcher)
    threads = request.threads or torch.get_num_threads()
    return Prepared(made.config, made.tokenizer, made.task, model, records.corpus, choice.reasons, threads)


def measure(prepared: Prepared) -> Estimate:
    """How long the run will take, and with `minutes` how many updates fit: fixed here, once."""
    config = prepared.config.training
    schedule = Schedule.fit(config, prepared.config.model.model_dim, 0)
    trainer = _trainer(prepared, prepared.config, Silent(), None, schedule)
    each = seconds_per_update(trainer, budget=min(6.0, 0.6 * config.minutes) if config.minutes else 4.0)
    updates_an_epoch = len(prepared.task.plan(0)) / config.accumulate
    if config.steps:
        steps = config.steps
    elif config.minutes:
        steps = max(20, int(config.minutes * 60 * (1 - VALIDATION_SHARE) / each))
    else:
        steps = max(1, math.ceil(config.epochs * updates_an_epoch))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    minutes = steps * each / (1 - VALIDATION_SHARE) / 60
    return Estimate(steps, steps / updates_an_epoch, each, minutes, memory)


def announce(prepared: Prepared, watcher: Watcher) -> None:
    """What was chosen, and why."""
    for reason in prepared.reasons:
        watcher.message(f"chosen: {reason}")
    shape = prepared.config.model.describe()
    watcher.message(f"{shape}: {count_parameters(prepared.model):,} parameters")


def describe(estimate: Estimate) -> str:
    """The estimate in a sentence."""
    return (
        f"{estimate.steps:,} updates ({estimate.epochs:.1f} epochs) of {estimate.seconds_per_update:.3f} s (measured): "
        f"about {estimate.minutes:.1f} minutes; memory {estimate.memory_mib:,.0f} MiB"
    )


def _finish(prepared: Prepared, folder: RunFolder, outcome: Outcome, watcher: Watcher) -> TrainingResult:
    """Validates the best, the averaged and the last weights, and saves the best of them."""

    best = bundle.load(folder.folder).weights
    best = {name: best[name] for name in snapshot(prepared.model)}
    candidates: dict[str, Weights] = {"best": best}
    if outcome.reason != "interrupted" and len(folder.checkpoints()) > 1:
        candidates |= {"averaged": folder.average(), "last": snapshot(prepared.model)}
    scores: dict[str, Validation] = {}
    for kind, weights in candidates.items():
        restore(prepared.model, weights)
        with torch_threads(prepared.threads):
            scores[kind] = prepared.task.validate(prepared.model)
    kind = max(scores, key=lambda name: scores[name].rank)
    shown = ", ".join(f"{name} {score.score:.2f}" for name, score in scores.items())
    watcher.message(f"validation {scores[kind].score_name} of the weights: {shown}; kept: {kind}")
    summary = _summary(outcome) | {"scores": scores[kind].to_json()}
    folder.save(candidates[kind], kind, summary)  # type: ignore[arg-type]
    folder.close()
    prepared.model.eval()
    return TrainingResult(folder.folder, outcome, kind, scores[kind], purpose(prepared.config.task).verb)


def _trainer(
    prepared: Prepared, config: Config, watcher: Watcher, folder: Any, schedule: Schedule | None = None
) -> Trainer:
    training = config.training
    schedule = schedule or Schedule.fit(training, config.model.model_dim, training.steps)
    return Trainer(prepared.task, prepared.model, training, schedule, watcher, folder, prepared.threads)


def _data_facts(request: Request, prepared: Prepared) -> dict[str, Any]:
    return {
        "files": [path.name for path in request.files],
        "fingerprint": prepared.corpus.fingerprint,
        "train_examples": prepared.task.sizes()[0],
        "valid_examples": prepared.task.sizes()[1],
        "skipped": dict(prepared.corpus.skips.counts),
    }


def _facts(prepared: Prepared) -> dict[str, Any]:
    return {
        "parameters": count_parameters(prepared.model),
        "threads": prepared.threads,
        "machine": platform.machine(),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "state": "interrupted" if outcome.reason == "interrupted" else "finished",
        "ended": outcome.reason,
        "steps": outcome.step,
        "planned_steps": outcome.steps,
        "epochs": outcome.epochs,
        "minutes": round(outcome.seconds / 60, 2),
        "cpu_minutes": round(outcome.cpu_seconds / 60, 2),
        "target_tokens": outcome.tokens,
        "bad_steps": outcome.bad_steps,
    }
