"""Standard input in batches of lines: large batches for files, small ones for lines that arrive one by one.

Results go to stdout; the prompt and the progress bar go to stderr, so redirecting stdout captures results only.
Every input line gets its output line, in order.
"""

import io
import os
import queue
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from clearhead.tasks.long_texts import LongTexts


MAX_LINES = 2048  # per batch: enough to group similar lengths, few enough for memory
MAX_WAIT = 0.02  # seconds without a new line after which a batch is complete
_LINE_BREAK = re.compile(r"\r\n|[\n\r]")


def batches(lines: Iterable[str], max_lines: int = MAX_LINES, max_wait: float = MAX_WAIT) -> Iterator[list[str]]:
    """Yield the lines in batches of at most `max_lines`; a read error is raised after the lines that precede it."""
    lines_read: queue.Queue[str | Exception | None] = queue.Queue(2 * max_lines)  # None: end of input

    def read() -> None:
        try:
            for line in lines:
                lines_read.put(line)
            lines_read.put(None)
        except Exception as error:
            lines_read.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        batch: list[str] = []
        item = lines_read.get()
        while isinstance(item, str):
            batch.append(item)
            if len(batch) == max_lines:
                break
            try:
                item = lines_read.get(timeout=max_wait)
            except queue.Empty:
                break
        if batch:
            yield batch
        if isinstance(item, Exception):
            raise item
        if item is None:
            return


def stdin_batches(max_lines: int = MAX_LINES) -> Iterator[list[str]]:
    """Yield the lines of standard input in batches; at a terminal, prompt for one line at a time."""
    from clearhead.data.readers.lines import STANDARD_INPUT, read_lines

    lines = read_lines(sys.stdin.buffer, STANDARD_INPUT)
    return _prompted(lines) if sys.stdin.isatty() else batches(lines, max_lines)


def with_progress(groups: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the batches and show a progress bar on stderr, unless stdin or stdout is a terminal.

    The bar includes the remaining time if standard input is an uncompressed file. If stdout is a pipe, no bar is shown,
    because the next program, such as `head`, may print to the same terminal.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty() or sys.stdin.isatty() or _is_pipe(sys.stdout):
        yield from groups
        return
    from clearhead.cli.progress_display import line_bar

    with line_bar(_stdin_size()) as advance:
        for group in groups:
            yield group
            advance(len(group), sum(len(line.encode()) + 1 for line in group))


def _is_pipe(stream: TextIO) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _stdin_size() -> int | None:
    """Return the size of standard input in bytes, or None if it is not an uncompressed file."""
    from clearhead.data.readers.lines import GZIP_MAGIC

    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    buffer = sys.stdin.buffer
    if not stat.S_ISREG(status.st_mode) or not isinstance(buffer, io.BufferedReader):
        return None
    return None if buffer.peek(2).startswith(GZIP_MAGIC) else status.st_size


def _prompted(lines: Iterator[str]) -> Iterator[list[str]]:
    """Prompt for each line on stderr; `input()` would write its prompt to stdout, between the results."""
    print("Type a line; Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = next(lines, None)
        if line is None:
            return
        yield [line]


def answer_lines(
    answer: Callable[[list[str], int], Iterable[str]], long_texts: "LongTexts", max_lines: int = MAX_LINES
) -> None:
    """Print `answer(lines, number of the first line)` for each batch; report long lines on stderr at the end."""
    first = 1
    try:
        for lines in with_progress(stdin_batches(max_lines)):
            for text in answer(lines, first):
                print(text)
            sys.stdout.flush()
            first += len(lines)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            print(f"interrupted: the output is complete up to line {first - 1:,}", file=sys.stderr)
        raise
    if report := long_texts.report():
        print(report, file=sys.stderr)


def one_line(text: str) -> str:
    """Return the text with spaces for line breaks, so that output line n belongs to input line n."""
    return _LINE_BREAK.sub(" ", text)
