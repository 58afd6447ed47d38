"""Sentence pairs with gold word alignments: JSON lines with "source", "target" and "alignment", pairs of word indices.

`clearhead data grammar --out pairs.jsonl` writes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.data.readers.lines import excerpt, read_lines, refuse_empty
from clearhead.data.readers.pairs import Pair
from clearhead.data.readers.tables import object_of, string_of
from clearhead.errors import DataError

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
