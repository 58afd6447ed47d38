"""`python -m benchmarks.questions`: run the snippets of docs/questions.md and write the output of each below it.

The snippets run in order in one namespace and in the current folder. They read runs/demo, which `make demo` creates.
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
    """A code block of the page with its heading and its printed output."""

    title: str
    code: str
    output: str


def snippets(page: str) -> list[Snippet]:
    """Return the snippets in order; each belongs to the last heading before it."""
    result = []
    for match in BLOCK.finditer(page):
        headings = re.findall(r"^#+ (.*)$", page[: match.start()], re.M)
        result.append(Snippet(headings[-1], match["code"], match["output"]))
    return result


def run(snippet: Snippet, namespace: dict[str, Any]) -> str:
    """Run the snippet in the namespace, which it may change, and return its output."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile(snippet.code, f"docs/questions.md: {snippet.title}", "exec"), namespace)  # trusted: our own page
    return stdout.getvalue()


def update_outputs(page: str) -> str:
    """Return the page with the current output of every snippet."""
    namespace: dict[str, Any] = {}
    outputs = iter([run(snippet, namespace) for snippet in snippets(page)])
    return BLOCK.sub(lambda match: f"```python\n{match['code']}```\n\n```text\n{next(outputs)}```\n", page)


def main() -> None:
    """Update the page."""
    require_core()
    write_atomically(PAGE, update_outputs(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
