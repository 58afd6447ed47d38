"""Records that were read and the account of the lines that were left out.

A fault of a file's structure is a `DataError` naming the place. A line that is sound but useless (an empty side, one
that is too long) is skipped and counted. Every line is therefore either a record or in the tally.
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
MAX_LOCATIONS = 3


class Record(Protocol):
    """One example as it was read."""

    @property
    def line(self) -> int:
        """Where it stands in its file, counted from 1."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What it says; equal parts are equal examples, and the first part is what goes in."""


R = TypeVar("R", bound=Record)
Mask = NDArray[np.bool_]
Fractions = NDArray[np.float64]


@runtime_checkable
class DiskRecords(Protocol):
    """Records that lie on disk: read one after the other as often as need be, never all in memory."""

    def hash_fractions(self) -> Fractions:
        """Where the first part of each record falls between 0 and 1, as `split.place` says."""

    def select(self, wanted_N: Mask) -> Sequence[Any]:
        """Some of them, in their order."""


@dataclass
class SkipReport:
    """A tally of the lines left out, by reason, with the first few places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    locations: dict[str, list[str]] = field(default_factory=dict)
    filtered: int = 0
    """How many of them are sound, and left out because the user asked for it."""
    notes: list[str] = field(default_factory=list)
    """How the files were read: delimiters, headers and columns."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, path: Path | str, line: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.locations.setdefault(reason, [])
        if len(places) < MAX_LOCATIONS:
            places.append(f"{path}:{line}")

    def add_filtered(self, reason: str, path: Path | str, line: int) -> None:
        """Adds a sound line that the user does not want."""
        self.add(reason, path, line)
        self.filtered += 1

    def merge(self, others: "SkipReport") -> None:
        """Takes up another tally."""
        for reason, count in others.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.locations[reason] = [*self.locations.get(reason, []), *others.locations[reason]][:MAX_LOCATIONS]
        self.filtered += others.filtered
        self.notes += others.notes

    def add_note(self, text: str) -> None:
        """Add a sentence about how a file was read."""
        self.notes.append(text)

    def messages(self) -> list[str]:
        """Return the sentences for the user: the notes, and one line per reason for skipped lines."""
        return [*self.notes, *(f"skipped {line}" for line in self.summary())]

    def summary(self) -> list[str]:
        """One line of text a reason, most frequent first: `empty target: 12 (train.tsv:17, ...)`."""
        by_count = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{reason}: {count} ({self._shown(reason)})" for reason, count in by_count]

    def _shown(self, reason: str) -> str:
        places = self.locations[reason]
        return ", ".join(places + ["..."] * (self.counts[reason] > len(places)))


@dataclass(frozen=True)
class Corpus(Generic[R]):
    """The usable records of a corpus and the account of the rest."""

    records: Sequence[R]
    skips: SkipReport
    total_lines: int
    stored_fingerprint: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal data in any format or compression."""
        return self.stored_fingerprint or fingerprint_records(self.records)


class Fingerprint:
    """A hash of the text of records in their order, taken up one by one."""

    def __init__(self, size: int = 16) -> None:
        self._digest = blake2b(digest_size=size)

    def add(self, *parts: bytes) -> None:
        """One record."""
        for part in parts:
            self._digest.update(len(part).to_bytes(8, "little"))  # so that ("ab", "c") differs from ("a", "bc")
            self._digest.update(part)

    def to_int(self) -> int:
        """As a whole number."""
        return int.from_bytes(self._digest.digest(), "little")

    def __str__(self) -> str:
        return self._digest.hexdigest()


def fingerprint_records(records: Iterable[Record]) -> str:
    """A hash of the text of the records in their order."""
    found = Fingerprint()
    for record in records:
        found.add(*(text.encode() for text in record.fields))
    return str(found)


def build_corpus(
    records: Iterable[R], skips: SkipReport, paths: Sequence[Path | str], minimum: int, noun: str
) -> Corpus[R]:
    """A whole corpus, refused where too little is usable. The reader behind `records` tells `skips` what it skips."""
    kept = list(records)
    corpus = Corpus(kept, skips, len(kept) + skips.total)
    require_enough_records(corpus, paths, minimum, noun)
    return corpus


def require_enough_records(corpus: Corpus[R], paths: Sequence[Path | str], minimum: int, noun: str) -> None:
    """Refuses a corpus of which too little is usable."""
    names, skips = " and ".join(str(path) for path in paths), corpus.skips
    if len(corpus.records) < minimum:
        raise DataError(_too_little(names, corpus, f"at least {minimum} usable {noun} are needed"))
    if skips.total - skips.filtered > len(corpus.records):
        raise DataError(_too_little(names, corpus, "more than half of the lines had to be skipped"))


def _too_little(names: str, corpus: Corpus[R], expected: str) -> str:
    found = f"{names}: {expected}, but of {corpus.total_lines} lines only {len(corpus.records)} are usable"
    if not corpus.skips.total:
        return f"{found}; add data"
    return f"{found}; skipped: {'; '.join(corpus.skips.summary())}; repair these lines or raise the limit"
