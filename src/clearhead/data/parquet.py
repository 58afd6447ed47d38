"""Parquet files, a few thousand rows at a time; rows are counted from 1, as lines are."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.extras import require_package
from clearhead.data.lines import excerpt
from clearhead.errors import DataError

ROWS = 4096


def read_parquet(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The strings of two columns, row by row."""
    library = require_package("pyarrow", f"{path}: Parquet")
    parquet = require_package("pyarrow.parquet", f"{path}: Parquet")
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    number = 0
    try:
        with path.open("rb") as stream, parquet.ParquetFile(stream) as file:
            _check_columns(path, file.schema_arrow, columns, library)
            for batch in file.iter_batches(batch_size=ROWS, columns=list(columns), use_threads=False):
                sides = [batch.column(name).to_pylist() for name in columns]
                for first, second in zip(*sides, strict=True):
                    number += 1
                    yield _text(path, number, columns[0], first), _text(path, number, columns[1], second)
    except (library.ArrowException, io.UnsupportedOperation) as error:
        problem = f"expected a Parquet file ({' '.join(str(error).split())}); fetch or write the file again"
        raise DataError.at(path, number + 1, problem) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error


def _check_columns(path: Path, schema: Any, columns: tuple[str, str], library: Any) -> None:
    for name in columns:
        if schema.names.count(name) != 1:
            found = ", ".join(schema.names) or "none"
            raise DataError(f'{path}: expected one column "{name}", found the columns {found}; choose with --columns')
        kind = schema.field(name).type
        if library.types.is_dictionary(kind):
            kind = kind.value_type
        if not (library.types.is_string(kind) or library.types.is_large_string(kind)):
            raise DataError(f'{path}: expected strings in the column "{name}", found {kind}; convert it')


def _text(path: Path, number: int, name: str, value: str | None) -> str:
    """A row without a value is as an empty line; one with the end of a line in it is as it would be in no text file."""
    if value is None:
        return ""
    if "\0" in value:
        raise DataError.at(path, number, f'expected text, found a NUL character in "{name}": {excerpt(value)}')
    return value
