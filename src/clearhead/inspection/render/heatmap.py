"""Attention as maps to be drawn, whatever draws them: which heads, what stands at rows and columns, which colours.

T rows, S columns
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.errors import InspectionError
from clearhead.inspection.trace.head_ref import KINDS, HeadRef, Kind
from clearhead.inspection.trace.trace_types import Bools, Floats, TokenSpan, Trace

# Viridis at equal steps (matplotlib, CC0): even steps of weight look like even steps of colour, in grey too.
PALETTE = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


@dataclass(frozen=True, eq=False)
class HeatMap:
    """One head. A row is a query; where something is written, it is called by what the step writes."""

    part: HeadRef
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    weights_TS: Floats
    allowed_TS: Bools


def default_kind(trace: Trace, kind: str | None = None) -> Kind:
    """The kind that was asked for; otherwise from the target to the source where there is such attention."""
    there = [one for one in KINDS if one in trace.kinds]
    if not there:
        raise InspectionError("this model has no attention to look at; its output can be had with --json")
    if kind is None:
        return there[-1]
    for one in there:
        if one == kind:
            return one
    raise InspectionError(f"expected a kind of attention that this model has ({', '.join(there)}), got {kind!r}")


def heat_maps(trace: Trace, kind: Kind, layer: int | None = None, head: int | None = None) -> list[HeatMap]:
    """The maps of a kind, of one layer or of one head of each layer where they are named; refuses what is not there."""
    layers = trace.layers(kind)
    trace.weights(kind, 0 if layer is None else layer, 0 if head is None else head)
    rows = _labels(trace.source if kind == "encoder" else trace.outputs)
    columns = _labels(trace.columns(kind))
    return [
        HeatMap(HeadRef(kind, one.layer, number), rows, columns, weights_TS, one.allowed_TS)
        for one in layers
        if layer is None or one.layer == layer
        for number, weights_TS in enumerate(one.weights_HTS)
        if head is None or number == head
    ]


def clearest(trace: Trace, maps: Sequence[HeatMap]) -> HeatMap:
    """The head that points most clearly at words: the highest mean over the rows of the largest weight on one."""
    is_word_S = [not place.is_special for place in trace.columns(default_kind(trace, maps[0].part.name))]
    if not any(is_word_S):
        return maps[0]
    return max(maps, key=lambda one: float(one.weights_TS[:, is_word_S].max(1).mean()))


def colour(weight: float) -> tuple[int, int, int]:
    """Red, green and blue of a weight from 0 to 1."""
    place = min(max(weight, 0.0), 1.0) * (len(PALETTE) - 1)
    below = min(int(place), len(PALETTE) - 2)
    low, high = (_channels(PALETTE[number]) for number in (below, below + 1))
    red, green, blue = (round(a + (b - a) * (place - below)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _channels(code: str) -> tuple[int, int, int]:
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def _labels(places: Sequence[TokenSpan]) -> tuple[str, ...]:
    return tuple(place.text for place in places)
