"""Run the snippets of docs/questions.md and write their output below each: `python -m benchmarks.questions`.

The snippets run in order, in one namespace and in the current folder; they read runs/demo, the model of `make demo`.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.record import require_core
from clearhead.files import write_atomically

PAGE = Path(__file__).parent.parent / "docs" / "questions.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n\n^```text\n(?P<output>.*?)^```\n", re.S | re.M)


@dataclass(frozen=True)
class Snippet:
    """Code of the page with the output that the page shows."""

    title: str
    code: str
    output: str


def snippets(page: str) -> list[Snippet]:
    """Return the snippets of a page in order, each with the heading above it."""
    result = []
    for match in BLOCK.finditer(page):
        headings = re.findall(r"^#+ (.*)$", page[: match.start()], re.M)
        result.append(Snippet(headings[-1], match["code"], match["output"]))
    return result


def run(snippet: Snippet, names: dict[str, Any]) -> str:
    """Return the output of a snippet; it reads the names of earlier snippets and adds its own."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet.code, f"docs/questions.md: {snippet.title}", "exec"), names)  # trusted code
    return printed.getvalue()


def update_outputs(page: str) -> str:
    """Return the page with the current output of every snippet."""
    names: dict[str, Any] = {}
    outputs = iter([run(snippet, names) for snippet in snippets(page)])
    return BLOCK.sub(lambda match: f"```python\n{match['code']}```\n\n```text\n{next(outputs)}```\n", page)


def main() -> None:
    """Update the page."""
    require_core()
    write_atomically(PAGE, update_outputs(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
