"""Runs what is missing of a study, cell by cell, and draws its pictures."""

import shutil
import time
from pathlib import Path
from typing import Protocol

import torch

from clearhead.errors import StudyError
from clearhead.files import write_atomically
from clearhead.study.drawing import draw, require_matplotlib
from clearhead.study.protocol import Bench, Cell, Study
from clearhead.study.results import Plan, Results, open_results
from clearhead.training.events import Progress, Silent, Watcher

LIGHT = 0.1  # minutes of a cell that takes next to no time
WORK = "work"  # below the study's folder; gone when it is finished


class StudyWatcher(Protocol):
    """Told how a study goes."""

    def resumed(self, done: int, total: int) -> None:
        """Cells that an earlier run has measured."""

    def cell(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """A cell begins."""

    def part(self, done: float, seconds_left: float) -> None:
        """How much is done, in cells."""


class NoOne:
    """Watches without a word."""

    def resumed(self, done: int, total: int) -> None:
        """Nothing."""

    def cell(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """Nothing."""

    def part(self, done: float, seconds_left: float) -> None:
        """Nothing."""


class _TrainingProgress(Silent, Watcher):
    """Turns the progress of the trainings inside a cell, of which there may be several, into that of the study."""

    def __init__(self, watcher: StudyWatcher, done: int, seconds: float, seconds_after: float) -> None:
        self.watcher, self.done, self.seconds, self.seconds_after = watcher, done, seconds, seconds_after
        self.began = time.monotonic()

    def progress(self, progress: Progress) -> None:
        """A share of the cell, by the time that it is to take, or longer if its training says so."""
        passed = time.monotonic() - self.began
        left = max(self.seconds - passed, progress.seconds_left)
        self.watcher.part(self.done + passed / max(passed + left, 1e-9), left + self.seconds_after)


def plan_of(study: Study, size: str, minutes: float | None = None, seeds: int | None = None) -> Plan:
    """What was asked, or the study's own."""
    if minutes is not None and minutes <= 0:
        raise StudyError(f"expected more than 0 minutes, got {minutes:g}; leave --minutes out for {study.minutes:g}")
    if seeds is not None and seeds < 1:
        raise StudyError(f"expected at least 1 seed, got {seeds}; leave --seeds out for {study.seeds}")
    return Plan(study.minutes if minutes is None else minutes, study.seeds if seeds is None else seeds, size)


def run(study: Study, folder: Path, plan: Plan, watcher: StudyWatcher | None = None, threads: int = 0) -> Results:
    """Measures what is missing, and gives everything that the folder then holds, pictures drawn."""
    watcher = watcher or NoOne()
    require_matplotlib()
    results = open_results(folder, study, plan)
    results.save()
    missing, total = results.missing(), len(results.all_cells())
    if len(missing) < total:
        watcher.resumed(total - len(missing), total)
    for number, cell in enumerate(missing):
        done = total - len(missing) + number
        here, after = _seconds(results, [cell]), _seconds(results, missing[number + 1 :])
        watcher.cell(cell, done, total, here + after)
        work = folder / WORK / str(done)
        shutil.rmtree(work, ignore_errors=True)  # a cell that was cut off starts afresh
        work.mkdir(parents=True)
        bench = Bench(
            work,
            share(study, plan, cell.condition),
            threads or torch.get_num_threads(),
            _TrainingProgress(watcher, done, here, after),
        )
        torch.manual_seed(cell.seed)
        began = time.monotonic()
        numbers = study.measure(cell.condition, cell.seed, bench)
        results.add(cell, numbers, round(time.monotonic() - began, 2))
        shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    draw_all(results)
    return results


def draw_all(results: Results) -> list[Path]:
    """Every chart as PNG and SVG beside the result."""
    written = []
    for chart in results.study.charts(results.findings):
        for form in ("png", "svg"):
            path = results.folder / f"{chart.name}.{form}"
            write_atomically(path, draw(chart, form))
            written.append(path)
    return written


def share(study: Study, plan: Plan, condition: str) -> float:
    """The minutes of one cell: the same for all that take time."""
    if condition in study.about.light:
        return LIGHT
    heavy = [name for name in study.conditions if name not in study.about.light]
    return plan.minutes / plan.seeds / len(heavy)


def _seconds(results: Results, cells: list[Cell]) -> float:
    """What cells will take: as long as the same condition took with another seed, or their share of the time."""
    known: dict[str, list[float]] = {}
    for cell, one in results.cells.items():
        known.setdefault(cell.condition, []).append(one.seconds)
    means = {condition: sum(seconds) / len(seconds) for condition, seconds in known.items()}
    shares = {name: 60 * share(results.study, results.plan, name) for name in results.study.conditions}
    return sum(means.get(cell.condition, shares[cell.condition]) for cell in cells)
