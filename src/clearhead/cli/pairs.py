"""Verbs that answer each pair of a corpus: a line for every line, also for those that are skipped."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer

from clearhead.data.readers.pairs import Pair, read_checked_pairs
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import SkipReport, build_corpus


class Answer(Protocol):
    """What is known of a pair."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""


A = TypeVar("A", bound=Answer)


def answer_pairs(
    files: Sequence[Path],
    table: TableOptions,
    answer: Callable[[Sequence[Pair]], Iterable[A]],
    plain: Callable[[A], str],
    as_json: bool,
) -> None:
    """Print one line per pair: line n of the output belongs to record n of the files.

    A pair that is skipped gives an empty line, in JSON an object with the reason.
    """
    skips = SkipReport()
    read = list(read_checked_pairs(files, table=table, add_note=skips.add_note))
    for pair, fault, path in read:
        if fault:
            skips.add(fault, path, pair.line)
    usable = build_corpus((pair for pair, fault, _ in read if not fault), skips, files, 1, "pairs").records
    for line in skips.messages():
        typer.echo(line, err=True)
    answers = iter(answer(usable))
    for pair, fault, _ in read:
        if not as_json:
            print("" if fault else plain(next(answers)))
            continue
        known = {"skipped": fault} if fault else next(answers).to_json()
        record = {"line": pair.line, "source": pair.source, "target": pair.target, **known}
        print(json.dumps(record, ensure_ascii=False))
