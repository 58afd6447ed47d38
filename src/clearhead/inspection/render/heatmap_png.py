"""Heat maps as SVG or PNG, by matplotlib, which is imported only here and only when a picture is drawn."""

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clearhead.extras import require_package
from clearhead.inspection.render.heatmap import PALETTE, HeatMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
