"""One training at a time in a folder.

The lock is on the folder itself and not on a file in it: nothing is left behind, and it is gone with the process that
holds it, however that ends.

What runs left behind, read without touching them: how each stands, and its curves.
"""

import errno
import fcntl
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from clearhead import bundle
from clearhead.errors import BundleError, ClearheadError, TrainingError
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.checkpoint import CheckpointState, peek
from clearhead.training.checkpoint.run_folder import METRICS, TRAINING, has_run


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder, which is made if need be, and goes again if nothing was put into it.

    Refuses a folder in which another training runs, and one that cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise TrainingError(f"{folder} is a file; --out expects a folder")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    try:
        _lock(handle, folder)
        _probe(folder)
        yield
    finally:
        os.close(handle)
        if is_new:
            with suppress(OSError):  # not empty: that is what it is for
                folder.rmdir()


def is_locked(folder: Path) -> bool:
    """Whether a training runs in the folder; one that begins in this very moment may be overlooked."""
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
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise TrainingError(
                f"another training is running in {folder}; wait for it to end, or choose another --out"
            ) from None
        # Some network file systems lock no folders: there nobody guards against a second training.


def _probe(folder: Path) -> None:
    """An unwritable folder is found out now and not at the first save. The file has no name, where that is possible."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error


Standing = Literal["running", "stopped", "finished", "damaged"]
Point = tuple[int, float]


@dataclass(frozen=True)
class RunStatus:
    """One run as a table shows it; what it does not tell (yet) is None."""

    folder: str
    state: Standing
    task: str | None = None
    step: int | None = None
    steps: int | None = None
    score: float | None = None
    score_name: str | None = None
    minutes: float | None = None
    parameters: int | None = None
    problem: str | None = None
    """What is wrong, where it is damaged."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


@dataclass(frozen=True)
class RunCurves:
    """How a run went: values by update."""

    loss: Sequence[Point]
    """Of training, a token, smoothed over updates."""
    valid_loss: Sequence[Point]
    score: Sequence[Point]
    score_name: str
    rate: Sequence[Point]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def find_runs(folders: Iterable[Path]) -> list[RunStatus]:
    """The runs in these folders and below them, each once, by their names."""
    found: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise BundleError(f"there is no folder {folder}; expected one with runs, as clearhead train --out makes")
        inside = {path.parent for path in folder.rglob(METRICS)} | {path.parent for path in folder.rglob(TRAINING)}
        found |= {path for path in inside if has_run(path)}
    return [read_run(path) for path in sorted(found)]


def read_run(folder: Path) -> RunStatus:
    """How a run stands."""
    try:
        state = peek(folder / TRAINING)
        manifest = bundle.read_manifest(folder) if bundle.exists(folder) else None
    except ClearheadError as error:
        return RunStatus(str(folder), "damaged", problem=str(error))
    facts: dict[str, Any] = dict(manifest.training) if manifest else {}
    is_finished = state.is_finished if state else facts.get("state") == "finished"
    standing: Standing = "running" if is_locked(folder) else "finished" if is_finished else "stopped"
    return RunStatus(folder=str(folder), state=standing, parameters=facts.get("parameters"), **_progress(state, facts))


def _progress(state: CheckpointState | None, facts: dict[str, Any]) -> dict[str, Any]:
    """How far it is and how good: from its state, or, where that was removed, from its model."""
    scored = Validation.from_json(facts["scores"]) if facts.get("scores") else None
    found = {"step": facts.get("steps"), "steps": facts.get("planned_steps"), "minutes": facts.get("minutes")}
    if state:
        counts, config = state.counts, state.origin.config
        found = {"step": counts.step, "steps": state.steps, "minutes": round(counts.seconds / 60, 2)}
        found["task"] = config["task"]
        scored = scored if state.is_finished and scored else counts.best
    if scored:
        found |= {"score": scored.score, "score_name": scored.score_name}
    return found


def read_curves(folder: Path) -> RunCurves:
    """The curves of a run, from its metrics; a line that is half written is left out."""
    path = folder / METRICS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}; expected the folder of a run") from error
    entries = [entry for line in lines if (entry := _entry(line))]
    valid = [(entry["step"], _scored(entry["valid"])) for entry in entries if "valid" in entry]
    curves = RunCurves(
        loss=_points((entry["step"], entry["loss"]) for entry in entries if "loss" in entry),
        valid_loss=_points((step, one.loss) for step, one in valid),
        score=_points((step, one.score) for step, one in valid if one.score is not None),
        score_name=valid[-1][1].score_name if valid else "score",
        rate=_points((entry["step"], entry["rate"]) for entry in entries if "rate" in entry),
    )
    if not curves.loss and not curves.score:
        raise BundleError(f"{path} has no figures yet; let the run make its first update")
    return curves


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and "step" in entry else {}


def _scored(facts: dict[str, Any]) -> Validation:
    return Validation.from_json(facts)


def _points(points: Iterable[Point]) -> list[Point]:
    """What can be drawn."""
    return [(step, value) for step, value in points if math.isfinite(value)]
