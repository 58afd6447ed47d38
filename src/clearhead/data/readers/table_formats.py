"""The file formats of tables: TSV without quoting, CSV as RFC 4180 defines it, and Parquet.

A quoted field of a CSV file may contain the delimiter, line breaks and doubled quotation marks, so a record may span
several lines; each record has the number of the line on which it starts. The delimiter, `,` or `;`, is detected from
the first lines. Parquet files are read a few thousand rows at a time; rows are counted from 1, like lines.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.data.readers.lines import excerpt, read_lines
from clearhead.errors import DataError
from clearhead.extras import require_package

CSV = ".csv"
TAB = "\t"
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": TAB}
MAX_FIELD_CHARS = 1 << 24  # a longer field means an unclosed quotation mark; limits the memory used
SAMPLE_LINES = 500  # lines from which the delimiter is detected
PARQUET_ROWS = 4096  # rows read at a time
QUOTED = re.compile(r'"(?:[^"]++|"")*+"')


class DelimitedRecord(NamedTuple):
    """The fields of one record and the line on which it starts."""

    line: int
    fields: list[str]


def read_quoted(path: Path, delimiter: str) -> tuple[str, Iterator[DelimitedRecord]]:
    """Return the delimiter, detected if it is empty, and an iterator over the records of a file with quoting."""
    lines = read_lines(path)
    sample = list(islice(lines, SAMPLE_LINES))
    delimiter = delimiter or _detect_delimiter(path, sample)
    return delimiter, _parse_quoted(path, chain(sample, lines), delimiter)


def read_unquoted(path: Path, delimiter: str) -> Iterator[DelimitedRecord]:
    """Iterate over the records of a file in which a quotation mark is an ordinary character."""
    return (DelimitedRecord(number, line.split(delimiter)) for number, line in enumerate(read_lines(path), start=1))


def _parse_quoted(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[DelimitedRecord]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    current: list[str] = []  # lines of the record that is being parsed

    def feed() -> Iterator[str]:
        for line in lines:
            current.append(line + "\n")
            yield current[-1]

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _explain(path, start, "".join(current), delimiter, error) from error
        yield DelimitedRecord(start, fields)
        start += len(current)
        current.clear()


def _explain(path: Path, start: int, record: str, delimiter: str, error: csv.Error) -> DataError:
    """Return the error for a record that starts on line `start`, at the line of the faulty field."""
    position = _faulty_field(record, delimiter)
    if position is None:
        advice = "check that lines end with LF or CRLF and that the file is CSV"
        return DataError.at(path, start, f"expected a CSV record, found {excerpt(record)} ({error}); {advice}")
    line = start + record.count("\n", 0, position)
    closed = QUOTED.match(record, position)
    advice = 'close it, and write "" for a quotation mark inside a field'
    field = excerpt(record[position : position + 80].rstrip("\n"))
    if closed is None:
        limit = f" within {MAX_FIELD_CHARS:,} characters" if len(record) > MAX_FIELD_CHARS else ""
        return DataError.at(path, line, f"the quoted field that starts here, {field}, is not closed{limit}; {advice}")
    end_line = start + record.count("\n", 0, closed.end())
    rest = excerpt(record[closed.end() :].rstrip("\n"))
    problem = f"the quoted field that starts here, {field}, is closed on line {end_line} before {rest}, "
    return DataError.at(path, line, f"{problem}where {delimiter!r} or the end of the line was expected; {advice}")


def _faulty_field(record: str, delimiter: str) -> int | None:
    """Return the position of the first quoted field that is not closed, or not followed by a delimiter."""
    position = 0
    while position < len(record):
        if record[position] == '"':
            closed = QUOTED.match(record, position)
            if closed is None or record[closed.end() : closed.end() + 1] not in (delimiter, "\r", "\n", ""):
                return position
            position = closed.end() + 1
        else:
            next_field = record.find(delimiter, position)
            if next_field < 0:
                return None
            position = next_field + 1
    return None


def _detect_delimiter(path: Path, sample: list[str]) -> str:
    """Return `,` or `;`: the one that divides more records into as many fields as the first record has.

    On a tie, `;`: records with one comma each are common in files with `;` (decimal commas), not the other way round.
    """
    first = next((line for line in sample if line.strip()), ",")
    scores = {delimiter: _consistent_share(path, sample, delimiter) for delimiter in (";", ",")}
    best = max(scores, key=lambda delimiter: scores[delimiter])
    if scores[best] == 0 and not {",", ";", '"'} & set(first):
        advice = "separate the fields by one of them"
        if TAB in first:
            advice = "if the fields are separated by TABs, name the file .tsv or set data.delimiter=tab"
        raise DataError.at(path, 1, f"expected fields separated by , or ; in a CSV file, found neither; {advice}")
    return best


def _consistent_share(path: Path, sample: list[str], delimiter: str) -> float:
    """Return the share of records with as many fields, at least two, as the first record has."""
    widths: list[int] = []
    try:
        widths.extend(len(record.fields) for record in _parse_quoted(path, sample, delimiter) if record.fields)
    except DataError:
        widths.append(0)  # also for a record that continues after the sample
    return widths.count(widths[0]) / len(widths) if widths and widths[0] > 1 else 0.0


def read_parquet(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Iterate over the strings of two columns."""
    library = require_package("pyarrow", f"{path}: Parquet")
    parquet = require_package("pyarrow.parquet", f"{path}: Parquet")
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    number = 0
    try:
        with path.open("rb") as stream, parquet.ParquetFile(stream) as file:
            _check_columns(path, file.schema_arrow, columns, library)
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=list(columns), use_threads=False):
                sides = [batch.column(name).to_pylist() for name in columns]
                for first, second in zip(*sides, strict=True):
                    number += 1
                    yield _cell_text(path, number, columns[0], first), _cell_text(path, number, columns[1], second)
    except (library.ArrowException, io.UnsupportedOperation) as error:
        problem = f"expected a Parquet file ({' '.join(str(error).split())}); fetch or write the file again"
        raise DataError.at(path, number + 1, problem) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error


def _check_columns(path: Path, schema: Any, columns: tuple[str, str], library: Any) -> None:
    for name in columns:
        if schema.names.count(name) != 1:
            names = ", ".join(schema.names) or "none"
            raise DataError(f'{path}: expected one column "{name}", found the columns {names}; choose with --columns')
        kind = schema.field(name).type
        if library.types.is_dictionary(kind):
            kind = kind.value_type
        if not (library.types.is_string(kind) or library.types.is_large_string(kind)):
            raise DataError(f'{path}: expected strings in the column "{name}", found {kind}; convert it')


def _cell_text(path: Path, number: int, name: str, value: str | None) -> str:
    """Return the string of a cell, empty for a missing value; raise DataError if it contains a NUL character."""
    if value is None:
        return ""
    if "\0" in value:
        raise DataError.at(path, number, f'expected text, found a NUL character in "{name}": {excerpt(value)}')
    return value
