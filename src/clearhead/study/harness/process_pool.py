"""Cells side by side: a process for each core, one thread in each.

Two processes with one thread each train on 1.13 times as many tokens as one with two (tiny, 3 layers, one run), and all
that is not training (making data, measuring) runs on both cores too.
"""

import multiprocessing
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import torch

from clearhead.errors import ClearheadError, StudyError
from clearhead.study.harness.protocol import Cell, Numbers, Study, StudyContext
from clearhead.training.loop.callbacks import Callback, NullCallback, Progress

PROGRESS_INTERVAL = 0.5  # seconds between two words of a training about its progress


class CellJob(NamedTuple):
    """One cell, where it works and how long it may take."""

    cell: Cell
    folder: Path
    minutes: float


class CellProgress(NamedTuple):
    """A training goes on, and takes so long still."""

    seconds_left: float


class CellDone(NamedTuple):
    """A cell's numbers, and how long they took."""

    numbers: Numbers
    seconds: float


class CellFailed(NamedTuple):
    """A cell that cannot be measured, through no fault of clearhead's."""

    error: ClearheadError


Message = CellProgress | CellDone | CellFailed


def measure_cell(study: Study, job: CellJob, threads: int, watcher: Callback) -> CellDone:
    """One cell in a folder that is empty before and gone afterwards: one that was cut off starts afresh."""
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    torch.manual_seed(job.cell.seed)
    began = time.monotonic()
    numbers = study.measure(job.cell.condition, job.cell.seed, StudyContext(job.folder, job.minutes, threads, watcher))
    shutil.rmtree(job.folder, ignore_errors=True)
    return CellDone(numbers, round(time.monotonic() - began, 2))


@contextmanager
def open_pool(study: Study, size: int) -> Iterator["ProcessPool"]:
    """So many processes, all ended afterwards whatever happened."""
    hired = ProcessPool([])
    with _sigterm_as_exception():
        try:
            for _ in range(size):
                hired.workers.append(_start_worker(study))
            yield hired
        finally:
            hired.dismiss()


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    """SIGTERM as an exception, so that nobody is left behind."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not in the main thread: the caller has to deal with signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    job: CellJob | None = None


@dataclass
class ProcessPool:
    """Takes jobs while someone is free, and brings the news of all of them."""

    workers: list[_Worker]

    @property
    def is_busy(self) -> bool:
        """Someone is at work."""
        return any(one.job is not None for one in self.workers)

    @property
    def is_free(self) -> bool:
        """Someone is not."""
        return any(one.job is None for one in self.workers)

    def take(self, job: CellJob) -> None:
        """Gives the job to someone who is free."""
        worker = next(one for one in self.workers if one.job is None)
        worker.job = job
        try:
            worker.pipe.send(job)
        except OSError:
            raise _worker_error(worker) from None

    def news(self) -> Iterator[tuple[Cell, Message]]:
        """What has come in; waits until there is something."""
        busy = {one.pipe: one for one in self.workers if one.job is not None}
        for pipe in wait([*busy]):
            worker = busy[cast(Connection, pipe)]
            assert worker.job is not None
            try:
                news: Message = worker.pipe.recv()
            except (EOFError, OSError):  # gone, perhaps in the middle of a word
                raise _worker_error(worker) from None
            cell = worker.job.cell
            if not isinstance(news, CellProgress):
                worker.job = None
            yield cell, news

    def dismiss(self) -> None:
        """Ends every process, at work or not. A training would take a milder signal for a wish to stop later."""
        for one in self.workers:
            one.process.kill()
        for one in self.workers:
            one.pipe.close()
            one.process.join()


def _worker_error(worker: _Worker) -> Exception:
    """Why a process is gone that was at work."""
    assert worker.job is not None
    worker.process.join()
    if worker.process.exitcode == -signal.SIGKILL:
        return StudyError(
            f"the process that measured {worker.job.cell} was killed, maybe for want of memory; give the same command "
            f"again to go on, with --threads 1 for one at a time"
        )
    return RuntimeError(f"the process that measured {worker.job.cell} ended with exit code {worker.process.exitcode}")


def _start_worker(study: Study) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    ours, theirs = context.Pipe()
    # A rule has functions without a name, which cannot be sent: the study is built again from its class.
    settings = {one.name: getattr(study, one.name) for one in fields(cast(Any, study)) if one.name != "about"}
    process = context.Process(target=_run_worker, args=(theirs, type(study), settings))
    process.start()
    theirs.close()  # so that the pipe ends with the process
    return _Worker(process, ours)


def _run_worker(pipe: Connection, kind: type[Any], settings: dict[str, Any]) -> None:
    """What a process does: one job after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C the one who hired hears, and ends us
    torch.set_num_threads(1)
    study: Study = kind(**settings)
    while True:
        job: CellJob = pipe.recv()
        news: Message
        try:
            news = measure_cell(study, job, 1, _PipeCallback(pipe))
        except ClearheadError as error:
            news = CellFailed(error)
        pipe.send(news)


class _PipeCallback(NullCallback, Callback):
    """Passes on how trainings get on. Fails when nobody listens any more, which ends the process."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.last = pipe, 0.0

    def progress(self, progress: Progress) -> None:
        """A word now and then."""
        now = time.monotonic()
        if now - self.last > PROGRESS_INTERVAL:
            self.last = now
            self.pipe.send(CellProgress(progress.seconds_left))
