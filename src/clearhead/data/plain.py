"""Files to documents: plain text, cut at lines, at blank lines or not at all, or JSONL with "text"; plain or gzipped."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.data.corpus import Corpus, Skips, gather
from clearhead.data.lines import excerpt, read_lines, refuse_empty
from clearhead.data.tables import JSON_SUFFIXES, suffix_of
from clearhead.errors import DataError

Cut = Literal["line", "paragraph", "file"]


@dataclass(frozen=True, slots=True)
class Document:
    """A text that stands for itself, and the line that it begins on."""

    text: str
    line: int

    @property
    def parts(self) -> tuple[str]:
        """The text."""
        return (self.text,)


def load_documents(paths: Sequence[Path | str], cut: Cut, minimum: int = 1) -> Corpus[Document]:
    """Read whole files, one after the other."""
    skips = Skips()
    return gather(read_documents(paths, cut), skips, paths, minimum, "documents")


def read_documents(paths: Sequence[Path | str], cut: Cut) -> Iterator[Document]:
    """Stream the documents. White space around them does not count, inside they are kept as they are."""
    for path in map(Path, paths):
        if suffix_of(path) in JSON_SUFFIXES:
            yield from _read_objects(path)
        else:
            yield from _read_text(path, cut)


def _read_text(path: Path, cut: Cut) -> Iterator[Document]:
    waiting: list[str] = []
    number = begin = 0
    for number, line in enumerate(read_lines(path), start=1):
        is_end = cut == "line" or (cut == "paragraph" and not line.strip())
        if line.strip() or (waiting and not is_end):
            begin = begin if waiting else number
            waiting.append(line)
        if is_end and waiting:
            yield Document("\n".join(waiting), begin)
            waiting = []
    refuse_empty(path, number)
    if waiting:
        yield Document("\n".join(waiting), begin)


def _read_objects(path: Path) -> Iterator[Document]:
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            problem = f'expected one object a line with a string "text", got {excerpt(line)}'
            raise DataError.at(path, number, problem) from error
        if not isinstance(text, str):
            raise DataError.at(path, number, f'expected a string as "text", got {excerpt(json.dumps(text))}')
        if text.strip():
            yield Document(text, number)
    refuse_empty(path, number)
