"""Files to documents: text cut at lines, at blank lines or not at all, or JSONL with "text"; plain or gzipped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.data.readers.lines import read_lines, require_lines
from clearhead.data.readers.tables import JSON_SUFFIXES, format_suffix, get_string, parse_object
from clearhead.data.records import Corpus, SkipReport, build_corpus
from clearhead.errors import DataError

DocumentUnit = Literal["line", "paragraph", "file"]


@dataclass(frozen=True, slots=True)
class Document:
    """A text that stands for itself, and the line that it begins on."""

    text: str
    line: int

    @property
    def fields(self) -> tuple[str]:
        """The text."""
        return (self.text,)


def load_documents(paths: Sequence[Path | str], cut: DocumentUnit, minimum: int = 1) -> Corpus[Document]:
    """Read whole files, one after the other."""
    return build_corpus(read_documents(paths, cut), SkipReport(), paths, minimum, "documents")


def read_documents(paths: Sequence[Path | str], cut: DocumentUnit) -> Iterator[Document]:
    """Stream the documents of each file; none goes over from one file to the next.

    Blank lines and white space around a document are no part of it, inside it is kept as it is. An object of a JSONL
    file is one document, however it would be cut.
    """
    for path in map(Path, paths):
        is_blank = True
        for document in _read_objects(path) if format_suffix(path) in JSON_SUFFIXES else _read_text(path, cut):
            is_blank = False
            yield document
        if is_blank:
            raise DataError(f"{path}: expected text, found only blank lines; check how the file was made")


def _read_text(path: Path, cut: DocumentUnit) -> Iterator[Document]:
    waiting: list[str] = []
    number = begin = 0
    for number, line in enumerate(read_lines(path), start=1):
        is_blank = not line.strip()
        if waiting and (cut == "line" or (cut == "paragraph" and is_blank)):
            yield _document(waiting, begin)
            waiting = []
        if waiting or not is_blank:
            begin = begin if waiting else number
            waiting.append(line)
    require_lines(path, number)
    if waiting:
        yield _document(waiting, begin)


def _document(lines: Sequence[str], begin: int) -> Document:
    return Document("\n".join(lines).strip(), begin)


def _read_objects(path: Path) -> Iterator[Document]:
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        record = parse_object(path, number, line, '"text"')
        text = get_string(path, number, record, "text")
        if text.strip():
            yield Document(text.strip(), number)
    require_lines(path, number)
