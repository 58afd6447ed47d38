"""Tables of two columns, one record a line:

    records.tsv      first TAB second, exactly two columns; also .txt and any unknown suffix
    records.jsonl    one object a line with two strings under their names; other keys are allowed
    records.parquet  two columns of strings under their names; others are allowed

Text may be gzipped (.gz) or Zstandard (.zst). Knows columns, nothing of what they mean.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clearhead.data.lines import excerpt, read_lines, refuse_empty
from clearhead.data.parquet import read_parquet
from clearhead.errors import DataError

PARQUET = ".parquet"
JSON_SUFFIXES = {".jsonl", ".ndjson", ".json"}
TABLE_SUFFIXES = {".tsv", PARQUET} | JSON_SUFFIXES
PACKED = {".gz", ".zst"}


class Columns(NamedTuple):
    """What the two columns are called."""

    first: str
    second: str


class Row(NamedTuple):
    """One line of a table."""

    path: Path
    line: int
    first: str
    second: str


def suffix_of(path: Path) -> str:
    """The lower-cased suffix that tells the format, `.gz` and `.zst` set aside."""
    return (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()


def read_table(path: Path, columns: Columns) -> Iterator[Row]:
    """The rows; a blank line gives a row of two empty strings."""
    number = 0
    for number, (first, second) in enumerate(_read_rows(path, columns), start=1):
        yield Row(path, number, first, second)
    refuse_empty(path, number)


def _read_rows(path: Path, columns: Columns) -> Iterator[tuple[str, str]]:
    if suffix_of(path) == PARQUET:
        yield from read_parquet(path, columns)
        return
    parse = _parse_json if suffix_of(path) in JSON_SUFFIXES else _parse_columns
    for number, line in enumerate(read_lines(path), start=1):
        yield parse(path, number, line, columns) if line.strip() else ("", "")


def _parse_columns(path: Path, number: int, line: str, names: Columns) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) == 1:
        problem = (
            f"expected {names.first} TAB {names.second}, found no TAB in {excerpt(line)}; separate the two by one TAB"
        )
        raise DataError.at(path, number, problem)
    if len(columns) > 2:
        problem = f"expected 2 columns, found {len(columns)}; keep the two wanted, for example with: cut -f1,2"
        raise DataError.at(path, number, problem)
    return columns[0], columns[1]


def _parse_json(path: Path, number: int, line: str, names: Columns) -> tuple[str, str]:
    record = object_of(path, number, line, f'"{names.first}" and "{names.second}"')
    return string_of(path, number, record, names.first), string_of(path, number, record, names.second)


def object_of(path: Path, number: int, line: str, keys: str) -> dict[str, object]:
    """The JSON object of a line, which should have these keys."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"expected one JSON object a line, got {excerpt(line)} ({error}); write one object to each line"
        raise DataError.at(path, number, problem) from error
    if not isinstance(record, dict):
        raise DataError.at(path, number, f"expected an object with {keys}, got {excerpt(line)}; name what is in it")
    return record


def string_of(path: Path, number: int, record: dict[str, object], key: str) -> str:
    """The string under a key; whatever else is there is a mistake at its place."""
    if key not in record:
        found = ", ".join(record) or "none"
        raise DataError.at(path, number, f'expected the key "{key}", found the keys {found}; rename or add it')
    text = record[key]
    if not isinstance(text, str):
        problem = f'expected a string as "{key}", got {excerpt(json.dumps(text))}; put it in quotation marks'
        raise DataError.at(path, number, problem)
    if any("\ud800" <= char <= "\udfff" for char in text):
        problem = f'"{key}" holds half of a surrogate pair, which is no character; escape both halves or write UTF-8'
        raise DataError.at(path, number, problem)
    return text
