"""Line-based commands: every line of standard input gets its output, in order."""

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from clearhead.cli.stdin_batches import MAX_LINES, stdin_batches, with_progress

if TYPE_CHECKING:
    from clearhead.tasks.long_texts import LongTexts

_LINE_BREAK = re.compile(r"\r\n|[\n\r]")


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
            print(f"interrupted: the output ends with that of line {first - 1:,}", file=sys.stderr)
        raise
    if report := long_texts.report():
        print(report, file=sys.stderr)


def one_line(text: str) -> str:
    """Return the text with spaces for line breaks, so that output line n belongs to input line n."""
    return _LINE_BREAK.sub(" ", text)
