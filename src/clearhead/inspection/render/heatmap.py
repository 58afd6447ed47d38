"""Attention as maps to be drawn, whatever draws them: which heads, what stands at rows and columns, which colours.

T rows, S columns

Heat maps as SVG or PNG, by matplotlib, which is imported only here and only when a picture is drawn.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clearhead.errors import InspectionError
from clearhead.extras import require_package
from clearhead.inspection.trace.head_ref import KINDS, HeadRef, Kind
from clearhead.inspection.trace.trace_types import Bools, Floats, TokenSpan, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


CELL = 0.24  # inches that a labelled row or column takes
SMALL = 1.6  # inches that a map takes among others
MOST_LABELS = 80  # more would lie over each other


def draw(maps: Sequence[HeatMap], title: str, form: Literal["svg", "png"]) -> bytes:
    """One map with its words, or many small ones in rows of a layer each."""
    require_package("matplotlib", "drawing an image")
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    shades = LinearSegmentedColormap.from_list("clearhead", list(PALETTE)).with_extremes(bad="#d0d0d0")  # masked
    layers = sorted({one.part.layer for one in maps})
    widest = max(sum(one.part.layer == layer for one in maps) for layer in layers)
    figure = Figure(figsize=_size(maps, len(layers), widest), layout="constrained")
    grid = figure.subplots(len(layers), widest, squeeze=False)
    for row, layer in enumerate(layers):
        here = [one for one in maps if one.part.layer == layer]
        for column, axes in enumerate(grid[row]):
            if column < len(here):
                _draw_one(axes, here[column], shades, has_labels=len(maps) == 1)
            else:
                axes.set_axis_off()
    figure.suptitle(title, fontsize=9, wrap=True).set_parse_math(False)
    written = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "clearhead"}):
        warnings.filterwarnings("ignore", message="Glyph")  # what the font lacks is drawn as a box
        figure.savefig(written, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return written.getvalue()


def _size(maps: Sequence[HeatMap], num_rows: int, num_columns: int) -> tuple[float, float]:
    if len(maps) > 1:
        return max(4.0, SMALL * num_columns), 0.6 + SMALL * num_rows
    rows, columns = (min(length, MOST_LABELS) for length in maps[0].weights_TS.shape)
    return 2.5 + CELL * columns, 2.0 + CELL * rows


def _draw_one(axes: "Axes", one: HeatMap, shades: Any, has_labels: bool) -> None:
    weights_TS = np.ma.masked_array(one.weights_TS, ~one.allowed_TS)
    image = axes.imshow(weights_TS, cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_title(str(one.part), fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    if has_labels:
        _label(axes, one)
        figure = axes.get_figure()
        assert figure is not None
        figure.colorbar(image, ax=axes, label="attention weight")


def _label(axes: "Axes", one: HeatMap) -> None:
    """Words beside the rows and under the columns, never read as mathematics."""
    if len(one.column_labels) <= MOST_LABELS:
        axes.set_xticks(range(len(one.column_labels)), one.column_labels, rotation=90, fontsize=8)
    if len(one.row_labels) <= MOST_LABELS:
        axes.set_yticks(range(len(one.row_labels)), one.row_labels, fontsize=8)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
