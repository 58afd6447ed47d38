"""Records that were read and the account of the lines that were left out.

A fault of a file's structure is a `DataError` naming the place. A line that is sound but useless (an empty side, one
that is too long) is skipped and counted. Every line is therefore either a record or in the tally.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from clearhead.errors import DataError

MAX_CHARS = 2000
PLACES_SHOWN = 3


class Record(Protocol):
    """One example as it was read."""

    @property
    def line(self) -> int:
        """Where it stands in its file, counted from 1."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What it says; equal parts are equal examples, and the first part is what goes in."""


R = TypeVar("R", bound=Record)


@dataclass
class Skips:
    """A tally of the lines left out, by reason, with the first few places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    asked_for: int = 0
    """How many of them are sound, and left out because the user asked for it."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, path: Path | str, line: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(f"{path}:{line}")

    def leave_out(self, reason: str, path: Path | str, line: int) -> None:
        """Adds a sound line that the user does not want."""
        self.add(reason, path, line)
        self.asked_for += 1

    def absorb(self, others: "Skips") -> None:
        """Takes up another tally."""
        for reason, count in others.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.places[reason] = [*self.places.get(reason, []), *others.places[reason]][:PLACES_SHOWN]
        self.asked_for += others.asked_for

    def lines(self) -> list[str]:
        """One line of text a reason, most frequent first: `empty target: 12 (train.tsv:17, ...)`."""
        by_count = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{reason}: {count} ({self._shown(reason)})" for reason, count in by_count]

    def _shown(self, reason: str) -> str:
        places = self.places[reason]
        return ", ".join(places + ["..."] * (self.counts[reason] > len(places)))


@dataclass(frozen=True)
class Corpus(Generic[R]):
    """The usable records of a corpus and the account of the rest."""

    records: list[R]
    skips: Skips
    total_lines: int

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal data in any format or compression."""
        return fingerprint(self.records)


def fingerprint(records: Iterable[Record]) -> str:
    """A hash of the text of the records in their order."""
    digest = blake2b(digest_size=16)
    for record in records:
        for text in record.parts:
            encoded = text.encode()
            digest.update(len(encoded).to_bytes(8, "little"))  # so that ("ab", "c") differs from ("a", "bc")
            digest.update(encoded)
    return digest.hexdigest()


def gather(records: Iterable[R], skips: Skips, paths: Sequence[Path | str], minimum: int, noun: str) -> Corpus[R]:
    """A whole corpus, refused where too little is usable. The reader behind `records` tells `skips` what it skips."""
    kept = list(records)
    corpus = Corpus(kept, skips, len(kept) + skips.total)
    names = " and ".join(str(path) for path in paths)
    if len(kept) < minimum:
        raise DataError(_too_little(names, corpus, f"at least {minimum} usable {noun} are needed"))
    if skips.total - skips.asked_for > len(kept):
        raise DataError(_too_little(names, corpus, "more than half of the lines had to be skipped"))
    return corpus


def _too_little(names: str, corpus: Corpus[R], expected: str) -> str:
    found = f"{names}: {expected}, but of {corpus.total_lines} lines only {len(corpus.records)} are usable"
    if not corpus.skips.total:
        return f"{found}; add data"
    return f"{found}; skipped: {'; '.join(corpus.skips.lines())}; repair these lines or raise the limit"
