"""Heat maps of attention heads: selection of heads, labels, colors, and images in SVG or PNG.

The module imports matplotlib only to draw an image.

T queries (rows), S keys (columns)
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clearhead.errors import InspectionError
from clearhead.extras import require_package
from clearhead.inspection.trace.head_ref import ATTENTION_KINDS, AttentionKind, HeadRef
from clearhead.inspection.trace.trace_types import Bools, Floats, TokenSpan, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Nine equidistant colors of viridis (matplotlib, CC0), which is perceptually uniform: equal differences of weight look
# equally large, also in grayscale.
PALETTE = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
LABEL_INCHES = 0.24  # height of a labelled row, width of a labelled column
THUMBNAIL_INCHES = 1.6  # width and height of a map in an image of several maps
MAX_LABELS = 80  # more labels would overlap


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Attention weights of one head with labels. Rows are queries, columns are keys.

    A row of the decoder is labelled with the token that it predicts.
    """

    head_ref: HeadRef
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    weights_TS: Floats
    allowed_TS: Bools


def default_kind(trace: Trace, kind: str | None = None) -> AttentionKind:
    """Return `kind` if the model has it; without `kind`, the last of encoder, decoder, cross that it has.

    Raises InspectionError for a kind that the model does not have.
    """
    available = [name for name in ATTENTION_KINDS if name in trace.kinds]
    if not available:
        raise InspectionError("this model has no attention to inspect; --json prints its output")
    if kind is None:
        return available[-1]
    for name in available:
        if name == kind:
            return name
    raise InspectionError(f"expected a kind of attention that this model has ({', '.join(available)}), got {kind!r}")


def heat_maps(trace: Trace, kind: AttentionKind, layer: int | None = None, head: int | None = None) -> list[HeatMap]:
    """Return the maps of one kind of attention, of all layers and heads or of a given layer or head.

    Raises InspectionError if the model has no such layer or head.
    """
    layers = trace.layers(kind)
    trace.weights(kind, 0 if layer is None else layer, 0 if head is None else head)  # raises if there is none
    rows = _labels(trace.source if kind == "encoder" else trace.outputs)
    columns = _labels(trace.key_positions(kind))
    return [
        HeatMap(HeadRef(kind, attention.layer, number), rows, columns, weights_TS, attention.allowed_TS)
        for attention in layers
        if layer is None or attention.layer == layer
        for number, weights_TS in enumerate(attention.weights_HTS)
        if head is None or number == head
    ]


def most_focused(trace: Trace, maps: Sequence[HeatMap]) -> HeatMap:
    """Return the map whose rows are most concentrated on one word: the highest mean of the rows' largest weights.

    Weights on special tokens do not count: heads often attend to the end token if no word is relevant to them.
    """
    key_positions = trace.key_positions(default_kind(trace, maps[0].head_ref.name))
    is_word_S = [not position.is_special for position in key_positions]
    if not any(is_word_S):
        return maps[0]
    return max(maps, key=lambda heat_map: float(heat_map.weights_TS[:, is_word_S].max(1).mean()))


def weight_color(weight: float) -> tuple[int, int, int]:
    """Return red, green and blue (0 to 255) for a weight from 0 to 1."""
    position = min(max(weight, 0.0), 1.0) * (len(PALETTE) - 1)
    below = min(int(position), len(PALETTE) - 2)
    low, high = (_channels(PALETTE[number]) for number in (below, below + 1))
    red, green, blue = (round(a + (b - a) * (position - below)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _channels(code: str) -> tuple[int, int, int]:
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def _labels(positions: Sequence[TokenSpan]) -> tuple[str, ...]:
    return tuple(position.text for position in positions)


def draw_heat_maps(maps: Sequence[HeatMap], title: str, image_format: Literal["svg", "png"]) -> bytes:
    """Return the content of an image file: one map with labels, or several small maps with one row per layer."""
    require_package("matplotlib", "drawing an image")
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    colormap = LinearSegmentedColormap.from_list("clearhead", list(PALETTE)).with_extremes(bad="#d0d0d0")  # masked
    by_layer: dict[int, list[HeatMap]] = {}
    for heat_map in maps:
        by_layer.setdefault(heat_map.head_ref.layer, []).append(heat_map)
    num_columns = max(map(len, by_layer.values()))
    figure = Figure(figsize=_figure_size(maps, len(by_layer), num_columns), layout="constrained")
    grid = figure.subplots(len(by_layer), num_columns, squeeze=False)
    for axes_row, (_, layer_maps) in zip(grid, sorted(by_layer.items()), strict=True):
        for column, axes in enumerate(axes_row):
            if column < len(layer_maps):
                _draw_map(axes, layer_maps[column], colormap, has_labels=len(maps) == 1)
            else:
                axes.set_axis_off()
    figure.suptitle(title, fontsize=9, wrap=True).set_parse_math(False)
    content = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "clearhead"}):
        warnings.filterwarnings("ignore", message="Glyph")  # matplotlib warns of missing glyphs and draws boxes
        metadata = {"Date": None} if image_format == "svg" else None
        figure.savefig(content, format=image_format, dpi=150, metadata=metadata)
    return content.getvalue()


def _figure_size(maps: Sequence[HeatMap], num_rows: int, num_columns: int) -> tuple[float, float]:
    """Return the width and height of the image in inches."""
    if len(maps) > 1:
        return max(4.0, THUMBNAIL_INCHES * num_columns), 0.6 + THUMBNAIL_INCHES * num_rows
    rows, columns = (min(length, MAX_LABELS) for length in maps[0].weights_TS.shape)
    return 2.5 + LABEL_INCHES * columns, 2.0 + LABEL_INCHES * rows


def _draw_map(axes: "Axes", heat_map: HeatMap, colormap: Any, has_labels: bool) -> None:
    weights_TS = np.ma.masked_array(heat_map.weights_TS, ~heat_map.allowed_TS)
    image = axes.imshow(weights_TS, cmap=colormap, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_title(str(heat_map.head_ref), fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    if has_labels:
        _add_labels(axes, heat_map)
        figure = axes.get_figure()
        assert figure is not None
        figure.colorbar(image, ax=axes, label="attention weight")


def _add_labels(axes: "Axes", heat_map: HeatMap) -> None:
    """Add the labels of rows and columns as plain text, because matplotlib parses text between `$` as mathematics."""
    if len(heat_map.column_labels) <= MAX_LABELS:
        axes.set_xticks(range(len(heat_map.column_labels)), heat_map.column_labels, rotation=90, fontsize=8)
    if len(heat_map.row_labels) <= MAX_LABELS:
        axes.set_yticks(range(len(heat_map.row_labels)), heat_map.row_labels, fontsize=8)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
