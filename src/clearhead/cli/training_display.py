"""Training progress on stderr: a live bar on a terminal, plain lines elsewhere."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn

from clearhead.cli.progress_display import format_remaining_time, stderr_progress
from clearhead.tasks.trainable.task import Validation
from clearhead.training.distributed.process_group import is_first_process
from clearhead.training.loop.callbacks import Callback
from clearhead.training.loop.callbacks import Progress as TrainingProgress

PLAIN_EVERY = 10.0  # seconds between plain lines


def training_display() -> "LiveDisplay | PlainDisplay":
    """Return the display for stderr; only rank 0 shows a bar."""
    return LiveDisplay() if sys.stderr.isatty() and is_first_process() else PlainDisplay()


def describe(progress: TrainingProgress) -> str:
    """Return loss, best score, speed and remaining time in one line."""
    best = f"best {progress.best.figure}" if progress.best else "not validated yet"
    return (
        f"loss {progress.loss:.3f}  {best}  {progress.tokens_per_second:,.0f} {progress.unit}/s  "
        f"{format_remaining_time(progress.seconds_left)} left"
    )


def describe_validation(step: int, validation: Validation, is_best: bool) -> str:
    """Return the scores of a validation in one line, with a star if it is the best so far."""
    star = " *" if is_best else ""
    return f"step {step:,}: {validation.describe()}  perplexity {validation.perplexity:.2f}{star}"


def describe_work(done: int, total: int) -> str:
    """Return the finished and the total amount of work, such as 3/7; a total of 0 is unknown."""
    return f"{done:,}/{total:,}" if total else f"{done:,}"


class PlainDisplay(Callback):
    """Callback that prints plain lines; progress at most every 10 seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()

    def message(self, text: str) -> None:
        """Print a message."""
        print(text, file=sys.stderr, flush=True)

    def progress(self, progress: TrainingProgress) -> None:
        """Print a line every 10 seconds and at the last update."""
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY or progress.step == progress.steps:
            self._last = now
            self.message(f"step {progress.step:,}/{progress.steps:,}  {describe(progress)}")

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Print a validation."""
        self.message(describe_validation(step, validation, is_best))

    def work(self, what: str, done: int, total: int) -> None:
        """Print a line every 10 seconds and at the end of the work."""
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY or (done == total and total):
            self._last = now
            self.message(f"{what}: {describe_work(done, total)}")


class LiveDisplay(Callback):
    """Callback that shows a live bar with loss, best score, speed and remaining time, and prints validations."""

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
        """Print a message above the bar."""
        self._console.print(text, markup=False)

    def progress(self, progress: TrainingProgress) -> None:
        """Move the bar."""
        if self._task is None:
            for task in self._work.values():
                self._bar.remove_task(task)
            self._task = self._bar.add_task("", total=progress.steps, count="", figures="")
        count = describe_work(progress.step, progress.steps)
        self._bar.update(self._task, completed=progress.step, count=count, figures=describe(progress))

    def work(self, what: str, done: int, total: int) -> None:
        """Show a separate bar for this work, until the first update of the training."""
        if what not in self._work:
            self._work[what] = self._bar.add_task("", total=total or None, count="", figures=what)
        self._bar.update(self._work[what], completed=done, total=total or None, count=describe_work(done, total))

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Print a validation and one example output above the bar."""
        self.message(describe_validation(step, validation, is_best))
        source, output, _ = validation.example
        if validation.score is not None:
            self._console.print(f"  {source}\n  → {output}", style="dim", markup=False, soft_wrap=True)
