"""The end of a run: which of its weights are kept, and what is said of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead.model.weights import Weights, named_weights, restore, snapshot
from clearhead.tasks.purposes import purpose
from clearhead.tasks.task import Validation
from clearhead.training.events import Watcher
from clearhead.training.keeper import RunFolder
from clearhead.training.replicas import torch_threads
from clearhead.training.trainer import Outcome, Trainer


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: where the model lies and how good it is on the validation data."""

    folder: Path
    outcome: Outcome
    weights_kind: str
    validation: Validation
    verb: str  # the command that runs it


def finish(trainer: Trainer, folder: RunFolder, outcome: Outcome, watcher: Watcher) -> TrainingResult:
    """Saves the best weights of a run, which after an interruption are those of its best validation."""
    if outcome.reason == "interrupted":
        kind, weights, validation = "best", *_best_so_far(trainer, folder)
    else:
        kind, weights, validation = _best_of_all(trainer, folder, watcher)
    folder.save_bundle(weights, kind, _summary(outcome) | {"scores": validation.to_json()})  # type: ignore[arg-type]
    if outcome.reason != "interrupted":
        folder.state.finish()
    trainer.model.eval()
    return TrainingResult(folder.folder, outcome, kind, validation, purpose(folder.config.task).verb)


def _best_so_far(trainer: Trainer, folder: RunFolder) -> tuple[Weights, Validation]:
    """Of the best validation; without any, the weights as they are, so that there is a model. The state stays."""
    if trainer.counts.best:
        return folder.best_weights(), trainer.counts.best
    with torch_threads(trainer.threads):
        return named_weights(trainer.model), trainer.task.validate(trainer.model)


def _best_of_all(trainer: Trainer, folder: RunFolder, watcher: Watcher) -> tuple[str, Weights, Validation]:
    """Validates the best, the averaged and the last weights."""
    model = trainer.model
    candidates: dict[str, Weights] = {"best": folder.best_weights()}
    if len(folder.state.checkpoints) > 1:
        candidates |= {"averaged": folder.average(), "last": snapshot(model)}
    scores: dict[str, Validation] = {}
    for kind, weights in candidates.items():
        restore(model, weights)
        with torch_threads(trainer.threads):
            scores[kind] = trainer.task.validate(model)
    kind = max(scores, key=lambda name: scores[name].rank)
    shown = ", ".join(f"{name} {score.score:.2f}" for name, score in scores.items())
    watcher.message(f"validation {scores[kind].score_name} of the weights: {shown}; kept: {kind}")
    return kind, candidates[kind], scores[kind]


def report_finished(folder: Path, watcher: Watcher) -> TrainingResult:
    """The result of a run that was finished before."""
    manifest = bundle.read_manifest(folder)
    facts: dict[str, Any] = manifest.training
    outcome = Outcome(
        reason=facts["ended"],
        step=facts["steps"],
        steps=facts["planned_steps"],
        epochs=facts["epochs"],
        seconds=60 * facts["minutes"],
        cpu_seconds=60 * facts["cpu_minutes"],
        tokens=facts["target_tokens"],
        bad_steps=facts["bad_steps"],
        signal=0,
    )
    watcher.message(f"{folder} is finished after {outcome.step:,} updates; it goes on with more --steps")
    validation = Validation.from_json(facts["scores"])
    task = str(bundle.load(folder).config["task"])
    return TrainingResult(folder, outcome, manifest.weights_kind, validation, purpose(task).verb)


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
