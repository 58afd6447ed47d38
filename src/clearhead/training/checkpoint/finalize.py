"""End of a run: selection of the best weights, the final bundle, and the training summary."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead.bundle import WeightsKind
from clearhead.model.parameters import Weights
from clearhead.tasks.registry import get_task
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.run_folder import RunFolder, validation_facts
from clearhead.training.loop.callbacks import Callback, NullRunLogger
from clearhead.training.loop.trainer import Trainer, TrainingOutcome
from clearhead.training.setup.finetune import tokenizer_from_text
from clearhead.training.setup.forgetting import OldValidation, report_forgetting


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: the folder of its model, and the quality of the model on the validation data."""

    folder: Path
    outcome: TrainingOutcome
    weights_kind: str
    validation: Validation
    verb: str  # the command that runs the model

    def to_text(self) -> str:
        """Return all fields, for another process."""
        return json.dumps({**asdict(self), "folder": str(self.folder), "validation": self.validation.to_text()})

    @classmethod
    def from_text(cls, text: str) -> "TrainingResult":
        """Return the result that `to_text` wrote."""
        facts = json.loads(text)
        folder, outcome = Path(facts["folder"]), TrainingOutcome(**facts["outcome"])
        return cls(folder, outcome, facts["weights_kind"], Validation.from_text(facts["validation"]), facts["verb"])


@dataclass(frozen=True)
class _Selection:
    """Weights of the final model, with their validation."""

    kind: WeightsKind
    weights: Weights
    validation: Validation


def finalize(
    trainer: Trainer,
    folder: RunFolder | NullRunLogger,
    outcome: TrainingOutcome,
    old: OldValidation | None = None,
) -> TrainingResult:
    """Save the final model and return the result of the training.

    The final model has the best weights of a run, after an interruption the weights of its best validation. All
    processes must call this; rank 0 validates and saves, and all return the same result.
    """
    last, ema = trainer.weights(), trainer.ema_weights()  # gathered from all processes
    text = ""
    if isinstance(folder, RunFolder):
        selection = _select_weights(trainer, folder, outcome, last, ema)
        _save(trainer, folder, outcome, selection, old)
        verb = get_task(folder.config.task).verb
        text = TrainingResult(folder.folder, outcome, selection.kind, selection.validation, verb).to_text()
    trainer.model.eval()
    return TrainingResult.from_text(trainer.group.broadcast_text(text))


def _select_weights(
    trainer: Trainer, folder: RunFolder, outcome: TrainingOutcome, last: Weights, ema: Weights
) -> _Selection:
    """Return the weights of the final model, with their validation."""
    if outcome.reason == "interrupted":
        if trainer.state.best:
            return _Selection("best", folder.best_weights(), trainer.state.best)
        return _Selection("best", last, trainer.score(last))  # interrupted before the first validation
    selection = _select_best(trainer, folder, last, ema)
    if selection.validation.score is None:  # a model that has learned nothing needs a score too
        return replace(selection, validation=trainer.score(selection.weights, decode="sample"))
    return selection


def _select_best(trainer: Trainer, folder: RunFolder, last: Weights, ema: Weights) -> _Selection:
    """Validate averaged weights, if there are any, and return the best weights of all candidates."""
    state = trainer.state
    assert state.best is not None and state.last_validation is not None, "the last update is always validated"
    candidates: dict[WeightsKind, Weights] = {"best": folder.best_weights()}
    if len(folder.checkpoint.checkpoints) > 1:
        candidates["averaged"] = folder.average_checkpoints()
    if ema:
        candidates["ema"] = _copy(ema)
    if len(candidates) > 1 and state.best_step != state.step:
        candidates["last"] = _copy(last)
    scores: dict[WeightsKind, Validation] = {"best": state.best, "last": state.last_validation}
    unknown = [kind for kind in candidates if kind not in scores]
    if unknown:
        trainer.callback.message(f"validating the {' and the '.join(unknown)} weights")
    scores |= {kind: trainer.score(candidates[kind]) for kind in unknown}
    kind = max(candidates, key=lambda name: scores[name].rank)
    figures = ", ".join(f"{name} {scores[name].figure}" for name in candidates)
    trainer.callback.message(f"validation of the weights: {figures}; selected: {kind}")
    return _Selection(kind, candidates[kind], scores[kind])


def _copy(weights: Weights) -> Weights:
    """Return copies, which stay unchanged when other weights are loaded into the model."""
    return {name: tensor.clone() for name, tensor in weights.items()}


def _save(
    trainer: Trainer, folder: RunFolder, outcome: TrainingOutcome, selection: _Selection, old: OldValidation | None
) -> None:
    """Write the final bundle, and mark the run as finished unless it was interrupted."""
    is_interrupted = outcome.reason == "interrupted"
    facts = _summary(replace(outcome, seconds=trainer.elapsed())) | validation_facts(selection.validation)
    if old and not is_interrupted:
        facts |= _compare_old(old, trainer, folder, selection.weights)
    folder.save_bundle(selection.weights, selection.kind, facts)
    if not is_interrupted:
        folder.checkpoint.mark_finished()
    if folder.events:
        folder.events.close()


def _compare_old(old: OldValidation, trainer: Trainer, folder: RunFolder, weights: Weights) -> Mapping[str, Any]:
    """Score the new weights on the old model's validation set, and report and return the change."""
    if old.before is None:
        return {}
    task = old.task(folder.config.model, tokenizer_from_text(folder.tokenizer))
    after = trainer.score(weights, task)
    return report_forgetting(old, task, after, "replay_fingerprint" in folder.data, trainer.callback.message)


def report_finished(folder: Path, callback: Callback) -> TrainingResult:
    """Report that a run is already finished, and return its result from its folder."""
    manifest = bundle.read_manifest(folder)
    facts: dict[str, Any] = manifest.training
    outcome = TrainingOutcome(
        reason=facts["ended"],
        step=facts["steps"],
        steps=facts["planned_steps"],
        epochs=facts["epochs"],
        seconds=60 * facts["minutes"],
        cpu_seconds=60 * facts["cpu_minutes"],
        tokens=facts["target_tokens"],
        nonfinite_steps=facts["bad_steps"],
        signal=0,
    )
    callback.message(
        f"{folder} is finished after {outcome.step:,} updates; to continue it, set --steps above {outcome.steps:,}"
    )
    validation = Validation.from_json(facts["scores"])
    task = str(bundle.load(folder).config["task"])
    return TrainingResult(folder, outcome, manifest.weights_kind, validation, get_task(task).verb)


def _summary(outcome: TrainingOutcome) -> dict[str, Any]:
    """Return the training summary for the manifest."""
    return {
        "state": "interrupted" if outcome.reason == "interrupted" else "finished",
        "ended": outcome.reason,
        "steps": outcome.step,
        "planned_steps": outcome.steps,
        "epochs": outcome.epochs,
        "minutes": round(outcome.seconds / 60, 2),
        "cpu_minutes": round(outcome.cpu_seconds / 60, 2),
        "target_tokens": outcome.tokens,
        "bad_steps": outcome.nonfinite_steps,
    }
