"""Checks of the texts that users pass to the API."""

from collections.abc import Sequence
from typing import Any

from clearhead.data.tokenizer.training import encodable
from clearhead.errors import DataError


def check_text(text: Any) -> str:
    """Return the text; raise DataError if it is not a str, TokenizerError if it has half a surrogate pair."""
    if not isinstance(text, str):
        raise DataError(f"expected a text (str), got {type(text).__name__}")
    return encodable(text)


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list; raise DataError if they are not a list or tuple of str."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise DataError(f"expected a text (str) or a list of texts, got {type(texts).__name__}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"expected a list of texts, item {number} is of type {type(text).__name__}")
        encodable(text)
    return list(texts)
