"""Output of the commands that process sentence pairs: one line per record, also for skipped records."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer

from clearhead.data.readers.pairs import Pair, read_checked_pairs
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import SkipReport, build_corpus


class PairResult(Protocol):
    """Result for one pair."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""


Result = TypeVar("Result", bound=PairResult)


def answer_pairs(
    files: Sequence[Path],
    table: TableOptions,
    process: Callable[[Sequence[Pair]], Iterable[Result]],
    to_text: Callable[[Result], str],
    as_json: bool,
) -> None:
    """Print the result of each pair: line n of the output belongs to record n of the files.

    A skipped pair gives an empty line, or with JSON an object with the reason.
    """
    skips = SkipReport()
    checked = list(read_checked_pairs(files, table=table, add_note=skips.add_note))
    for pair, problem, path in checked:
        if problem:
            skips.add(problem, path, pair.line)
    usable = build_corpus((pair for pair, problem, _ in checked if not problem), skips, files, 1, "pairs").records
    for line in skips.messages():
        typer.echo(line, err=True)
    results = iter(process(usable))
    for pair, problem, _ in checked:
        if not as_json:
            print("" if problem else to_text(next(results)))
            continue
        fields = {"skipped": problem} if problem else next(results).to_json()
        record = {"line": pair.line, "source": pair.source, "target": pair.target, **fields}
        print(json.dumps(record, ensure_ascii=False))
