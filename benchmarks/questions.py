"""`python -m benchmarks.questions`: run the snippets of docs/questions.md and write what they print below each.

The snippets run in their order and in one namespace, in the folder they are started from; they read runs/demo, which
`make demo` makes.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core import require_core
from clearhead.files import write_atomically

PAGE = Path(__file__).parent.parent / "docs" / "questions.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n\n^```text\n(?P<shown>.*?)^```\n", re.S | re.M)


@dataclass(frozen=True)
class Snippet:
    """Code of the page, and what the page says that it prints."""

    title: str
    code: str
    shown: str


def snippets(page: str) -> list[Snippet]:
    """In their order; each belongs to the heading above it."""
    found = []
    for match in BLOCK.finditer(page):
        headings = re.findall(r"^#+ (.*)$", page[: match.start()], re.M)
        found.append(Snippet(headings[-1], match["code"], match["shown"]))
    return found


def run(snippet: Snippet, names: dict[str, Any]) -> str:
    """What it prints, with the names that the snippets before it have left, and leaving its own."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet.code, f"docs/questions.md: {snippet.title}", "exec"), names)  # our own page
    return printed.getvalue()


def renewed(page: str) -> str:
    """The page with every output as it is now."""
    names: dict[str, Any] = {}
    outputs = iter([run(snippet, names) for snippet in snippets(page)])
    return BLOCK.sub(lambda match: f"```python\n{match['code']}```\n\n```text\n{next(outputs)}```\n", page)


def main() -> None:
    """Renews the page."""
    require_core()
    write_atomically(PAGE, renewed(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
