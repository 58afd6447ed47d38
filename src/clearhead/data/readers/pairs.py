"""Files to sentence pairs. Text is plain, gzipped or Zstandard:

pairs.tsv            source TAB target; also .txt and any unknown suffix
pairs.csv            source and target, separated by , or ; and quoted as in RFC 4180
pairs.jsonl          one object per line with the strings "source" and "target"; other keys are allowed
pairs.parquet        columns of strings "source" and "target"; others are allowed
train.en train.de    two files, line n of one belonging to line n of the other

What was there before, in bounded memory: numbers of 8 bytes in one flat table.

A Python set takes ten times as much. Of ten million texts two different ones have the same 8-byte hash with a chance
of three in a million.

Sentence pairs with gold word alignments: JSON lines with "source", "target" and "alignment", pairs of word indices.

`clearhead data grammar --out pairs.jsonl` writes them.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.data.readers.lines import excerpt, read_lines, refuse_empty
from clearhead.data.readers.tables import (
    ColumnNames,
    Note,
    Row,
    TableOptions,
    is_table,
    object_of,
    read_table,
    string_of,
)
from clearhead.data.records import MAX_CHARS, Corpus, Fingerprint, SkipReport, build_corpus
from clearhead.errors import DataError

FIRST_SIZE = 1 << 12
FULL = 0.65  # the table doubles when this share of it is in use


class HashSet:
    """A set of numbers below 2^64 that only grows: open addressing, a place after the other."""

    def __init__(self) -> None:
        self._count = 0
        self._table = array("Q", [0]) * FIRST_SIZE

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """Takes a number up; whether it is new."""
        if self._count >= FULL * len(self._table):
            self._grow()
        is_new = _put(self._table, number or 1)  # 0 marks a free place
        self._count += is_new
        return is_new

    def _grow(self) -> None:
        old, self._table = self._table, array("Q", [0]) * (2 * len(self._table))
        for number in old:
            if number:
                _put(self._table, number)


def _put(table: "array[int]", number: int) -> bool:
    """Puts a number into a table with room; whether it was not there yet."""
    last = len(table) - 1
    place = number & last
    while found := table[place]:
        if found == number:
            return False
        place = (place + 1) & last
    table[place] = number
    return True


COLUMNS = ColumnNames("source", "target")


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, and where they came from."""

    source: str
    target: str
    line: int
    """The line in the file or files, counted from 1."""
    corpus: int = 0
    """The number of the file, where there are several of pairs."""

    @property
    def parts(self) -> tuple[str, str]:
        """Both sides."""
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
    """Read a whole corpus; too few usable pairs are an error."""
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
    """Stream the usable pairs of a corpus; `skips` receives every line that is left out.

    One path or several tables are read one after the other; two other files are read side by side. `max_length_ratio`
    drops pairs of which one side is that many times as long as the other, and `deduplicate` drops repeated pairs.
    """
    seen = HashSet() if deduplicate else None
    skips = SkipReport() if skips is None else skips
    for pair, fault, path in read_checked_pairs(paths, max_chars, table, skips.note):
        if fault:
            skips.add(fault, path, pair.line)
        elif unwanted := _unwanted(pair, max_length_ratio, seen):
            skips.leave_out(unwanted, path, pair.line)
        else:
            yield pair


class CheckedPair(NamedTuple):
    """A pair, and why it is of no use if it is not."""

    pair: Pair
    fault: str
    path: Path


def read_checked_pairs(
    paths: Sequence[Path | str],
    max_chars: int = MAX_CHARS,
    table: TableOptions | None = None,
    note: Note = lambda _: None,
) -> Iterator[CheckedPair]:
    """Stream a pair for each record of a corpus, usable or not; `note` receives how the files were read."""
    files = [Path(path) for path in paths]
    rows: Iterator[tuple[int, Row]]
    if are_tables(files):
        rows = ((number, row) for number, path in enumerate(files) for row in read_table(path, COLUMNS, table, note))
    elif len(files) == 2:
        rows = ((0, row) for row in _read_side_by_side(files[0], files[1]))
    else:
        raise DataError(
            f"expected one file of pairs (.tsv, .csv, .jsonl, .parquet) or two line files, got {len(files)}: "
            f"{', '.join(map(str, files)) or 'none'}; join the files of one language first"
        )
    for corpus, row in rows:
        pair = Pair(row.first, row.second, row.line, corpus)
        yield CheckedPair(pair, _fault(pair, max_chars), row.path)


def are_tables(files: Sequence[Path]) -> bool:
    """Whether each file holds pairs, and not one side of them."""
    return len(files) == 1 or (len(files) > 1 and all(is_table(path) for path in files))


def _fault(pair: Pair, max_chars: int) -> str:
    """Why a pair is of no use, or nothing."""
    for side, text in (("source", pair.source), ("target", pair.target)):
        if not text or text.isspace():
            return f"empty {side}" if pair.source.strip() or pair.target.strip() else "empty line"
        if len(text) > max_chars:
            return f"{side} longer than {max_chars} characters"
    return ""


def _unwanted(pair: Pair, max_length_ratio: float, seen: HashSet | None) -> str:
    """Why a sound pair is left out, or nothing; then it is among those seen from now on."""
    short, long = sorted((len(pair.source), len(pair.target)))
    if 0 < max_length_ratio <= long / short:
        return f"one side {max_length_ratio:g} times as long as the other or longer"
    if seen is None:
        return ""
    mark = Fingerprint(8)
    mark.add(pair.source.encode(), pair.target.encode())
    return "" if seen.add(mark.number()) else "came before"


def _read_side_by_side(sources: Path, targets: Path) -> Iterator[Row]:
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
    refuse_empty(sources, number)


Links = frozenset[tuple[int, int]]
"""(source word, target word), both counted from 0."""


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A pair, and which words of it belong together."""

    pair: Pair
    links: Links


def read_aligned(path: Path | str) -> Iterator[AlignedPair]:
    """Stream the pairs of a file; an error names the line."""
    file, number = Path(path), 0
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip():
            record = object_of(file, number, line, '"source", "target" and "alignment"')
            pair = Pair(string_of(file, number, record, "source"), string_of(file, number, record, "target"), number)
            yield AlignedPair(pair, _links(file, number, record))
    refuse_empty(file, number)


def _links(path: Path, number: int, record: dict[str, object]) -> Links:
    found = record.get("alignment")
    links: list[Any] = found if isinstance(found, list) else [found]
    if not all(map(_is_link, links)):
        problem = f'expected as "alignment" a list of pairs such as [[0, 0], [1, 2]], got {excerpt(str(found))}; '
        raise DataError.at(path, number, problem + "make gold with: clearhead data grammar --out gold.jsonl")
    return frozenset((link[0], link[1]) for link in links)


def _is_link(link: Any) -> bool:
    """Two word indices."""
    is_pair = isinstance(link, list) and len(link) == 2
    return is_pair and all(type(index) is int and index >= 0 for index in link)
