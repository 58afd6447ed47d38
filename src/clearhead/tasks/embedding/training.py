"""Embeddings are not trained by themselves."""

from typing import Any, NoReturn

from clearhead.errors import TaskError


def read(*_: Any) -> NoReturn:
    """Raise TaskError: nothing is learned from texts alone here."""
    raise TaskError("embeddings are not trained; train --task mlm on text, or --task classify --from this model")


make = read
