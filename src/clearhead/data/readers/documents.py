"""Files to documents: each line, each paragraph or the whole file of a text file, or each "text" of a JSONL file."""

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
    """A text of any length and the line on which it begins."""

    text: str
    line: int

    @property
    def fields(self) -> tuple[str]:
        """The text as the only field."""
        return (self.text,)


def load_documents(paths: Sequence[Path | str], unit: DocumentUnit, minimum: int = 1) -> Corpus[Document]:
    """Return the documents of all files; raise DataError if there are fewer than `minimum`."""
    return build_corpus(read_documents(paths, unit), SkipReport(), paths, minimum, "documents")


def read_documents(paths: Sequence[Path | str], unit: DocumentUnit) -> Iterator[Document]:
    """Iterate over the documents of each file; no document spans two files.

    Whitespace and blank lines around a document are removed, inside a document they are kept. Each object of a JSONL
    file is one document, whatever the unit.
    """
    for path in map(Path, paths):
        is_blank = True
        for document in _read_objects(path) if format_suffix(path) in JSON_SUFFIXES else _read_text(path, unit):
            is_blank = False
            yield document
        if is_blank:
            raise DataError(f"{path}: expected text, found only blank lines; check how the file was made")


def _read_text(path: Path, unit: DocumentUnit) -> Iterator[Document]:
    lines: list[str] = []  # of the document that is being read
    number = begin = 0
    for number, line in enumerate(read_lines(path), start=1):
        is_blank = not line.strip()
        if lines and (unit == "line" or (unit == "paragraph" and is_blank)):
            yield _document(lines, begin)
            lines = []
        if lines or not is_blank:
            begin = begin if lines else number
            lines.append(line)
    require_lines(path, number)
    if lines:
        yield _document(lines, begin)


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
