"""JSON form of result dataclasses: an object with all fields in their order, nested results included."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

_KEY = "json"
OMIT_IF_EMPTY: Mapping[str, str] = {_KEY: "omit if empty"}
"""Metadata of a field that is left out if it is empty: `field(default=(), metadata=OMIT_IF_EMPTY)`."""
INLINE: Mapping[str, str] = {_KEY: "inline"}
"""Metadata of a field whose own fields become fields of the object that contains it."""


class JsonResult:
    """Mixin of dataclasses that programs read."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return fields_to_json(self)


def fields_to_json(result: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a JSON object."""
    record: dict[str, Any] = {}
    for field in fields(result):
        value, form = getattr(result, field.name), field.metadata.get(_KEY)
        if form == INLINE[_KEY]:
            record |= to_json(value)
        elif form != OMIT_IF_EMPTY[_KEY] or value:
            record[field.name] = to_json(value)
    return record


def to_json(value: Any) -> Any:
    """Return a value in types that `json.dumps` accepts: results as objects, arrays and sequences as lists."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, Path):
        return str(value)
    return value.tolist()  # an array
