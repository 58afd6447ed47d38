"""Common parts of all record types: their protocol, a corpus of them, and the report of skipped lines.

A fault in the structure of a file raises `DataError` with file and line. A well-formed but useless line (empty or too
long) is skipped and counted. So every line is either a record or in the `SkipReport`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

MAX_CHARS = 2000
MAX_LOCATIONS = 3  # locations shown per reason in a skip report


class Record(Protocol):
    """One example read from a file."""

    @property
    def line(self) -> int:
        """Line number in its file, from 1."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The texts of the record; the first is the model's input. Records with equal fields are equal examples."""


R = TypeVar("R", bound=Record)
Mask = NDArray[np.bool_]
Fractions = NDArray[np.float64]


@runtime_checkable
class DiskRecords(Protocol):
    """Records on disk, which can be iterated over repeatedly and are never all in memory."""

    def hash_fractions(self) -> Fractions:
        """Return `held_out.hash_fraction` of the first field of each record."""

    def select(self, selected_N: Mask) -> Sequence[Any]:
        """Return the selected records, in their order."""


@dataclass
class SkipReport:
    """Number of skipped lines by reason, with the first few locations of each."""

    counts: dict[str, int] = field(default_factory=dict)
    locations: dict[str, list[str]] = field(default_factory=dict)
    filtered: int = 0
    """Number of valid records among them, removed by a filter that the user set."""
    notes: list[str] = field(default_factory=list)
    """Sentences about the delimiters, headers and columns that were detected."""

    @property
    def total(self) -> int:
        """Number of skipped lines."""
        return sum(self.counts.values())

    def add(self, reason: str, path: Path | str, line: int) -> None:
        """Count a skipped line."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        locations = self.locations.setdefault(reason, [])
        if len(locations) < MAX_LOCATIONS:
            locations.append(f"{path}:{line}")

    def add_filtered(self, reason: str, path: Path | str, line: int) -> None:
        """Count a valid record that a filter of the user removed."""
        self.add(reason, path, line)
        self.filtered += 1

    def merge(self, other: "SkipReport") -> None:
        """Add the counts, locations and notes of another report."""
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.locations[reason] = [*self.locations.get(reason, []), *other.locations[reason]][:MAX_LOCATIONS]
        self.filtered += other.filtered
        self.notes += other.notes

    def add_note(self, text: str) -> None:
        """Add a sentence about how a file was read."""
        self.notes.append(text)

    def messages(self) -> list[str]:
        """Return the sentences for the user: the notes, and one line per reason for skipped lines."""
        return [*self.notes, *(f"skipped {line}" for line in self.summary())]

    def summary(self) -> list[str]:
        """Return one line per reason, the most frequent first: `empty target: 12 (train.tsv:17, ...)`."""
        by_count = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{reason}: {count} ({self._format_locations(reason)})" for reason, count in by_count]

    def _format_locations(self, reason: str) -> str:
        locations = self.locations[reason]
        return ", ".join(locations + ["..."] * (self.counts[reason] > len(locations)))


@dataclass(frozen=True)
class Corpus(Generic[R]):
    """The usable records of a corpus and the report of the skipped lines."""

    records: Sequence[R]
    skips: SkipReport
    total_lines: int
    stored_fingerprint: str = ""
    """Fingerprint computed when the records were cached; empty: computed from the records."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the records, equal for equal data in any format or compression."""
        return self.stored_fingerprint or fingerprint_records(self.records)


class Fingerprint:
    """Incremental hash of a sequence of records."""

    def __init__(self, size: int = 16) -> None:
        self._digest = blake2b(digest_size=size)

    def add(self, *fields: bytes) -> None:
        """Add one record."""
        for text in fields:
            self._digest.update(len(text).to_bytes(8, "little"))  # so that ("ab", "c") differs from ("a", "bc")
            self._digest.update(text)

    def to_int(self) -> int:
        """Return the hash as an integer."""
        return int.from_bytes(self._digest.digest(), "little")

    def __str__(self) -> str:
        return self._digest.hexdigest()


def fingerprint_records(records: Iterable[Record]) -> str:
    """Return a hash of the fields of all records in their order."""
    digest = Fingerprint()
    for record in records:
        digest.add(*(text.encode() for text in record.fields))
    return str(digest)


def build_corpus(
    records: Iterable[R], skips: SkipReport, paths: Sequence[Path | str], minimum: int, record_name: str
) -> Corpus[R]:
    """Return the corpus of all records; raise DataError if too few are usable.

    The iterator `records` adds the lines that it skips to `skips`.
    """
    usable = list(records)
    corpus = Corpus(usable, skips, len(usable) + skips.total)
    require_enough_records(corpus, paths, minimum, record_name)
    return corpus


def require_enough_records(corpus: Corpus[R], paths: Sequence[Path | str], minimum: int, record_name: str) -> None:
    """Raise DataError if fewer than `minimum` records are usable, or more lines are faulty than usable."""
    files, skips = " and ".join(str(path) for path in paths), corpus.skips
    if len(corpus.records) < minimum:
        raise DataError(_too_few(files, corpus, f"at least {minimum} usable {record_name} are needed"))
    if skips.total - skips.filtered > len(corpus.records):
        raise DataError(_too_few(files, corpus, "more than half of the lines had to be skipped"))


def _too_few(files: str, corpus: Corpus[R], problem: str) -> str:
    problem = f"{files}: {problem}, but of {corpus.total_lines} lines only {len(corpus.records)} are usable"
    if not corpus.skips.total:
        return f"{problem}; add data"
    return f"{problem}; skipped: {'; '.join(corpus.skips.summary())}; repair these lines or raise the limit"
