"""Commands that process each pair of a corpus: one output line per record, also for skipped ones."""

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


A = TypeVar("A", bound=PairResult)


def answer_pairs(
    files: Sequence[Path],
    table: TableOptions,
    process: Callable[[Sequence[Pair]], Iterable[A]],
    to_text: Callable[[A], str],
    as_json: bool,
) -> None:
    """Print one line per pair: line n of the output belongs to record n of the files.

    A skipped pair gives an empty line, with JSON an object with the reason.
    """
    skips = SkipReport()
    checked = list(read_checked_pairs(files, table=table, add_note=skips.add_note))
    for pair, fault, path in checked:
        if fault:
            skips.add(fault, path, pair.line)
    usable = build_corpus((pair for pair, fault, _ in checked if not fault), skips, files, 1, "pairs").records
    for line in skips.messages():
        typer.echo(line, err=True)
    results = iter(process(usable))
    for pair, fault, _ in checked:
        if not as_json:
            print("" if fault else to_text(next(results)))
            continue
        fields = {"skipped": fault} if fault else next(results).to_json()
        record = {"line": pair.line, "source": pair.source, "target": pair.target, **fields}
        print(json.dumps(record, ensure_ascii=False))
