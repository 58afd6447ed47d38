"""Lock of a run folder, and read-only access to existing runs: their status and their curves.

The folder itself is locked and not a file in it, so that no file remains. The lock ends with the process that holds it,
even if that is killed.
"""

import errno
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clearhead import bundle
from clearhead.errors import BundleError, ClearheadError, TrainingError
from clearhead.json_format import JsonResult
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.checkpoint import CheckpointState, load_state
from clearhead.training.checkpoint.run_folder import METRICS, TRAINING, has_run


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create and lock the folder inside the block; delete it at the end if it was created here and is still empty.

    Raise TrainingError if another training runs in the folder, or if it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise TrainingError(f"{folder} is a file; --out expects a folder; choose another --out")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    try:
        _lock(handle, folder)
        _check_writable(folder)
        yield
    finally:
        os.close(handle)
        if is_new:
            with suppress(OSError):  # not empty
                folder.rmdir()


def is_locked(folder: Path) -> bool:
    """Return whether a training runs in the folder; a training that is just starting may be missed."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _lock(handle: int, folder: Path) -> None:
    """Lock an open folder; raise TrainingError if another process has locked it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise TrainingError(
                f"another training is running in {folder}; wait for it to end, or choose another --out"
            ) from None
        # Some network file systems cannot lock folders; there a second training is not detected.


def _check_writable(folder: Path) -> None:
    """Raise TrainingError if the folder is not writable, before a run would fail at its first save.

    The test writes a temporary file, which has no name where the file system supports that.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error


Status = Literal["running", "stopped", "finished", "damaged"]
Point = tuple[int, float]


@dataclass(frozen=True)
class RunStatus(JsonResult):
    """Status of one run, as a row of a table; unknown values are None."""

    folder: str
    state: Status
    task: str | None = None
    step: int | None = None
    steps: int | None = None
    score: float | None = None
    score_name: str | None = None
    minutes: float | None = None
    parameters: int | None = None
    problem: str | None = None
    """Error message for a damaged run."""


@dataclass(frozen=True)
class RunCurves(JsonResult):
    """Curves of a run: (update, value) points."""

    loss: Sequence[Point]
    """Training loss per token, smoothed over updates."""
    valid_loss: Sequence[Point]
    score: Sequence[Point]
    score_name: str
    rate: Sequence[Point]


def find_runs(folders: Iterable[Path]) -> list[RunStatus]:
    """Return the status of all runs in and below these folders, sorted by path and without duplicates."""
    runs: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise BundleError(f"{folder} does not exist; expected a folder with runs of clearhead train --out")
        candidates = {path.parent for name in (METRICS, TRAINING) for path in folder.rglob(name)}
        runs |= {path for path in candidates if has_run(path)}
    return [read_run(path) for path in sorted(runs)]


def read_run(folder: Path) -> RunStatus:
    """Return the status of a run."""
    try:
        state = load_state(folder / TRAINING)
        manifest = bundle.read_manifest(folder) if bundle.exists(folder) else None
    except ClearheadError as error:
        return RunStatus(str(folder), "damaged", problem=str(error))
    facts: dict[str, Any] = dict(manifest.training) if manifest else {}
    is_finished = state.is_finished if state else facts.get("state") == "finished"
    status: Status = "running" if is_locked(folder) else "finished" if is_finished else "stopped"
    return RunStatus(folder=str(folder), state=status, parameters=facts.get("parameters"), **_progress(state, facts))


def _progress(state: CheckpointState | None, facts: dict[str, Any]) -> dict[str, Any]:
    """Return steps, time and score of a run, from its state, or from the manifest if the state was deleted."""
    validation = Validation.from_json(facts["scores"]) if facts.get("scores") else None
    progress = {"step": facts.get("steps"), "steps": facts.get("planned_steps"), "minutes": facts.get("minutes")}
    if state:
        train_state, config = state.train_state, state.origin.config
        progress = {"step": train_state.step, "steps": state.steps, "minutes": round(train_state.seconds / 60, 2)}
        progress["task"] = config["task"]
        validation = validation if state.is_finished and validation else train_state.best
    if validation:
        progress |= {"score": validation.score, "score_name": validation.score_name}
    return progress


def read_curves(folder: Path) -> RunCurves:
    """Return the curves of a run from its metrics, without an incomplete last line."""
    path = folder / METRICS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}; expected a run folder") from error
    entries = [entry for line in lines if (entry := _parse_line(line))]
    valid = [(entry["step"], Validation.from_json(entry["valid"])) for entry in entries if "valid" in entry]
    curves = RunCurves(
        loss=_finite((entry["step"], entry["loss"]) for entry in entries if "loss" in entry),
        valid_loss=_finite((step, validation.loss) for step, validation in valid),
        score=_finite((step, validation.score) for step, validation in valid if validation.score is not None),
        score_name=valid[-1][1].score_name if valid else "score",
        rate=_finite((entry["step"], entry["rate"]) for entry in entries if "rate" in entry),
    )
    if not curves.loss and not curves.score:
        raise BundleError(f"{path} has no entries yet; wait for the first update of the run")
    return curves


def _parse_line(line: str) -> dict[str, Any]:
    """Return one entry of the metrics; empty if the line is incomplete."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and "step" in entry else {}


def _finite(points: Iterable[Point]) -> list[Point]:
    """Return the points with finite values; others cannot be drawn."""
    return [(step, value) for step, value in points if math.isfinite(value)]
