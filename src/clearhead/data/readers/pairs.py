"""Sentence pairs, from one table or several, or from two parallel files.

    pairs.tsv            source TAB target; also .txt and any unknown suffix
    pairs.csv            source and target, separated by , or ; and quoted as in RFC 4180
    pairs.jsonl          one object per line with the strings "source" and "target"; other keys are allowed
    pairs.parquet        columns of strings "source" and "target"; others are allowed
    train.en train.de    two files; line n of one is the translation of line n of the other

Text may be compressed with gzip or Zstandard. `read_aligned` reads pairs with gold word alignments: JSON lines with
"source", "target" and "alignment", a list of pairs of word indices, as `clearhead data grammar --out pairs.jsonl`
writes them.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.data.readers.lines import excerpt, read_lines, require_lines
from clearhead.data.readers.tables import (
    AddNote,
    ColumnNames,
    Row,
    TableOptions,
    get_string,
    is_table,
    parse_object,
    read_table,
)
from clearhead.data.records import MAX_CHARS, Corpus, Fingerprint, SkipReport, build_corpus
from clearhead.errors import DataError

COLUMNS = ColumnNames("source", "target")
INITIAL_SIZE = 1 << 12
MAX_LOAD_FACTOR = 0.65  # fraction of used slots at which the table doubles


class HashSet:
    """Set of integers below 2^64 without deletion: a flat table with open addressing and linear probing.

    It takes 8 bytes per slot; a Python set takes ten times as much. Among ten million texts, the probability that two
    different ones have the same 8-byte hash is three in a million.
    """

    def __init__(self) -> None:
        self._count = 0
        self._table = array("Q", [0]) * INITIAL_SIZE

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        if self._count >= MAX_LOAD_FACTOR * len(self._table):
            self._grow()
        is_new = _insert(self._table, number or 1)  # 0 marks a free slot
        self._count += is_new
        return is_new

    def _grow(self) -> None:
        old, self._table = self._table, array("Q", [0]) * (2 * len(self._table))
        for number in old:
            if number:
                _insert(self._table, number)


def _insert(table: "array[int]", number: int) -> bool:
    """Insert a number into a table that has a free slot; return whether it is new."""
    slot_mask = len(table) - 1
    slot = number & slot_mask
    while occupant := table[slot]:
        if occupant == number:
            return False
        slot = (slot + 1) & slot_mask
    table[slot] = number
    return True


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation, and their location."""

    source: str
    target: str
    line: int
    """Line number in the file or in both parallel files, from 1."""
    file_index: int = 0
    """Index of the file, if there are several files of pairs."""

    @property
    def fields(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def load_pairs(
    paths: Sequence[Path | str],
    max_chars: int = MAX_CHARS,
    min_pairs: int = 1,
    *,
    max_length_ratio: float = 0.0,
    deduplicate: bool = False,
    table: TableOptions | None = None,
) -> Corpus[Pair]:
    """Return the pairs of all files; raise DataError if fewer than `min_pairs` are usable."""
    skips = SkipReport()
    pairs = read_pairs(paths, skips, max_chars, max_length_ratio, deduplicate, table)
    return build_corpus(pairs, skips, paths, min_pairs, "pairs")


def read_pairs(
    paths: Sequence[Path | str],
    skips: SkipReport | None = None,
    max_chars: int = MAX_CHARS,
    max_length_ratio: float = 0.0,
    deduplicate: bool = False,
    table: TableOptions | None = None,
) -> Iterator[Pair]:
    """Iterate over the usable pairs; skipped lines are added to `skips`.

    One path or several tables are read one after the other; two files of another type are read in parallel.
    Pairs whose length ratio is `max_length_ratio` or more are skipped (0: no limit); `deduplicate` skips repeated
    pairs.
    """
    seen = HashSet() if deduplicate else None
    skips = SkipReport() if skips is None else skips
    for pair, problem, path in read_checked_pairs(paths, max_chars, table, skips.add_note):
        if problem:
            skips.add(problem, path, pair.line)
        elif reason := _filter_reason(pair, max_length_ratio, seen):
            skips.add_filtered(reason, path, pair.line)
        else:
            yield pair


class CheckedPair(NamedTuple):
    """A pair and the reason for which it is not usable; empty if it is."""

    pair: Pair
    problem: str
    path: Path


def read_checked_pairs(
    paths: Sequence[Path | str],
    max_chars: int = MAX_CHARS,
    table: TableOptions | None = None,
    add_note: AddNote = lambda _: None,
) -> Iterator[CheckedPair]:
    """Iterate over all pairs of a corpus, usable or not; `add_note` receives sentences about the detected format."""
    files = [Path(path) for path in paths]
    rows: Iterator[tuple[int, Row]]
    if are_tables(files):
        rows = (
            (number, row) for number, path in enumerate(files) for row in read_table(path, COLUMNS, table, add_note)
        )
    elif len(files) == 2:
        rows = ((0, row) for row in _read_parallel_files(files[0], files[1]))
    else:
        raise DataError(
            f"expected one file of pairs (.tsv, .csv, .jsonl, .parquet) or two line files, got {len(files)}: "
            f"{', '.join(map(str, files)) or 'none'}; join the files of one language first"
        )
    for file_index, row in rows:
        pair = Pair(row.first, row.second, row.line, file_index)
        yield CheckedPair(pair, _skip_reason(pair, max_chars), row.path)


def are_tables(files: Sequence[Path]) -> bool:
    """Return whether each file contains pairs, not one side of them."""
    return len(files) == 1 or (len(files) > 1 and all(is_table(path) for path in files))


def _skip_reason(pair: Pair, max_chars: int) -> str:
    """Return why a pair is not usable; empty if it is."""
    for side, text in (("source", pair.source), ("target", pair.target)):
        if not text or text.isspace():
            return f"empty {side}" if pair.source.strip() or pair.target.strip() else "empty line"
        if len(text) > max_chars:
            return f"{side} longer than {max_chars} characters"
    return ""


def _filter_reason(pair: Pair, max_length_ratio: float, seen: HashSet | None) -> str:
    """Return why a valid pair is filtered; if it is not, return an empty string and add the pair to `seen`."""
    short, long = sorted((len(pair.source), len(pair.target)))
    if 0 < max_length_ratio <= long / short:
        return f"one side {max_length_ratio:g} times as long as the other or longer"
    if seen is None:
        return ""
    digest = Fingerprint(8)
    digest.add(pair.source.encode(), pair.target.encode())
    return "" if seen.add(digest.to_int()) else "duplicate"


def _read_parallel_files(sources: Path, targets: Path) -> Iterator[Row]:
    number = 0
    lines: Iterable[tuple[str | None, str | None]] = zip_longest(read_lines(sources), read_lines(targets))
    iterator = iter(lines)
    for number, (source, target) in enumerate(iterator, start=1):
        if source is None or target is None:
            longer, shorter = (targets, sources) if source is None else (sources, targets)
            count = number + sum(1 for _ in iterator)
            problem = f"expected as many lines as in {longer}, which has {count}, found {number - 1}; "
            raise DataError.at(
                shorter, number, problem + "line n of one must be the translation of line n of the other"
            )
        yield Row(sources, number, source, target)
    require_lines(sources, number)


Links = frozenset[tuple[int, int]]
"""Pairs (index of the source word, index of the target word), from 0."""


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A pair and its word alignment."""

    pair: Pair
    links: Links


def read_aligned(path: Path | str) -> Iterator[AlignedPair]:
    """Iterate over the pairs of a file; raise DataError at the first faulty line."""
    file, number = Path(path), 0
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip():
            record = parse_object(file, number, line, '"source", "target" and "alignment"')
            pair = Pair(get_string(file, number, record, "source"), get_string(file, number, record, "target"), number)
            yield AlignedPair(pair, _links(file, number, record))
    require_lines(file, number)


def _links(path: Path, number: int, record: dict[str, object]) -> Links:
    alignment = record.get("alignment")
    links: list[Any] = alignment if isinstance(alignment, list) else [alignment]
    if not all(map(_is_link, links)):
        problem = f'expected as "alignment" a list of pairs such as [[0, 0], [1, 2]], got {excerpt(str(alignment))}; '
        raise DataError.at(path, number, problem + "create such a file with: clearhead data grammar --out gold.jsonl")
    return frozenset((link[0], link[1]) for link in links)


def _is_link(link: Any) -> bool:
    """Return whether a JSON value is a pair of word indices."""
    is_pair = isinstance(link, list) and len(link) == 2
    return is_pair and all(type(index) is int and index >= 0 for index in link)
