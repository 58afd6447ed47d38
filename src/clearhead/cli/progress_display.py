"""Progress bars on stderr."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


def stderr_progress(*columns: ProgressColumn, console: Console, disable: bool = False) -> Progress:
    """Return a bar on the console of stderr.

    By default, rich redirects stdout to this console, also if stdout is a file; redirect_stdout=False prevents this.
    """
    return Progress(*columns, console=console, disable=disable, transient=True, redirect_stdout=False)


def progress_bar() -> Progress:
    """Return a bar with the remaining time; disabled if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"))
    return stderr_progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


@contextmanager
def line_bar(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for a stream of lines of `size` bytes; yield a function that adds the lines and bytes of a batch."""
    columns = (BarColumn(24), TextColumn("{task.fields[lines]:,} lines  {task.fields[rate]:,.0f} lines/s"))
    start, num_lines, num_bytes = time.monotonic(), 0, 0
    with stderr_progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=size, lines=0, rate=0.0)

        def advance(more_lines: int, more_bytes: int) -> None:
            nonlocal num_lines, num_bytes
            num_lines, num_bytes = num_lines + more_lines, num_bytes + more_bytes
            rate = num_lines / max(1e-9, time.monotonic() - start)
            bar.update(task, completed=num_bytes, lines=num_lines, rate=rate)

        yield advance


def format_remaining_time(seconds: float) -> str:
    """Return a duration as m:ss or h:mm:ss, rounded up, so that 0:00 is shown only if no time is left."""
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
