"""JSON of result dataclasses: field order, omitted and inlined fields, and values of all types."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clearhead.json_format import INLINE, OMIT_IF_EMPTY, JsonResult


@dataclass(frozen=True)
class Inner:
    score: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer(JsonResult):
    text: str
    inner: Inner
    inline: Inner = field(metadata=INLINE)
    parts: tuple[Inner, ...] = field(default=(), metadata=OMIT_IF_EMPTY)
    empty: tuple[Inner, ...] = ()


def test_fields_keep_their_order_and_empty_ones_may_be_omitted() -> None:
    record = Outer("a", Inner(0.5), Inner(1.5, ("b",))).to_json()
    assert json.dumps(record) == (
        '{"text": "a", "inner": {"score": 0.5, "names": []}, "score": 1.5, "names": ["b"], "empty": []}'
    )
    split = Outer("a", Inner(0.5), Inner(1.5), parts=(Inner(2.5),)).to_json()
    assert split["parts"] == [{"score": 2.5, "names": []}]


def test_arrays_paths_and_mappings_become_json() -> None:
    @dataclass(frozen=True)
    class Values(JsonResult):
        array: np.ndarray
        path: Path
        mapping: dict[str, Inner]
        number: np.float32
        nothing: None = None

    values = Values(np.arange(3), Path("a/b"), {"x": Inner(0.5)}, np.float32(0.25))
    assert json.loads(json.dumps(values.to_json())) == {
        "array": [0, 1, 2],
        "path": "a/b",
        "mapping": {"x": {"score": 0.5, "names": []}},
        "number": 0.25,
        "nothing": None,
    }
