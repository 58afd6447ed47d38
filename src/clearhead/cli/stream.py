"""Lines of standard input in groups: large where many wait, small where they come one by one."""

import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Iterable, Iterator

MOST = 2048  # lines a group: enough for full batches of like lengths, few enough to hold in memory
PAUSE = 0.02  # seconds without a line after which the lines that are there are answered


def chunks(lines: Iterable[str], most: int = MOST, pause: float = PAUSE) -> Iterator[list[str]]:
    """The lines in order, in groups of at most `most`; an error while reading comes after the lines before it."""
    waiting: queue.Queue[str | Exception | None] = queue.Queue(2 * most)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except Exception as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        group: list[str] = []
        item = waiting.get()
        while isinstance(item, str):
            group.append(item)
            if len(group) == most:
                break
            try:
                item = waiting.get(timeout=pause)
            except queue.Empty:
                break
        if group:
            yield group
        if isinstance(item, Exception):
            raise item
        if item is None:
            return


def given_lines(most: int | None = None) -> Iterator[list[str]]:
    """Lines of standard input, as many as are there at a time, so that large files stream and a pipe is answered."""
    if sys.stdin.isatty():
        yield from _typed()
        return
    from clearhead.data.lines import read_lines

    yield from chunks(read_lines(sys.stdin.buffer, "standard input"), most or MOST)


def counted(groups: Iterable[list[str]]) -> Iterator[list[str]]:
    """The groups, with a bar on stderr that counts lines: where stderr is a terminal and nothing else is written to it.

    Where standard input is a plain file, the bar knows how much of it is left.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty() or sys.stdin.isatty():
        yield from groups
        return
    from clearhead.cli.terminal import line_bar

    with line_bar(_size_of_input()) as advance:
        for group in groups:
            yield group
            advance(len(group), sum(len(line.encode()) + 1 for line in group))


def _size_of_input() -> int | None:
    """Bytes of standard input, if it is a plain file that is not compressed."""
    from clearhead.data.lines import GZIP_MAGIC

    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    buffer = sys.stdin.buffer
    if not stat.S_ISREG(status.st_mode) or not isinstance(buffer, io.BufferedReader):
        return None
    return None if buffer.peek(2).startswith(GZIP_MAGIC) else status.st_size


def _typed() -> Iterator[list[str]]:
    """One line at a time from a person."""
    print("Type a line; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            return
