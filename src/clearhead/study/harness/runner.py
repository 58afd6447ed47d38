"""Runs what is missing of a study, cell by cell, and draws its pictures."""

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

WORK_FOLDER = "work"  # below the study's folder; gone when it is finished


class StudyCallback(Protocol):
    """Told how a study goes."""

    def resumed(self, done: int, total: int) -> None:
        """Cells that an earlier run has measured."""

    def cell(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """A cell begins."""

    def part(self, done: float, seconds_left: float) -> None:
        """How much is done, in cells."""


class NullStudyCallback:
    """Watches without a word."""

    def resumed(self, done: int, total: int) -> None:
        """Nothing."""

    def cell(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        """Nothing."""

    def part(self, done: float, seconds_left: float) -> None:
        """Nothing."""


class _ProgressTracker:
    """What is done, what is at work, and what that means for the time left."""

    def __init__(self, results: Results, watcher: StudyCallback, hands: int) -> None:
        self.results, self.watcher, self.hands = results, watcher, hands
        self.waiting, self.began, self.told = results.missing(), dict[Cell, float](), dict[Cell, float]()
        self.total = len(results.all_cells())
        self.done = self.total - len(self.waiting)
        if self.done:
            watcher.resumed(self.done, self.total)

    def next(self) -> CellJob:
        """The next cell, which begins now."""
        cell = self.waiting[0]
        self.watcher.cell(cell, self.done + len(self.began), self.total, self._seconds_left())
        del self.waiting[0]
        self.began[cell] = time.monotonic()
        plan, number = self.results.plan, self.results.all_cells().index(cell)
        minutes = cell_minutes(self.results.study, cell.condition, plan.minutes)
        return CellJob(cell, self.results.folder / WORK_FOLDER / str(number), minutes)

    def hear(self, cell: Cell, news: Message) -> None:
        """What a cell at work tells: a part is done, or all of it."""
        if isinstance(news, CellFailed):
            raise news.error
        if isinstance(news, CellProgress):
            self.told[cell] = news.seconds_left
            self.watcher.part(self._parts(), self._seconds_left())
            return
        del self.began[cell]
        self.results.add(cell, news.numbers, news.seconds)
        self.done += 1

    def _left(self, cell: Cell) -> float:
        """What a cell takes still: its time, or longer if its training says so."""
        passed = time.monotonic() - self.began[cell]
        return max(self._seconds(cell) - passed, self.told.get(cell, 0.0), 1e-9)

    def _parts(self) -> float:
        passed = {cell: time.monotonic() - began for cell, began in self.began.items()}
        return self.done + sum(seconds / (seconds + self._left(cell)) for cell, seconds in passed.items())

    def _seconds_left(self) -> float:
        working = [self._left(cell) for cell in self.began]
        every = working + [self._seconds(cell) for cell in self.waiting]
        return max([*working, sum(every) / max(1, min(self.hands, len(every)))])

    def _seconds(self, cell: Cell) -> float:
        """What a cell will take: as long as the same condition took with another seed, or its share of the time."""
        known = [one.seconds for other, one in self.results.cells.items() if other.condition == cell.condition]
        plan = self.results.plan
        share = 60 * cell_minutes(self.results.study, cell.condition, plan.minutes)
        return sum(known) / len(known) if known else share


class _InProcessCallback(NullCallback, Callback):
    """Hears of trainings in this process."""

    def __init__(self, board: _ProgressTracker, cell: Cell) -> None:
        self.board, self.cell = board, cell

    def progress(self, progress: Progress) -> None:
        """A part of the cell."""
        self.board.hear(self.cell, CellProgress(progress.seconds_left))


def make_plan(study: Study, size: str, minutes: float | None = None, seeds: int | None = None) -> StudyPlan:
    """What was asked, or the study's own."""
    if minutes is not None and minutes <= 0:
        raise StudyError(f"expected more than 0 minutes, got {minutes:g}; leave --minutes out for {study.minutes:g}")
    if seeds is not None and seeds < 1:
        raise StudyError(f"expected at least 1 seed, got {seeds}; leave --seeds out for {study.seeds}")
    return StudyPlan(study.minutes if minutes is None else minutes, study.seeds if seeds is None else seeds, size)


def run(study: Study, folder: Path, plan: StudyPlan, watcher: StudyCallback | None = None, threads: int = 0) -> Results:
    """Measures what is missing, and gives everything that the folder then holds, pictures drawn."""
    require_matplotlib()
    results = open_results(folder, study, plan)
    results.save()
    threads = threads or torch.get_num_threads()
    is_single = study.about.is_timed or threads == 1
    board = _ProgressTracker(
        results, watcher or NullStudyCallback(), 1 if is_single else max(1, min(threads, len(results.missing())))
    )
    if board.waiting and not is_single:
        _run_in_parallel(study, board)
    while board.waiting:
        job = board.next()
        board.hear(job.cell, measure_cell(study, job, threads, _InProcessCallback(board, job.cell)))
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    save_charts(results)
    return results


def _run_in_parallel(study: Study, board: _ProgressTracker) -> None:
    with open_pool(study, board.hands) as workers:
        while board.waiting or workers.is_busy:
            while board.waiting and workers.is_free:
                workers.take(board.next())
            for cell, news in workers.news():
                board.hear(cell, news)


def save_charts(results: Results) -> list[Path]:
    """Every chart as PNG and SVG beside the result."""
    written = []
    for chart in results.study.charts(results.findings):
        for form in ("png", "svg"):
            path = results.folder / f"{chart.name}.{form}"
            write_atomically(path, draw(chart, form))
            written.append(path)
    return written
