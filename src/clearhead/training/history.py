"""What runs left behind, read without touching them: how each stands, and its curves."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from clearhead import bundle
from clearhead.errors import BundleError, ClearheadError
from clearhead.tasks.trainable.task import Validation
from clearhead.training.keeper import METRICS, TRAINING, has_run
from clearhead.training.lock import is_locked
from clearhead.training.state import State, peek

Standing = Literal["running", "stopped", "finished", "damaged"]
Point = tuple[int, float]


@dataclass(frozen=True)
class Run:
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
class Curves:
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


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs in these folders and below them, each once, by their names."""
    found: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise BundleError(f"there is no folder {folder}; expected one with runs, as clearhead train --out makes")
        inside = {path.parent for path in folder.rglob(METRICS)} | {path.parent for path in folder.rglob(TRAINING)}
        found |= {path for path in inside if has_run(path)}
    return [read_run(path) for path in sorted(found)]


def read_run(folder: Path) -> Run:
    """How a run stands."""
    try:
        state = peek(folder / TRAINING)
        manifest = bundle.read_manifest(folder) if bundle.exists(folder) else None
    except ClearheadError as error:
        return Run(str(folder), "damaged", problem=str(error))
    facts: dict[str, Any] = dict(manifest.training) if manifest else {}
    is_finished = state.is_finished if state else facts.get("state") == "finished"
    standing: Standing = "running" if is_locked(folder) else "finished" if is_finished else "stopped"
    return Run(folder=str(folder), state=standing, parameters=facts.get("parameters"), **_progress(state, facts))


def _progress(state: State | None, facts: dict[str, Any]) -> dict[str, Any]:
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


def read_curves(folder: Path) -> Curves:
    """The curves of a run, from its metrics; a line that is half written is left out."""
    path = folder / METRICS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}; expected the folder of a run") from error
    entries = [entry for line in lines if (entry := _entry(line))]
    valid = [(entry["step"], _scored(entry["valid"])) for entry in entries if "valid" in entry]
    curves = Curves(
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
