"""Tables of which two columns are read.

    records.tsv      fields separated by TAB, without quoting unless requested; also .txt and any unknown suffix
    records.csv      fields separated by , or ; and quoted as in RFC 4180
    records.jsonl    one object per line with two strings under their names; other keys are allowed
    records.parquet  two columns of strings under their names; others are allowed

Text may be compressed with gzip (.gz) or Zstandard (.zst). The columns are the first two, those that a header names, or
those that the options select. What the columns mean is defined by the tasks.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from clearhead.config import DataConfig
from clearhead.data.readers.lines import excerpt, read_lines, require_lines
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
DELIMITED_SUFFIXES = {".tsv", CSV}
COMPRESSED_SUFFIXES = {".gz", ".zst"}
TABLE_FIELDS = ("columns", "header", "quoting", "delimiter")  # fields of DataConfig that apply to tables
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
    """The columns to read and the syntax of the file."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Number or header name of each column; empty: the first two, or those that a header names."""
    header: str = "auto"
    quoting: bool = False
    delimiter: str = "auto"

    @classmethod
    def from_config(cls, data: DataConfig) -> "TableOptions":
        """Return the options in the data section of a config."""
        return cls(data.column_map, data.header, data.quoting, data.delimiter)

    @property
    def is_named(self) -> bool:
        """Whether a column is selected by its name, which requires a header."""
        return any(not column.isdecimal() for column in self.columns.values())


AddNote = Callable[[str], None]


def format_suffix(path: Path) -> str:
    """Return the lower-cased suffix that determines the format, without `.gz` or `.zst`."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path).suffix.lower()


def has_named_columns(path: Path) -> bool:
    """Return whether every record of the format has the names of its columns."""
    return format_suffix(path) in NAMED_READERS


def is_table(path: Path) -> bool:
    """Return whether the suffix is that of a table."""
    return format_suffix(path) in DELIMITED_SUFFIXES or has_named_columns(path)


def read_table(
    path: Path, columns: ColumnNames, options: TableOptions | None = None, add_note: AddNote = lambda _: None
) -> Iterator[Row]:
    """Iterate over the rows; a blank line gives a row of two empty strings.

    `add_note` receives a sentence about delimiter, header and columns if they differ from a plain TSV file.
    """
    options = options or TableOptions()
    if options.columns and set(options.columns) != set(columns):
        example = f"{columns.first}=1,{columns.second}=2"
        selected = ", ".join(options.columns)
        raise ConfigError(
            f"data.columns: expected {columns.first} and {columns.second}, got {selected}; as in {example}"
        )
    if has_named_columns(path):
        yield from _without_header(path, _read_named(path, columns, options))
    else:
        yield from _without_header(path, _read_delimited(path, columns, options, add_note))


def _without_header(path: Path, rows: Iterator[Row | None]) -> Iterator[Row]:
    """Iterate over the rows without the header; raise DataError if the file has no lines."""
    lines = 0
    for row in rows:
        lines += 1
        if row is not None:
            yield row
    require_lines(path, lines)


def _read_named(path: Path, columns: ColumnNames, options: TableOptions) -> Iterator[Row]:
    names = ColumnNames(*(options.columns.get(name, name) for name in columns))
    for number, (first, second) in enumerate(NAMED_READERS[format_suffix(path)](path, names), start=1):
        yield Row(path, number, first, second)


def _read_jsonl(path: Path, names: ColumnNames) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        yield _parse_json(path, number, line, names) if line.strip() else ("", "")


NamedReader = Callable[[Path, ColumnNames], Iterator[tuple[str, str]]]
NAMED_READERS: dict[str, NamedReader] = {**dict.fromkeys(JSON_SUFFIXES, _read_jsonl), PARQUET: read_parquet}
"""Readers of formats whose records have named columns, by suffix. Each yields both columns of every record."""


def _read_delimited(path: Path, columns: ColumnNames, options: TableOptions, add_note: AddNote) -> Iterator[Row | None]:
    """Iterate over the rows, with None for the header."""
    is_csv = format_suffix(path) == CSV
    delimiter = DELIMITERS.get(options.delimiter, "" if is_csv else TAB)
    if is_csv or options.quoting:
        delimiter, records = read_quoted(path, delimiter)
        advice = "quote fields that contain the delimiter"
    else:
        records = read_unquoted(path, delimiter)
        advice = "remove the delimiter from the text, or quote the fields and set data.quoting=true"
    positions: ColumnPositions | None = None
    for record in records:
        if not "".join(record.fields).strip():
            yield Row(path, record.line, "", "")
            continue
        if positions is None:
            positions = _find_columns(path, record, columns, options, delimiter)
            if is_csv or options.columns or positions.has_header:
                add_note(positions.describe(path, record, columns, delimiter))
            if positions.has_header:
                yield None
                continue
        if len(record.fields) != positions.width:
            problem = _no_delimiter(record, columns, delimiter) or (
                f"expected {positions.width} columns as in the first record, found {len(record.fields)}; {advice}"
            )
            raise DataError.at(path, record.line, problem)
        yield Row(path, record.line, record.fields[positions.first], record.fields[positions.second])


class ColumnPositions(NamedTuple):
    """Positions of the two columns in a record, counted from 0, and the number of fields per record."""

    first: int
    second: int
    width: int
    has_header: bool

    def describe(self, path: Path, record: DelimitedRecord, columns: ColumnNames, delimiter: str) -> str:
        """Return a sentence that describes the columns to the user."""
        delimiter_name = {",": "comma", ";": "semicolon", TAB: "TAB"}[delimiter]
        selected = []
        for name, index in zip(columns, (self.first, self.second), strict=True):
            example = "" if self.has_header else f" (first: {excerpt(record.fields[index])})"
            selected.append(f"{name} in column {index + 1}{example}")
        header = [f"line {record.line} is the header ({_join_fields(record)})"] if self.has_header else []
        return f"{path}: {', '.join([f'separated by {delimiter_name}', *header, *selected])}"


def _find_columns(
    path: Path, record: DelimitedRecord, columns: ColumnNames, options: TableOptions, delimiter: str
) -> ColumnPositions:
    """Return the positions of the columns, determined from the first record of a file."""
    width = len(record.fields)
    if options.columns:
        first, second = (_column_position(path, record, options.columns[name]) for name in columns)
        are_names = _is_header_name(record.fields[first], columns.first) and _is_header_name(
            record.fields[second], columns.second
        )
        is_header = options.is_named or options.header == "yes" or (options.header == "auto" and are_names)
        return ColumnPositions(first, second, width, is_header)
    named = _named_columns(record.fields, columns) if options.header != "no" else None
    if named:
        return ColumnPositions(*named, width, has_header=True)
    if width != 2:
        advice = f"select two, as in --columns {columns.first}=1,{columns.second}=2"
        problem = f"expected 2 columns, found {width} ({_join_fields(record)}); {advice}"
        raise DataError.at(path, record.line, _no_delimiter(record, columns, delimiter) or problem)
    return ColumnPositions(0, 1, width, options.header == "yes")


def _column_position(path: Path, record: DelimitedRecord, column: str) -> int:
    """Return the position of a column that is given by its number or by its name in the header."""
    names = [_normalize_name(name) for name in record.fields]
    if column.isdecimal():
        if not 1 <= int(column) <= len(names):
            problem = (
                f"expected a column {column}, found {len(names)} columns ({_join_fields(record)}); change --columns"
            )
            raise DataError.at(path, record.line, problem)
        return int(column) - 1
    if names.count(_normalize_name(column)) != 1:
        count = "several columns" if _normalize_name(column) in names else "no column"
        problem = f"expected a header with one column {column!r}, found {count} of this name ({_join_fields(record)})"
        raise DataError.at(path, record.line, f"{problem}; change --columns, or give the columns by number")
    return names.index(_normalize_name(column))


def _named_columns(fields: list[str], columns: ColumnNames) -> tuple[int, int] | None:
    """Return the positions of both columns if the fields are a header with usual names for them."""
    names = [_normalize_name(name) for name in fields]
    positions = []
    for role in columns:
        fitting = [index for index, name in enumerate(names) if name == role]
        fitting = fitting or [index for index, name in enumerate(names) if name in HEADER_NAMES[role]]
        if len(fitting) != 1:
            return None
        positions += fitting
    return (positions[0], positions[1]) if positions[0] != positions[1] else None


def _normalize_name(name: str) -> str:
    """Return a column name without quotation marks and surrounding spaces, in lower case."""
    return name.strip().strip('"').casefold()


def _is_header_name(name: str, role: str) -> bool:
    """Return whether a column name is a usual one for the role, such as "src" for the source."""
    return _normalize_name(name) in HEADER_NAMES[role]


def _join_fields(record: DelimitedRecord) -> str:
    """Return the fields of a record for a message, shortened."""
    text = ", ".join(name.strip() for name in record.fields)
    return text if len(text) <= 80 else text[:77] + "..."


def _no_delimiter(record: DelimitedRecord, columns: ColumnNames, delimiter: str) -> str:
    """Return the error message for a record without a delimiter; empty if it has one."""
    if len(record.fields) > 1:
        return ""
    delimiter_name = "TAB" if delimiter == TAB else delimiter
    expected = f"expected {columns.first} {delimiter_name} {columns.second}"
    problem = f"{expected}, found no {delimiter_name} in {excerpt(record.fields[0])}"
    return f"{problem}; separate the fields by one {delimiter_name}"


def _parse_json(path: Path, number: int, line: str, names: ColumnNames) -> tuple[str, str]:
    record = parse_object(path, number, line, f'"{names.first}" and "{names.second}"')
    first, second = (get_string(path, number, record, name, "name the keys with --columns") for name in names)
    return first, second


def parse_object(path: Path, number: int, line: str, keys: str) -> dict[str, object]:
    """Return the JSON object of a line; `keys` describes the expected keys in error messages."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"expected one JSON object per line, got {excerpt(line)} ({error}); write one object per line"
        raise DataError.at(path, number, problem) from error
    if not isinstance(record, dict):
        raise DataError.at(
            path, number, f"expected an object with {keys}, got {excerpt(line)}; write {keys} as its keys"
        )
    return record


def get_string(path: Path, number: int, record: dict[str, object], key: str, advice: str = "rename or add it") -> str:
    """Return the string under a key; raise DataError if the key is missing or its value is not a string."""
    if key not in record:
        keys = ", ".join(record) or "none"
        raise DataError.at(path, number, f'expected the key "{key}", found the keys {keys}; {advice}')
    text = record[key]
    if not isinstance(text, str):
        problem = f'expected a string as "{key}", got {excerpt(json.dumps(text))}; put it in quotation marks'
        raise DataError.at(path, number, problem)
    if any("\ud800" <= char <= "\udfff" for char in text):
        problem = (
            f'"{key}" contains half of a surrogate pair, which is not a character; escape both halves or write UTF-8'
        )
        raise DataError.at(path, number, problem)
    return text
