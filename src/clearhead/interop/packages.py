"""Packages that only some users have installed."""

import importlib
from typing import Any

from clearhead.errors import InteropError


def library(name: str) -> Any:
    """A package by name; where it is missing, the sentence says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        extra = name.partition(".")[0].removesuffix("runtime")
        raise InteropError(f"this needs the package {error.name}; pip install 'clearhead[{extra}]'") from error
