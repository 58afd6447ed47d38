"""The end of a run: which of its weights are kept, and what is said of them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead.bundle import WeightsKind
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.parameters import Weights
from clearhead.tasks.registry import get_task
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.run_folder import NullRunFolder, RunFolder, validation_facts
from clearhead.training.loop.callbacks import Callback
from clearhead.training.loop.trainer import Trainer, TrainingOutcome
from clearhead.training.setup.forgetting import OldValidation, compare


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: where the model lies and how good it is on the validation data."""

    folder: Path
    outcome: TrainingOutcome
    weights_kind: str
    validation: Validation
    verb: str  # the command that runs it

    def to_text(self) -> str:
        """All of it, for another process."""
        return json.dumps({**asdict(self), "folder": str(self.folder), "validation": self.validation.to_text()})

    @classmethod
    def from_text(cls, text: str) -> "TrainingResult":
        """What `to_text` gave."""
        facts = json.loads(text)
        folder, outcome = Path(facts["folder"]), TrainingOutcome(**facts["outcome"])
        return cls(folder, outcome, facts["weights_kind"], Validation.from_text(facts["validation"]), facts["verb"])


def finalize(
    trainer: Trainer,
    folder: RunFolder | NullRunFolder,
    outcome: TrainingOutcome,
    watcher: Callback,
    old: OldValidation | None = None,
) -> TrainingResult:
    """Saves the best weights of a run, which after an interruption are those of its best validation.

    The first process, which has the folder, does it; the others give the same result.
    """
    last, followed = trainer.weights(), trainer.followed()  # which all processes put together
    text = ""
    if isinstance(folder, RunFolder):
        kind, validation = _keep(trainer, folder, outcome, last, followed, watcher, old)
        verb = get_task(folder.config.task).verb
        text = TrainingResult(folder.folder, outcome, kind, validation, verb).to_text()
    trainer.model.eval()
    return TrainingResult.from_text(trainer.processes.tell(text))


def _keep(
    trainer: Trainer,
    folder: RunFolder,
    outcome: TrainingOutcome,
    last: Weights,
    followed: Weights,
    watcher: Callback,
    old: OldValidation | None,
) -> tuple[WeightsKind, Validation]:
    """Which weights become the model, and how good they are."""
    kind: WeightsKind = "best"
    if outcome.reason != "interrupted":
        kind, weights, validation = _best_of_all(trainer, folder, last, followed, watcher)
    elif trainer.counts.best:
        weights, validation = folder.best_weights(), trainer.counts.best
    else:  # there was no validation yet: the weights as they are, so that there is a model
        weights, validation = last, trainer.score(last)
    is_interrupted = outcome.reason == "interrupted"
    if validation.score is None and not is_interrupted:  # even a model that has learned nothing has a score
        validation = trainer.score(weights, decode="sample")
    summary = _summary(replace(outcome, seconds=trainer.elapsed())) | validation_facts(validation)
    if old and not is_interrupted:
        summary |= _compare_old(old, trainer, folder, weights, watcher)
    folder.save_bundle(weights, kind, summary)
    if outcome.reason != "interrupted":
        folder.state.finish()
    if folder.events:
        folder.events.close()
    return kind, validation


def _compare_old(
    old: OldValidation, trainer: Trainer, folder: RunFolder, weights: Weights, watcher: Callback
) -> Mapping[str, Any]:
    """Score the new weights on the old model's validation set and report the change."""
    if old.before is None:
        return {}
    tokenizer = None if folder.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(folder.tokenizer)
    task = old.task(folder.config.model, tokenizer)
    after = trainer.score(weights, task)
    return compare(old, task, after, "replay_fingerprint" in folder.data, watcher.message)


def _best_of_all(
    trainer: Trainer, folder: RunFolder, last: Weights, followed: Weights, watcher: Callback
) -> tuple[WeightsKind, Weights, Validation]:
    """Validate averaged weights, if there are any; the best and the last ones have been validated."""
    counts = trainer.counts
    assert counts.best is not None and counts.last is not None, "the last update is always validated"
    candidates: dict[WeightsKind, Weights] = {"best": folder.best_weights()}
    if len(folder.state.checkpoints) > 1:
        candidates["averaged"] = folder.average()
    if followed:
        candidates["ema"] = _copy(followed)
    if len(candidates) > 1 and counts.best_step != counts.step:
        candidates["last"] = _copy(last)
    scores: dict[WeightsKind, Validation] = {"best": counts.best, "last": counts.last}
    unknown = [kind for kind in candidates if kind not in scores]
    if unknown:
        watcher.message(f"validating the {' and the '.join(unknown)} weights")
    scores |= {kind: trainer.score(candidates[kind]) for kind in unknown}
    kind = max(candidates, key=lambda name: scores[name].rank)
    shown = ", ".join(f"{name} {scores[name].figure}" for name in candidates)
    watcher.message(f"validation of the weights: {shown}; kept: {kind}")
    return kind, candidates[kind], scores[kind]


def _copy(weights: Weights) -> Weights:
    """So that other weights can be put into the network."""
    return {name: tensor.clone() for name, tensor in weights.items()}


def report_finished(folder: Path, watcher: Callback) -> TrainingResult:
    """The result of a run that was finished before, from its folder."""
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
        bad_steps=facts["bad_steps"],
        signal=0,
    )
    watcher.message(
        f"{folder} is finished after {outcome.step:,} updates; more than {outcome.steps:,} --steps make it go on"
    )
    validation = Validation.from_json(facts["scores"])
    task = str(bundle.load(folder).config["task"])
    return TrainingResult(folder, outcome, manifest.weights_kind, validation, get_task(task).verb)


def _summary(outcome: TrainingOutcome) -> dict[str, Any]:
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
