"""Progress bars on stderr."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


def stderr_progress(*columns: ProgressColumn, console: Console, disable: bool = False) -> Progress:
    """Return a bar on the console of stderr.

    redirect_stdout=False, because rich would otherwise print to the console what a command writes to stdout, even if
    stdout is a file.
    """
    return Progress(*columns, console=console, disable=disable, transient=True, redirect_stdout=False)


def progress_bar() -> Progress:
    """Return a bar with the remaining time; disabled if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"))
    return stderr_progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


@contextmanager
def line_bar(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for a stream of lines; call the yielded function with the lines and bytes of each batch."""
    columns = (BarColumn(24), TextColumn("{task.fields[lines]:,} lines  {task.fields[rate]:,.0f} lines/s"))
    began, lines, read = time.monotonic(), 0, 0
    with stderr_progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=size, lines=0, rate=0.0)

        def advance(more_lines: int, more_bytes: int) -> None:
            nonlocal lines, read
            lines, read = lines + more_lines, read + more_bytes
            bar.update(task, completed=read, lines=lines, rate=lines / max(1e-9, time.monotonic() - began))

        yield advance


def format_remaining_time(seconds: float) -> str:
    """Return minutes and seconds, or hours too, rounded up: 0:00 means that nothing is left."""
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
