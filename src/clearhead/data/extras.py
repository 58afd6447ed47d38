"""Packages that only some formats of data need."""

import importlib
from pathlib import Path
from typing import Any

from clearhead.errors import DataError


def needed(module: str, extra: str, path: Path | str, format_name: str) -> Any:
    """A package by name; where it is missing, the sentence says which file needs it and how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path}: {format_name} needs the package {error.name}; pip install 'clearhead[{extra}]', "
            "or convert the file to a plain one"
        ) from error
