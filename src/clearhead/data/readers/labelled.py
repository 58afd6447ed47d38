"""Labelled texts and tagged sentences.

Labelled texts come from tables (see `tables`) with the columns "text" and "label".

Tagged sentences come from CoNLL files: one word and its tag per line, separated by a tab or spaces, and a blank line
between sentences. Only the first and the last column are read, so the four columns of CoNLL-2003 need no conversion.
Skipped are lines that begin with `-DOCSTART-`, which also end a sentence, and comments as in CoNLL-U: lines before a
sentence that begin with `# `. A word may be `#`: a line that ends in a tag and contains no `=` is not a comment.

Tags are BIO: O outside of all spans, B-TYPE for the first word of a span, I-TYPE for its other words. `repair_tags`
converts files with I- at the beginning of a span (the older IOB, as in CoNLL-2003).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.readers.lines import excerpt, read_lines, require_lines
from clearhead.data.readers.tables import ColumnNames, Row, TableOptions, has_named_columns, read_table
from clearhead.data.records import MAX_CHARS, Corpus, SkipReport, build_corpus
from clearhead.errors import DataError

COLUMNS = ColumnNames("text", "label")
MIN_RECORDS = 10  # fewer are not enough to detect a header or swapped columns
NAME = re.compile(r"[^\W\d][\w.-]*")
OUTSIDE = "O"
BEGIN, INSIDE = "B-", "I-"
_TAG = re.compile(r"O|[BI]-\S+")


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its label."""

    text: str
    label: str
    line: int

    @property
    def fields(self) -> tuple[str, str]:
        """Text and label, the model's input first."""
        return self.text, self.label


def load_labelled(
    paths: Sequence[Path | str], max_chars: int = MAX_CHARS, minimum: int = 1, table: TableOptions | None = None
) -> Corpus[LabelledText]:
    """Return the labelled texts of all files; raise DataError if fewer than `minimum` are usable."""
    skips = SkipReport()
    return build_corpus(read_labelled(paths, skips, max_chars, table), skips, paths, minimum, "labelled texts")


def read_labelled(
    paths: Sequence[Path | str],
    skips: SkipReport | None = None,
    max_chars: int = MAX_CHARS,
    table: TableOptions | None = None,
) -> Iterator[LabelledText]:
    """Iterate over the usable texts; skipped lines are added to `skips`.

    Each file is read into memory as a whole, because unknown header names and swapped columns can be detected only from
    the statistics of all records.
    """
    skips, table = skips or SkipReport(), table or TableOptions()
    for path in map(Path, paths):
        rows = list(read_table(path, COLUMNS, table, skips.add_note))
        if table.header == "auto" and not table.is_named and not has_named_columns(path) and _starts_with_header(rows):
            first = rows.pop(0)
            names = f"{first.first.strip()}, {first.second.strip()}"
            skips.add_note(f"{path}: line 1 is read as a header ({names}); set data.header=no to read it as a record")
        if not table.columns:
            _refuse_swapped(path, rows)
        for row in rows:
            text, label = row.first, row.second.strip()
            reason = _skip_reason(text, label, max_chars)
            if reason:
                skips.add(reason, path, row.line)
            else:
                yield LabelledText(text, label, row.line)


def is_number(text: str) -> bool:
    """Return whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _skip_reason(text: str, label: str, max_chars: int) -> str:
    """Return why a record is not usable; empty if it is."""
    if not text.strip():
        return "empty text" if label else "empty line"
    if not label:
        return "empty label"
    return f"text longer than {max_chars} characters" if len(text) > max_chars else ""


def _starts_with_header(rows: Sequence[Row]) -> bool:
    """Return whether the first record is a header.

    A header consists of two single words, most texts have several words, and its label is unique although labels repeat
    or although all other labels are numbers.
    """
    if len(rows) < MIN_RECORDS or rows[0].line != 1:
        return False
    text, label = rows[0].first.strip().strip('"'), rows[0].second.strip().strip('"')
    others = {row.second.strip() for row in rows[1:]}
    if not (NAME.fullmatch(text) and NAME.fullmatch(label)) or label in others:
        return False
    has_sentences = 2 * sum(len(row.first.split()) > 1 for row in rows) > len(rows)
    return has_sentences and (2 * len(others) <= len(rows) or all(map(is_number, others)))


def _refuse_swapped(path: Path, rows: Sequence[Row]) -> None:
    """Raise an error if the first column looks like labels and the second like texts."""
    texts, labels = {row.first.strip() for row in rows}, {row.second.strip() for row in rows}
    if len(rows) < MIN_RECORDS or 2 * len(labels) <= len(rows) or 2 * len(texts) > len(labels):
        return
    if sum(map(len, labels)) * len(texts) <= sum(map(len, texts)) * len(labels):  # the mean lengths
        return
    example = ", ".join(excerpt(text) for text in sorted(texts)[:3])
    raise DataError(
        f"{path}: expected the text before the label, found {len(texts):,} different values as text (such as "
        f"{example}) and {len(labels):,} longer ones as label, in {len(rows):,} records: the columns seem swapped; use "
        "--columns text=2,label=1, or --columns text=1,label=2 if they are not"
    )


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int
    """Line of the first word; the other words are on the following lines."""

    @property
    def fields(self) -> tuple[str, str]:
        """Words and tags, each joined by spaces."""
        return " ".join(self.words), " ".join(self.tags)


def span_type(tag: str) -> str:
    """Return the type of the span that a tag belongs to; empty for O."""
    return "" if tag == OUTSIDE else tag[len(BEGIN) :]


def repair_tags(tags: Iterable[str]) -> list[str]:
    """Return the tags as valid BIO: an I-X that follows neither B-X nor I-X begins a span and becomes B-X."""
    repaired: list[str] = []
    previous_type = ""
    for tag in tags:
        begins_span = tag.startswith(INSIDE) and span_type(tag) != previous_type
        previous_type = span_type(tag)
        repaired.append(BEGIN + previous_type if begins_span else tag)
    return repaired


def load_tagged(paths: Sequence[Path | str], max_chars: int | None = None, minimum: int = 1) -> Corpus[TaggedSentence]:
    """Return the tagged sentences of all files; raise DataError if fewer than `minimum` are usable."""
    skips = SkipReport()
    return build_corpus(read_tagged(paths, skips, max_chars), skips, paths, minimum, "tagged sentences")


def read_tagged(
    paths: Sequence[Path | str], skips: SkipReport, max_chars: int | None = None
) -> Iterator[TaggedSentence]:
    """Iterate over the sentences; those longer than `max_chars` characters, if given, are added to `skips` instead."""
    for path in map(Path, paths):
        for sentence in _read_file(path):
            if max_chars is not None and len(sentence.fields[0]) > max_chars:
                skips.add(f"sentence longer than {max_chars} characters", path, sentence.line)
            else:
                yield sentence


def _read_file(path: Path) -> Iterator[TaggedSentence]:
    rows: list[tuple[str, str]] = []
    number = begin = 0
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip() and not line.startswith("-DOCSTART-"):
            if rows or not _is_comment(line):
                begin = begin if rows else number
                rows.append(_parse(path, number, line))
        elif rows:
            yield _sentence(rows, begin)
            rows = []
    require_lines(path, number)
    if rows:
        yield _sentence(rows, begin)


def _sentence(rows: Sequence[tuple[str, str]], line: int) -> TaggedSentence:
    return TaggedSentence(tuple(word for word, _ in rows), tuple(repair_tags(tag for _, tag in rows)), line)


def _is_comment(line: str) -> bool:
    """Return whether a line before a sentence is a comment."""
    return line.startswith("# ") and ("=" in line or not _TAG.fullmatch(line.split()[-1]))


def _parse(path: Path, number: int, line: str) -> tuple[str, str]:
    columns = [column.strip() for column in line.split("\t" if "\t" in line else " ")]
    columns = [column for column in columns if column]
    if len(columns) < 2:
        problem = f"expected a word and its tag, separated by a tab or a space, got {excerpt(line)}"
        raise DataError.at(path, number, problem + "; is this a CoNLL file?")
    if not _TAG.fullmatch(columns[-1]):
        problem = f"expected the tag O, or B- or I- and a type such as B-PER, got {excerpt(columns[-1])}"
        raise DataError.at(path, number, problem + "; convert the file to BIO tags")
    return columns[0], columns[-1]
