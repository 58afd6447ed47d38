"""What a run leaves in its folder: metrics.jsonl, its state, and the bundle of the best weights.

The figures of a run as TensorBoard's event files, by tensorboardX: it needs protobuf and numpy alone, where torch's
own writer needs all of TensorBoard. Imported only when they are asked for.
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
from clearhead.training.distributed.process_group import job
from clearhead.training.loop.train_state import TrainState

EVENTS = "tensorboard"


def require_tensorboard() -> None:
    """Raise an error before the work starts if event files cannot be written."""
    require_package("tensorboardX", "--tensorboard")


class EventFiles:
    """Event files in the folder `tensorboard/` of a run, the same figures as in its metrics."""

    def __init__(self, folder: Path, step: int) -> None:
        """`step`: where the run stands; TensorBoard hides what was noted behind it before."""
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

        # Names carry the time in seconds, and a file of the same name is written over: so their number too.
        number = len([*(folder / EVENTS).glob("*")])
        self._writer = SummaryWriter(
            str(folder / EVENTS), purge_step=step + 1 if step else None, filename_suffix=f".{number}"
        )

    def record(self, entry: Mapping[str, Any]) -> None:
        """One line of the metrics."""
        for name, value in figures(entry).items():
            self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


def figures(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a line of the metrics, by the names that TensorBoard groups them by."""
    found = {f"train/{name}": entry[name] for name in ("loss", "rate", "tokens_per_second") if name in entry}
    for name, value in entry.get("valid", {}).items():
        inner = value.get("score") if isinstance(value, Mapping) and "signature" in value else value
        found |= {f"valid/{name}": inner} if not isinstance(inner, Mapping) else {}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


METRICS = "metrics.jsonl"
TRAINING = "training"


def check(folder: Path, *, overwrite: bool, resume: bool) -> None:
    """Says why a folder cannot take a run, before any work is done."""
    if not any(folder.iterdir()) or (resume and has_run(folder)):
        return
    if resume and bundle.exists(folder):
        raise BundleError(f"{folder} holds a model and no run; --from trains it further, in another --out")
    if not has_run(folder) and not bundle.exists(folder):
        raise BundleError(f"{folder} is not empty and holds no run of clearhead; choose another --out")
    if not overwrite:
        raise BundleError(f"{folder} {_found(folder)}, or add --overwrite to replace it, or choose another --out")


def has_run(folder: Path) -> bool:
    """Whether clearhead trained here."""
    return (folder / METRICS).exists() or (folder / TRAINING).is_dir()


def is_finished(folder: Path) -> bool:
    """Whether a run ended here whose state was removed since."""
    if any((folder / TRAINING).glob("*")) or not bundle.exists(folder):
        return False
    return bundle.read_manifest(folder).training.get("state") == "finished"


def initialise(folder: Path) -> None:
    """Makes the folder ready; the model of an earlier run stays until the new run has one of its own."""
    try:
        CheckpointFolder.cleared(folder / TRAINING).own(job())
        (folder / METRICS).write_bytes(b"")
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}") from error


def is_own(folder: Path) -> bool:
    """Whether the run in the folder is that of this very job."""
    return CheckpointFolder(folder / TRAINING).belongs_to(job())


def _found(folder: Path) -> str:
    """What lies in a folder, and how to go on with it."""
    kept = CheckpointFolder.load(folder / TRAINING)
    if kept and kept.state:
        counts, planned = kept.state.counts, kept.state.steps
        if kept.state.is_finished:
            return f"holds a finished run of {counts.step:,} updates; add --resume and more --steps to go on with it"
        return f"holds an unfinished run, saved at update {counts.step:,} of {planned:,}; add --resume to go on with it"
    if is_finished(folder):
        return "holds a finished run; use --from to train its model further in another --out"
    if not has_run(folder):
        return "holds a model; use --from to train it further in another --out"
    return "holds a run that was interrupted before its first checkpoint; add --resume to begin it again"


def cut_metrics(folder: Path, length: int) -> bool:
    """Takes off what was noted after the state was saved: it will be noted again. Whether all before that is there."""
    path = folder / METRICS
    if not path.exists():
        path.touch()
    kept = path.read_bytes()[:length]
    os.truncate(path, kept.rfind(b"\n") + 1)
    return len(kept) == length


def validation_facts(validation: Validation) -> dict[str, Any]:
    """Return what the training summary of a manifest says about the quality of its weights."""
    return {"scores": validation.to_json(), "warning": validation.warning}


@dataclass
class RunFolder:
    """The folder of one run. Every file in it is whole at any moment."""

    folder: Path
    config: Config
    tokenizer: str
    data: dict[str, Any]
    training: dict[str, Any]
    origin: RunOrigin
    state: CheckpointFolder
    events: EventFiles | None = None

    def record(self, entry: dict[str, Any]) -> None:
        """Appends one line to metrics.jsonl, and to the event files if there are some."""
        if self.events:
            self.events.record(entry)
        try:
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except OSError as error:
            raise TrainingError(
                f"cannot write {self.folder / METRICS}: {error.strerror}; mend that, then add --resume"
            ) from error

    def save(self, counts: TrainState, weights: Weights, moments: Weights, is_checkpoint: bool) -> None:
        """Saves the whole state; only the last `training.average_checkpoints` checkpoints are kept."""
        sync(self.folder / METRICS)
        self.state.save(
            self.origin,
            counts,
            weights,
            moments,
            average=self.config.training.average_checkpoints if is_checkpoint else 0,
            metrics_bytes=(self.folder / METRICS).stat().st_size,
        )

    def best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Keeps the best weights so far, and writes their bundle, so that it can be used while training goes on."""
        self.state.keep_best(step, weights)
        self.save_bundle(weights, "best", {"state": "running", "best_step": step, **validation_facts(validation)})

    def best_weights(self) -> Weights:
        """The best weights so far."""
        return self.state.tensors(self.state.best)

    def save_bundle(self, weights: Weights, kind: WeightsKind, summary: dict[str, Any]) -> None:
        """Writes the bundle."""
        self.training |= summary
        training = {name: fact for name, fact in self.training.items() if fact != ""}  # such as no warning
        save_bundle(
            self.folder,
            weights=with_tied_names(self.config.model, weights),
            config=self.config.model_dump(),
            tokenizer=self.tokenizer,
            weights_kind=kind,
            data=self.data,
            training=training,
        )

    def average(self) -> Weights:
        """The mean of the kept checkpoints (section 6.1)."""
        names = self.state.checkpoints
        total: Weights = {}
        for checkpoint in names:
            for name, tensor in self.state.tensors(checkpoint).items():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
        return {name: (tensor / len(names)).to(torch.float32) for name, tensor in total.items()}


class NullRunFolder:
    """What the other processes of a run keep: nothing, for the first one writes it all."""

    def record(self, entry: dict[str, Any]) -> None:
        """Nothing."""

    def save(self, counts: TrainState, weights: Weights, moments: Weights, is_checkpoint: bool) -> None:
        """Nothing."""

    def best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Nothing."""
