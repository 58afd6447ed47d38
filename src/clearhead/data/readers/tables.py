"""Tables, of which two columns are read:

    records.tsv      fields separated by TAB, without quoting unless requested; also .txt and any unknown suffix
    records.csv      fields separated by , or ; and quoted as in RFC 4180
    records.jsonl    one object per line with two strings under their names; other keys are allowed
    records.parquet  two columns of strings under their names; others are allowed

Text may be compressed with gzip (.gz) or Zstandard (.zst). The columns are the first two, those that a header names, or
those that the options select. The meaning of the columns belongs to the tasks.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clearhead.config import DataConfig
from clearhead.data.readers.lines import excerpt, read_lines, refuse_empty
from clearhead.data.readers.table_formats import (
    CSV,
    DELIMITERS,
    TAB,
    DelimitedRecord,
    read_parquet,
    read_quoted,
    read_unquoted,
)
from clearhead.errors import ConfigError, DataError

PARQUET = ".parquet"
JSON_SUFFIXES = {".jsonl", ".ndjson", ".json"}
TABLE_SUFFIXES = {".tsv", CSV, PARQUET} | JSON_SUFFIXES
PACKED = {".gz", ".zst"}
TABLE_FIELDS = ("columns", "header", "quoting", "delimiter")  # settings of the data section
HEADER_NAMES = {
    "text": {
        "text", "sentence", "review", "comment", "content", "message", "body", "document", "tweet", "utterance",
        "question", "caption", "description",
    },
    "label": {
        "label", "labels", "class", "category", "sentiment", "intent", "topic", "rating", "stars", "polarity", "target",
    },
    "source": {"source", "src"},
    "target": {"target", "tgt", "trg", "translation"},
    "image": {"image", "picture", "path", "file", "filename"},
}  # fmt: skip


class ColumnNames(NamedTuple):
    """Names of the two columns that a task reads."""

    first: str
    second: str


class Row(NamedTuple):
    """The two fields of one record and the line on which it starts."""

    path: Path
    line: int
    first: str
    second: str


@dataclass(frozen=True)
class TableOptions:
    """Which columns to read and how to divide text into fields."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Number or header name of each column; empty: the first two, or those that a header names."""
    header: str = "auto"
    quoting: bool = False
    delimiter: str = "auto"

    @classmethod
    def of(cls, data: DataConfig) -> "TableOptions":
        """Return the options in the data section of a config."""
        return cls(data.column_map, data.header, data.quoting, data.delimiter)

    @property
    def is_named(self) -> bool:
        """Whether a column is selected by its name, so that there must be a header."""
        return any(not column.isdecimal() for column in self.columns.values())


Note = Callable[[str], None]


def suffix_of(path: Path) -> str:
    """Return the lower-cased suffix that determines the format, without `.gz` or `.zst`."""
    return (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()


def has_names(path: Path) -> bool:
    """Return whether every record of the format has the names of its columns."""
    return suffix_of(path) in JSON_SUFFIXES | {PARQUET}


def read_table(
    path: Path, columns: ColumnNames, options: TableOptions | None = None, note: Note = lambda _: None
) -> Iterator[Row]:
    """Iterate over the rows; a blank line gives a row of two empty strings.

    `note` receives a sentence about the delimiter, the header and the columns where these are not the plain ones.
    """
    options = options or TableOptions()
    if options.columns and set(options.columns) != set(columns):
        example = f"{columns.first}=1,{columns.second}=2"
        found = ", ".join(options.columns)
        raise ConfigError(f"data.columns: expected {columns.first} and {columns.second}, got {found}; as in {example}")
    if has_names(path):
        yield from _counted(path, _read_named(path, columns, options))
    else:
        yield from _counted(path, _read_delimited(path, columns, options, note))


def _counted(path: Path, rows: Iterator[Row | None]) -> Iterator[Row]:
    """Iterate over the rows without the header; a file without a line is an error."""
    lines = 0
    for row in rows:
        lines += 1
        if row is not None:
            yield row
    refuse_empty(path, lines)


def _read_named(path: Path, columns: ColumnNames, options: TableOptions) -> Iterator[Row]:
    names = ColumnNames(*(options.columns.get(name, name) for name in columns))
    if suffix_of(path) == PARQUET:
        for number, (first, second) in enumerate(read_parquet(path, names), start=1):
            yield Row(path, number, first, second)
        return
    for number, line in enumerate(read_lines(path), start=1):
        yield Row(path, number, *(_parse_json(path, number, line, names) if line.strip() else ("", "")))


def _read_delimited(path: Path, columns: ColumnNames, options: TableOptions, note: Note) -> Iterator[Row | None]:
    """Iterate over the rows, with None for the header."""
    is_csv = suffix_of(path) == CSV
    delimiter = DELIMITERS.get(options.delimiter, "" if is_csv else TAB)
    if is_csv or options.quoting:
        delimiter, records = read_quoted(path, delimiter)
        advice = "quote fields that contain the delimiter"
    else:
        records = read_unquoted(path, delimiter)
        advice = "remove the delimiter from the text, or quote the fields and set data.quoting=true"
    layout: ColumnPositions | None = None
    for record in records:
        if not "".join(record.fields).strip():
            yield Row(path, record.line, "", "")
            continue
        if layout is None:
            layout = _find_layout(path, record, columns, options, delimiter)
            if is_csv or options.columns or layout.has_header:
                note(layout.describe(path, record, columns, delimiter))
            if layout.has_header:
                yield None
                continue
        if len(record.fields) != layout.width:
            problem = _no_delimiter(record, columns, delimiter) or (
                f"expected {layout.width} columns as in the first record, found {len(record.fields)}; {advice}"
            )
            raise DataError.at(path, record.line, problem)
        yield Row(path, record.line, record.fields[layout.first], record.fields[layout.second])


class ColumnPositions(NamedTuple):
    """Positions of the two columns in a record, counted from 0, and the number of fields per record."""

    first: int
    second: int
    width: int
    has_header: bool

    def describe(self, path: Path, record: DelimitedRecord, columns: ColumnNames, delimiter: str) -> str:
        """Return a sentence for the user."""
        shown = {",": "comma", ";": "semicolon", TAB: "TAB"}[delimiter]
        wanted = []
        for name, index in zip(columns, (self.first, self.second), strict=True):
            begins = "" if self.has_header else f" (first: {excerpt(record.fields[index])})"
            wanted.append(f"{name} in column {index + 1}{begins}")
        header = [f"line {record.line} is the header ({_shown(record)})"] if self.has_header else []
        return f"{path}: {', '.join([f'separated by {shown}', *header, *wanted])}"


def _find_layout(
    path: Path, record: DelimitedRecord, columns: ColumnNames, options: TableOptions, delimiter: str
) -> ColumnPositions:
    """Return the layout of a file from its first record."""
    width = len(record.fields)
    if options.columns:
        first, second = (_selected(path, record, options.columns[name]) for name in columns)
        are_names = _is_name(record.fields[first], columns.first) and _is_name(record.fields[second], columns.second)
        is_header = options.is_named or options.header == "yes" or (options.header == "auto" and are_names)
        return ColumnPositions(first, second, width, is_header)
    found = _named_columns(record.fields, columns) if options.header != "no" else None
    if found:
        return ColumnPositions(*found, width, has_header=True)
    if width != 2:
        advice = f"say which two are meant, as in --columns {columns.first}=1,{columns.second}=2"
        problem = f"expected 2 columns, found {width} ({_shown(record)}); {advice}"
        raise DataError.at(path, record.line, _no_delimiter(record, columns, delimiter) or problem)
    return ColumnPositions(0, 1, width, options.header == "yes")


def _selected(path: Path, record: DelimitedRecord, column: str) -> int:
    """Return the position of a column that is given by its number or by its name in the header."""
    names = [_plain_name(name) for name in record.fields]
    if column.isdecimal():
        if not 1 <= int(column) <= len(names):
            problem = f"expected a column {column}, found {len(names)} columns ({_shown(record)}); change --columns"
            raise DataError.at(path, record.line, problem)
        return int(column) - 1
    if names.count(_plain_name(column)) != 1:
        count = "several columns" if _plain_name(column) in names else "no column"
        problem = f"expected a header with one column {column!r}, found {count} of this name ({_shown(record)})"
        raise DataError.at(path, record.line, f"{problem}; change --columns, or give the columns by number")
    return names.index(_plain_name(column))


def _named_columns(fields: list[str], columns: ColumnNames) -> tuple[int, int] | None:
    """Return the positions of both columns if the fields are a header with usual names for them."""
    names = [_plain_name(name) for name in fields]
    found = []
    for role in columns:
        fitting = [index for index, name in enumerate(names) if name == role]
        fitting = fitting or [index for index, name in enumerate(names) if name in HEADER_NAMES[role]]
        if len(fitting) != 1:
            return None
        found += fitting
    return (found[0], found[1]) if found[0] != found[1] else None


def _plain_name(name: str) -> str:
    return name.strip().strip('"').casefold()


def _is_name(name: str, role: str) -> bool:
    return _plain_name(name) in HEADER_NAMES[role]


def _shown(record: DelimitedRecord) -> str:
    """Return the fields of a record for a message, shortened."""
    shown = ", ".join(name.strip() for name in record.fields)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _no_delimiter(record: DelimitedRecord, columns: ColumnNames, delimiter: str) -> str:
    """Return the sentence about a record of one field, or nothing."""
    if len(record.fields) > 1:
        return ""
    shown = "TAB" if delimiter == TAB else delimiter
    expected = f"expected {columns.first} {shown} {columns.second}"
    return f"{expected}, found no {shown} in {excerpt(record.fields[0])}; separate the fields by one {shown}"


def _parse_json(path: Path, number: int, line: str, names: ColumnNames) -> tuple[str, str]:
    record = object_of(path, number, line, f'"{names.first}" and "{names.second}"')
    first, second = (string_of(path, number, record, name, "name the keys with --columns") for name in names)
    return first, second


def object_of(path: Path, number: int, line: str, keys: str) -> dict[str, object]:
    """Return the JSON object of a line, which should have these keys."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"expected one JSON object per line, got {excerpt(line)} ({error}); write one object to each line"
        raise DataError.at(path, number, problem) from error
    if not isinstance(record, dict):
        raise DataError.at(path, number, f"expected an object with {keys}, got {excerpt(line)}; name what is in it")
    return record


def string_of(path: Path, number: int, record: dict[str, object], key: str, advice: str = "rename or add it") -> str:
    """Return the string under a key; any other value is an error at its line."""
    if key not in record:
        found = ", ".join(record) or "none"
        raise DataError.at(path, number, f'expected the key "{key}", found the keys {found}; {advice}')
    text = record[key]
    if not isinstance(text, str):
        problem = f'expected a string as "{key}", got {excerpt(json.dumps(text))}; put it in quotation marks'
        raise DataError.at(path, number, problem)
    if any("\ud800" <= char <= "\udfff" for char in text):
        problem = f'"{key}" holds half of a surrogate pair, which is no character; escape both halves or write UTF-8'
        raise DataError.at(path, number, problem)
    return text
