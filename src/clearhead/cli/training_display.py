"""Display of a training: a live bar on a terminal, plain lines elsewhere. All on stderr."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn

from clearhead.cli.progress_display import clock, stderr_progress
from clearhead.tasks.trainable.task import Validation
from clearhead.training.distributed.process_group import is_first_process
from clearhead.training.loop.callbacks import Callback
from clearhead.training.loop.callbacks import Progress as TrainingProgress

PLAIN_EVERY = 10.0  # seconds between plain lines


def training_display() -> "LiveDisplay | PlainDisplay":
    """What fits stderr; of several processes only the first one has a bar."""
    return LiveDisplay() if sys.stderr.isatty() and is_first_process() else PlainDisplay()


def describe(progress: TrainingProgress) -> str:
    """The figures of a training in one line."""
    best = f"best {progress.best.figure}" if progress.best else "not validated yet"
    return (
        f"loss {progress.loss:.3f}  {best}  {progress.tokens_per_second:,.0f} {progress.unit}/s  "
        f"{clock(progress.seconds_left)} left"
    )


def describe_validation(step: int, validation: Validation, is_best: bool) -> str:
    """Return a validation in one line."""
    star = " *" if is_best else ""
    return f"step {step:,}: {validation.describe()}  perplexity {validation.perplexity:.2f}{star}"


def describe_work(done: int, total: int) -> str:
    """How much of some work is done."""
    return f"{done:,}/{total:,}" if total else f"{done:,}"


class PlainDisplay(Callback):
    """Plain lines, one every few seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()

    def message(self, text: str) -> None:
        """One line."""
        print(text, file=sys.stderr, flush=True)

    def progress(self, progress: TrainingProgress) -> None:
        """A line now and then."""
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY or progress.step == progress.steps:
            self._last = now
            self.message(f"step {progress.step:,}/{progress.steps:,}  {describe(progress)}")

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """A line."""
        self.message(describe_validation(step, validation, is_best))

    def work(self, what: str, done: int, total: int) -> None:
        """A line now and then."""
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY or (done == total and total):
            self._last = now
            self.message(f"{what}: {describe_work(done, total)}")


class LiveDisplay(Callback):
    """A live bar with loss, best score, speed and time left; validations scroll by above it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (BarColumn(24), TextColumn("{task.fields[count]}"), TextColumn("{task.fields[figures]}"))
        self._bar = stderr_progress(*columns, console=self._console)
        self._task: TaskID | None = None
        self._work: dict[str, TaskID] = {}

    def __enter__(self) -> "LiveDisplay":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def message(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False)

    def progress(self, progress: TrainingProgress) -> None:
        """Moves the bar."""
        if self._task is None:
            for task in self._work.values():
                self._bar.remove_task(task)
            self._task = self._bar.add_task("", total=progress.steps, count="", figures="")
        count = describe_work(progress.step, progress.steps)
        self._bar.update(self._task, completed=progress.step, count=count, figures=describe(progress))

    def work(self, what: str, done: int, total: int) -> None:
        """A bar of its own, which stays until the training begins."""
        if what not in self._work:
            self._work[what] = self._bar.add_task("", total=total or None, count="", figures=what)
        self._bar.update(self._work[what], completed=done, total=total or None, count=describe_work(done, total))

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """A line above the bar, with what the model makes of one sentence."""
        self.message(describe_validation(step, validation, is_best))
        source, output, _ = validation.example
        if validation.score is not None:
            self._console.print(f"  {source}\n  → {output}", style="dim", markup=False, soft_wrap=True)
