"""A pool of processes that measure cells in parallel: one process per core, one thread per process.

Two processes with one thread each train on 1.13 times as many tokens as one process with two threads (tiny, 3 layers,
one run), and the work outside of training (generating data, measuring) also uses both cores.
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

PROGRESS_INTERVAL = 0.5  # seconds between two progress messages of a worker


class CellJob(NamedTuple):
    """A cell to measure, with its working folder and its time budget."""

    cell: Cell
    folder: Path
    minutes: float


class CellProgress(NamedTuple):
    """Progress of a training within a cell."""

    seconds_left: float


class CellDone(NamedTuple):
    """Numbers of a finished cell and the time it took."""

    numbers: Numbers
    seconds: float


class CellFailed(NamedTuple):
    """An error in a cell that the user can correct."""

    error: ClearheadError


Message = CellProgress | CellDone | CellFailed


def measure_cell(study: Study, job: CellJob, threads: int, callback: Callback) -> CellDone:
    """Measure one cell in an empty folder, which is removed afterwards.

    If the cell is interrupted, its folder remains, and the next run removes it and measures the cell again.
    """
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.mkdir(parents=True)
    torch.manual_seed(job.cell.seed)
    start = time.monotonic()
    context = StudyContext(job.folder, job.minutes, threads, callback)
    numbers = study.measure(job.cell.condition, job.cell.seed, context)
    shutil.rmtree(job.folder, ignore_errors=True)
    return CellDone(numbers, round(time.monotonic() - start, 2))


@contextmanager
def open_pool(study: Study, size: int) -> Iterator["ProcessPool"]:
    """Start a pool of `size` processes; all of them are killed on exit, also after an error."""
    pool = ProcessPool([])
    with _sigterm_as_exception():
        try:
            for _ in range(size):
                pool.workers.append(_start_worker(study))
            yield pool
        finally:
            pool.kill()


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    """Convert SIGTERM to SystemExit, so that the pool is closed and leaves no processes behind."""

    def raise_exit(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        previous = signal.signal(signal.SIGTERM, raise_exit)
    except ValueError:  # handlers can only be set in the main thread; elsewhere the caller handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass
class _Worker:
    """A process, the pipe to it, and the job that it is running."""

    process: BaseProcess
    pipe: Connection
    job: CellJob | None = None


@dataclass
class ProcessPool:
    """Processes that each measure one cell at a time."""

    workers: list[_Worker]

    @property
    def has_running(self) -> bool:
        """Whether any worker is measuring a cell."""
        return any(worker.job is not None for worker in self.workers)

    @property
    def has_idle(self) -> bool:
        """Whether any worker is idle."""
        return any(worker.job is None for worker in self.workers)

    def submit(self, job: CellJob) -> None:
        """Send the job to an idle worker."""
        worker = next(worker for worker in self.workers if worker.job is None)
        worker.job = job
        try:
            worker.pipe.send(job)
        except OSError:
            raise _worker_error(worker) from None

    def receive(self) -> Iterator[tuple[Cell, Message]]:
        """Wait for messages of running workers and yield them with their cells."""
        running = {worker.pipe: worker for worker in self.workers if worker.job is not None}
        for pipe in wait([*running]):
            worker = running[cast(Connection, pipe)]
            assert worker.job is not None
            try:
                message: Message = worker.pipe.recv()
            except (EOFError, OSError):  # the process has ended, possibly in the middle of a message
                raise _worker_error(worker) from None
            cell = worker.job.cell
            if not isinstance(message, CellProgress):
                worker.job = None
            yield cell, message

    def kill(self) -> None:
        """Kill every process with SIGKILL, because a training handles SIGTERM by stopping after the current update."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.pipe.close()
            worker.process.join()


def _worker_error(worker: _Worker) -> Exception:
    """Return the error for a worker process that ended during its job."""
    assert worker.job is not None
    worker.process.join()
    if worker.process.exitcode == -signal.SIGKILL:
        return StudyError(
            f"the process measuring {worker.job.cell} was killed, possibly because memory ran out; run the same "
            f"command again to resume, with --threads 1 to measure one cell at a time"
        )
    return RuntimeError(f"the process measuring {worker.job.cell} ended with exit code {worker.process.exitcode}")


def _start_worker(study: Study) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch's thread pool does not survive a fork
    parent_end, child_end = context.Pipe()
    # The lambdas of a decision rule cannot be pickled: the worker rebuilds the study from its class.
    settings = {field.name: getattr(study, field.name) for field in fields(cast(Any, study)) if field.name != "info"}
    process = context.Process(target=_run_worker, args=(child_end, type(study), settings))
    process.start()
    child_end.close()  # the pipe then closes when the process ends
    return _Worker(process, parent_end)


def _run_worker(pipe: Connection, study_class: type[Any], settings: dict[str, Any]) -> None:
    """Measure the cells that are received through the pipe; the process ends when the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and kills its workers
    torch.set_num_threads(1)
    study: Study = study_class(**settings)
    while True:
        job: CellJob = pipe.recv()
        message: Message
        try:
            message = measure_cell(study, job, 1, _PipeCallback(pipe))
        except ClearheadError as error:
            message = CellFailed(error)
        pipe.send(message)


class _PipeCallback(NullCallback, Callback):
    """Callback that sends training progress to the parent process; an error for a closed pipe ends this process."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.last_sent = pipe, 0.0

    def progress(self, progress: Progress) -> None:
        """Send the remaining time, at most once per `PROGRESS_INTERVAL`."""
        now = time.monotonic()
        if now - self.last_sent > PROGRESS_INTERVAL:
            self.last_sent = now
            self.pipe.send(CellProgress(progress.seconds_left))
