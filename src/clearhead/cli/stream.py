"""Lines of standard input in groups: large where many wait, small where they come one by one."""

import queue
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


def given_lines() -> Iterator[list[str]]:
    """Lines of standard input, as many as are there at a time, so that large files stream and a pipe is answered."""
    if sys.stdin.isatty():
        yield from _typed()
        return
    from clearhead.data.lines import read_lines

    yield from chunks(read_lines(sys.stdin.buffer, "standard input"))


def _typed() -> Iterator[list[str]]:
    """One line at a time from a person."""
    print("Type a line; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            return
