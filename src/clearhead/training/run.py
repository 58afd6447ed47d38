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

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.corpus import Corpus, Pair, load_pairs
from clearhead.data.split import split_valid
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError
from clearhead.model.families import build_model
from clearhead.model.transformer import Transformer, count_parameters
from clearhead.model.weights import Weights, restore, snapshot
from clearhead.tasks.task import Validation
from clearhead.tasks.translate import TranslationTask, tokenise_pairs
from clearhead.training import keeper
from clearhead.training.choose import choose
from clearhead.training.events import Silent, Watcher
from clearhead.training.keeper import RunFolder
from clearhead.training.schedule import Schedule
from clearhead.training.trainer import Outcome, Trainer, seconds_per_update

MIN_PAIRS = 10
VALIDATION_SHARE = 0.1  # of the time of a run with --minutes that is kept for validations


@dataclass(frozen=True)
class Request:
    """What a user asks for."""

    pairs: Sequence[Path]
    out: Path
    valid: Sequence[Path] = ()
    preset: str = ""
    settings: Mapping[str, Any] | None = None  # a recipe with the user's settings on top
    overwrite: bool = False
    threads: int = 0


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first update."""

    config: Config
    tokenizer: Tokenizer
    task: TranslationTask
    model: Transformer
    corpus: Corpus
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
        request.out, config, prepared.tokenizer.to_json(), _data_facts(request, prepared), _facts(prepared)
    )
    trainer = _trainer(prepared, config, watcher, folder)
    outcome = trainer.run()
    return _finish(prepared, folder, outcome, watcher)


def prepare(request: Request, watcher: Watcher) -> Prepared:
    """Reads the data, chooses what was left open, trains the tokenizer and builds the task and the model."""
    given = dict(request.settings or {})
    preset = request.preset or str(given.get("preset", ""))
    draft = configs.build(given, preset=preset)  # mistakes in the settings come before the data is read
    _check_length(draft)
    corpus = load_pairs(request.pairs, draft.data.max_chars, MIN_PAIRS)
    for line in corpus.skips.lines():
        watcher.message(f"skipped {line}")
    choice = choose(len(corpus.pairs), given, preset)
    config = configs.build(choice.settings, given, preset=choice.preset)
    train_pairs, valid_pairs = _held_out(request, config, corpus, watcher)
    watcher.message(f"{len(train_pairs):,} pairs to train on, {len(valid_pairs):,} to validate")
    texts = (text for pair in train_pairs for text in (pair.source, pair.target))
    tokenizer = Tokenizer.train(texts, config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    return _assemble(request, config, tokenizer, corpus, train_pairs, valid_pairs, choice.reasons, watcher)


def _assemble(
    request: Request, config: Config, tokenizer: Tokenizer, corpus: Corpus, train_pairs: list[Pair],
    valid_pairs: list[Pair], reasons: list[str], watcher: Watcher,
) -> Prepared:  # fmt: skip
    limit = min(config.data.max_pieces, config.model.max_positions)
    before = corpus.skips.total
    train_store, _ = tokenise_pairs(train_pairs, tokenizer, limit, corpus.skips, request.pairs[0])
    valid_store, valid_kept = tokenise_pairs(
        valid_pairs, tokenizer, limit, corpus.skips, [*request.valid, *request.pairs][0]
    )
    if corpus.skips.total > before:
        watcher.message(f"skipped {corpus.skips.total - before:,} pairs longer than {limit} pieces")
    torch.manual_seed(config.training.seed)
    model = build_model(config.model)
    task = TranslationTask(config, tokenizer, train_store, valid_store, valid_kept)
    threads = request.threads or torch.get_num_threads()
    return Prepared(config, tokenizer, task, model, corpus, reasons, threads)


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
    model = prepared.config.model
    watcher.message(
        f"{model.family} with {model.num_encoder_layers}+{model.num_decoder_layers} layers, width {model.model_dim}, "
        f"{model.num_heads} heads, {model.vocab_size:,} pieces: {count_parameters(prepared.model):,} parameters"
    )


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
        scores[kind] = prepared.task.validate(prepared.model)
    kind = max(scores, key=lambda name: scores[name].score)
    shown = ", ".join(f"{name} {score.score:.2f}" for name, score in scores.items())
    watcher.message(f"validation {scores[kind].score_name} of the weights: {shown}; kept: {kind}")
    summary = _summary(outcome) | {"scores": scores[kind].to_json()}
    folder.save(candidates[kind], kind, summary)  # type: ignore[arg-type]
    folder.close()
    prepared.model.eval()
    return TrainingResult(folder.folder, outcome, kind, scores[kind])


def _held_out(request: Request, config: Config, corpus: Corpus, watcher: Watcher) -> tuple[list[Pair], list[Pair]]:
    if not request.valid:
        return split_valid(corpus.pairs, config.data.valid_share, config.data.valid_max)
    valid = load_pairs(request.valid, config.data.max_chars)
    for line in valid.skips.lines():
        watcher.message(f"skipped {line}")
    return corpus.pairs, valid.pairs


def _check_length(config: Config) -> None:
    given = [name for name in ("steps", "epochs", "minutes") if getattr(config.training, name)]
    if len(given) > 1:
        raise ConfigError(f"the length of a training is given twice, by {' and '.join(given)}; keep one")


def _trainer(
    prepared: Prepared, config: Config, watcher: Watcher, folder: Any, schedule: Schedule | None = None
) -> Trainer:
    training = config.training
    schedule = schedule or Schedule.fit(training, config.model.model_dim, training.steps)
    return Trainer(prepared.task, prepared.model, training, schedule, watcher, folder, prepared.threads)


def _data_facts(request: Request, prepared: Prepared) -> dict[str, Any]:
    return {
        "files": [path.name for path in request.pairs],
        "fingerprint": prepared.corpus.fingerprint,
        "train_pairs": len(prepared.task.train),
        "valid_pairs": len(prepared.task.valid),
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
