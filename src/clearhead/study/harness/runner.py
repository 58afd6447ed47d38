"""Runner of a study: measures the missing cells, saves the result of each, and draws the charts."""

import shutil
import time
from pathlib import Path
from typing import Protocol

import torch

from clearhead.errors import StudyError
from clearhead.files import write_atomically
from clearhead.study.harness.charts import draw, require_matplotlib
from clearhead.study.harness.process_pool import CellFailed, CellJob, CellProgress, Message, measure_cell, open_pool
from clearhead.study.harness.protocol import Cell, Study, cell_minutes
from clearhead.study.harness.results import Results, StudyPlan, open_results
from clearhead.training.loop.callbacks import Callback, NullCallback, Progress

WORK_FOLDER = "work"  # inside the folder of the study; removed when the study is finished


class StudyCallback(Protocol):
    """Interface of callbacks that receive the progress of a study."""

    def resumed(self, done: int, total: int) -> None:
        """Handle the number of cells that an earlier run has measured."""

    def cell_started(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """Handle the start of a cell."""

    def progress(self, done: float, seconds_left: float) -> None:
        """Handle the number of cells done, including fractions of running cells."""


class NullStudyCallback:
    """Callback that ignores all progress."""

    def resumed(self, done: int, total: int) -> None:
        """Do nothing."""

    def cell_started(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """Do nothing."""

    def progress(self, done: float, seconds_left: float) -> None:
        """Do nothing."""


class _ProgressTracker:
    """State of a run: waiting and running cells, results, and the estimated remaining time."""

    def __init__(self, results: Results, callback: StudyCallback, workers: int) -> None:
        self.results, self.callback, self.workers = results, callback, workers
        self.waiting = results.missing_cells()
        self.start_times, self.reported_seconds_left = dict[Cell, float](), dict[Cell, float]()
        self.total = len(results.all_cells())
        self.done = self.total - len(self.waiting)
        if self.done:
            callback.resumed(self.done, self.total)

    def start_next(self) -> CellJob:
        """Mark the next waiting cell as running and return its job."""
        cell = self.waiting[0]
        self.callback.cell_started(cell, self.done + len(self.start_times), self.total, self._seconds_left())
        del self.waiting[0]
        self.start_times[cell] = time.monotonic()
        plan, index = self.results.plan, self.results.all_cells().index(cell)
        minutes = cell_minutes(self.results.study, cell.condition, plan.minutes)
        return CellJob(cell, self.results.folder / WORK_FOLDER / str(index), minutes)

    def handle(self, cell: Cell, message: Message) -> None:
        """Process a message of a running cell: report progress, save the result or raise its error."""
        if isinstance(message, CellFailed):
            raise message.error
        if isinstance(message, CellProgress):
            self.reported_seconds_left[cell] = message.seconds_left
            self.callback.progress(self._cells_done(), self._seconds_left())
            return
        del self.start_times[cell]
        self.results.add(cell, message.numbers, message.seconds)
        self.done += 1

    def _cell_seconds_left(self, cell: Cell) -> float:
        """Return the remaining time of a running cell: the longer one of the estimate and that of its training."""
        elapsed = time.monotonic() - self.start_times[cell]
        return max(self._cell_seconds(cell) - elapsed, self.reported_seconds_left.get(cell, 0.0), 1e-9)

    def _cells_done(self) -> float:
        elapsed = {cell: time.monotonic() - start for cell, start in self.start_times.items()}
        return self.done + sum(seconds / (seconds + self._cell_seconds_left(cell)) for cell, seconds in elapsed.items())

    def _seconds_left(self) -> float:
        running = [self._cell_seconds_left(cell) for cell in self.start_times]
        remaining = running + [self._cell_seconds(cell) for cell in self.waiting]
        return max([*running, sum(remaining) / max(1, min(self.workers, len(remaining)))])

    def _cell_seconds(self, cell: Cell) -> float:
        """Return the estimated duration of a cell: the mean over other seeds of the same condition, or its budget."""
        measured = [result.seconds for other, result in self.results.cells.items() if other.condition == cell.condition]
        if measured:
            return sum(measured) / len(measured)
        return 60 * cell_minutes(self.results.study, cell.condition, self.results.plan.minutes)


class _InProcessCallback(NullCallback, Callback):
    """Callback that passes the progress of a training in this process to the tracker."""

    def __init__(self, tracker: _ProgressTracker, cell: Cell) -> None:
        self.tracker, self.cell = tracker, cell

    def progress(self, progress: Progress) -> None:
        """Report the remaining time of the training."""
        self.tracker.handle(self.cell, CellProgress(progress.seconds_left))


def make_plan(study: Study, size: str, minutes: float | None = None, seeds: int | None = None) -> StudyPlan:
    """Return the plan with the requested minutes and seeds, or with the study's defaults."""
    if minutes is not None and minutes <= 0:
        raise StudyError(
            f"expected --minutes greater than 0, got {minutes:g}; leave --minutes out for the default of "
            f"{study.minutes:g}"
        )
    if seeds is not None and seeds < 1:
        raise StudyError(f"expected at least 1 seed, got {seeds}; leave --seeds out for the default of {study.seeds}")
    return StudyPlan(study.minutes if minutes is None else minutes, study.seeds if seeds is None else seeds, size)


def run(
    study: Study, folder: Path, plan: StudyPlan, callback: StudyCallback | None = None, threads: int = 0
) -> Results:
    """Measure the missing cells, draw the charts and return all results of the folder."""
    require_matplotlib()
    results = open_results(folder, study, plan)
    results.save()
    threads = threads or torch.get_num_threads()
    is_sequential = study.info.is_timed or threads == 1
    workers = 1 if is_sequential else max(1, min(threads, len(results.missing_cells())))
    tracker = _ProgressTracker(results, callback or NullStudyCallback(), workers)
    if tracker.waiting and not is_sequential:
        _run_in_parallel(study, tracker)
    while tracker.waiting:
        job = tracker.start_next()
        tracker.handle(job.cell, measure_cell(study, job, threads, _InProcessCallback(tracker, job.cell)))
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    save_charts(results)
    return results


def _run_in_parallel(study: Study, tracker: _ProgressTracker) -> None:
    with open_pool(study, tracker.workers) as pool:
        while tracker.waiting or pool.has_running:
            while tracker.waiting and pool.has_idle:
                pool.submit(tracker.start_next())
            for cell, message in pool.receive():
                tracker.handle(cell, message)


def save_charts(results: Results) -> list[Path]:
    """Save every chart as PNG and SVG next to the result file and return the paths."""
    paths = []
    for chart in results.study.charts(results.findings):
        for form in ("png", "svg"):
            path = results.folder / f"{chart.name}.{form}"
            write_atomically(path, draw(chart, form))
            paths.append(path)
    return paths
