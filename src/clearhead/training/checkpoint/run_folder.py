"""The folder of a run: metrics.jsonl, checkpoints, the bundle of the best weights, and TensorBoard event files.

Event files are written with tensorboardX, which requires only protobuf and numpy, while torch's writer requires all of
TensorBoard. It is imported only for --tensorboard.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead import bundle
from clearhead.bundle import WeightsKind
from clearhead.bundle.writer import save as save_bundle
from clearhead.config import Config
from clearhead.errors import BundleError, TrainingError
from clearhead.extras import require_package
from clearhead.files import sync
from clearhead.model.parameters import Weights
from clearhead.model.registry import with_tied_names
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, RunOrigin
from clearhead.training.distributed.process_group import torchrun_job
from clearhead.training.loop.train_state import TrainState

METRICS = "metrics.jsonl"
TRAINING = "training"
EVENTS = "tensorboard"


def check_folder(folder: Path, *, overwrite: bool, resume: bool) -> None:
    """Raise BundleError if the folder cannot be used for the run; this is called before any work is done."""
    if not any(folder.iterdir()) or (resume and has_run(folder)):
        return
    if resume and bundle.exists(folder):
        raise BundleError(f"{folder} has a model but no run; use --from to train it further in another --out")
    if not has_run(folder) and not bundle.exists(folder):
        raise BundleError(f"{folder} is not empty and has no run of clearhead; choose another --out")
    if not overwrite:
        raise BundleError(
            f"{folder} {_describe_contents(folder)}, or add --overwrite to replace it, or choose another --out"
        )


def has_run(folder: Path) -> bool:
    """Return whether the folder has a run."""
    return (folder / METRICS).exists() or (folder / TRAINING).is_dir()


def is_finished(folder: Path) -> bool:
    """Return whether the folder has a finished run whose checkpoints were deleted."""
    if any((folder / TRAINING).glob("*")) or not bundle.exists(folder):
        return False
    return bundle.read_manifest(folder).training.get("state") == "finished"


def initialize(folder: Path) -> None:
    """Prepare the folder for a new run; the model of an earlier run stays until the new run saves one."""
    try:
        CheckpointFolder.create_empty(folder / TRAINING).set_owner(torchrun_job())
        (folder / METRICS).write_bytes(b"")
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}") from error


def belongs_to_this_job(folder: Path) -> bool:
    """Return whether the torchrun job of this process started the run in the folder."""
    return CheckpointFolder(folder / TRAINING).is_owned_by(torchrun_job())


def _describe_contents(folder: Path) -> str:
    """Return a description of the folder's content and of the options to continue it, for an error message."""
    checkpoint = CheckpointFolder.load(folder / TRAINING)
    if checkpoint and checkpoint.state:
        step, steps = checkpoint.state.train_state.step, checkpoint.state.steps
        if checkpoint.state.is_finished:
            return f"has a finished run of {step:,} updates; add --resume and more --steps to continue it"
        return f"has an unfinished run, saved at update {step:,} of {steps:,}; add --resume to continue it"
    if is_finished(folder):
        return "has a finished run; use --from to train its model further in another --out"
    if not has_run(folder):
        return "has a model; use --from to train it further in another --out"
    return "has a run that was interrupted before its first checkpoint; add --resume to start it again"


def truncate_metrics(folder: Path, length: int) -> bool:
    """Remove the metrics after the last save, which will be recorded again; return whether all earlier ones exist."""
    path = folder / METRICS
    if not path.exists():
        path.touch()
    content = path.read_bytes()[:length]
    os.truncate(path, content.rfind(b"\n") + 1)
    return len(content) == length


def validation_facts(validation: Validation) -> dict[str, Any]:
    """Return scores and warning of a validation for the training summary of a manifest."""
    return {"scores": validation.to_json(), "warning": validation.warning}


def require_tensorboard() -> None:
    """Raise MissingPackageError if tensorboardX is not installed."""
    require_package("tensorboardX", "--tensorboard")


class EventFiles:
    """Event files in the folder `tensorboard/` of a run, with the same figures as its metrics."""

    def __init__(self, folder: Path, step: int) -> None:
        """`step` is the current step of the run; TensorBoard hides later entries, which a killed run wrote."""
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

        # File names contain only the time in seconds, so a number prevents that an existing file is overwritten.
        number = len([*(folder / EVENTS).glob("*")])
        self._writer = SummaryWriter(
            str(folder / EVENTS), purge_step=step + 1 if step else None, filename_suffix=f".{number}"
        )

    def record(self, entry: Mapping[str, Any]) -> None:
        """Write one line of the metrics."""
        for name, value in scalars(entry).items():
            self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Flush and close the files."""
        self._writer.close()


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a line of the metrics, under TensorBoard names such as train/loss."""
    values = {f"train/{name}": entry[name] for name in ("loss", "rate", "tokens_per_second") if name in entry}
    for name, value in entry.get("valid", {}).items():
        score = value.get("score") if isinstance(value, Mapping) and "signature" in value else value
        values |= {f"valid/{name}": score} if not isinstance(score, Mapping) else {}
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


@dataclass
class RunFolder:
    """Folder of one run, written by rank 0. Every file in it is complete at any moment."""

    folder: Path
    config: Config
    tokenizer: str
    data: dict[str, Any]
    summary: dict[str, Any]
    """Training summary for the manifest."""
    origin: RunOrigin
    checkpoint: CheckpointFolder
    events: EventFiles | None = None

    def record(self, entry: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl, and to the event files if there are any."""
        if self.events:
            self.events.record(entry)
        try:
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except OSError as error:
            raise TrainingError(
                f"cannot write {self.folder / METRICS}: {error.strerror}; fix the cause, then add --resume"
            ) from error

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        """Save the complete state; only the last `training.average_checkpoints` checkpoints remain."""
        sync(self.folder / METRICS)
        self.checkpoint.save(
            self.origin,
            state,
            weights,
            optimizer,
            average=self.config.training.average_checkpoints if is_checkpoint else 0,
            metrics_bytes=(self.folder / METRICS).stat().st_size,
        )

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Save the best weights and their bundle, so that the model can be used while training continues."""
        self.checkpoint.save_best(step, weights)
        self.save_bundle(weights, "best", {"state": "running", "best_step": step, **validation_facts(validation)})

    def best_weights(self) -> Weights:
        """Return the best weights so far."""
        return self.checkpoint.load_tensors(self.checkpoint.best)

    def save_bundle(self, weights: Weights, kind: WeightsKind, facts: dict[str, Any]) -> None:
        """Write the bundle, after adding these facts to the training summary."""
        self.summary |= facts
        save_bundle(
            self.folder,
            weights=with_tied_names(self.config.model, weights),
            config=self.config.model_dump(),
            tokenizer=self.tokenizer,
            weights_kind=kind,
            data=self.data,
            training={name: fact for name, fact in self.summary.items() if fact != ""},  # such as an empty warning
        )

    def average_checkpoints(self) -> Weights:
        """Return the mean of the last checkpoints' weights (section 6.1)."""
        names = self.checkpoint.checkpoints
        total: Weights = {}
        for checkpoint in names:
            for name, tensor in self.checkpoint.load_tensors(checkpoint).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return {name: (tensor / len(names)).to(torch.float32) for name, tensor in total.items()}
