"""Pictures as data: lines over an axis, with what the seeds span. How they look is `drawing`'s business.

Charts as PNG and SVG by matplotlib: lines differ in style, marker and shade, so that grey print and the
colour-blind tell them apart.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clearhead.extras import require_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Series:
    """One line: at each x one value a seed; the line goes through their means, the band from lowest to highest."""

    label: str
    points: Sequence[tuple[float, Sequence[float]]]


@dataclass(frozen=True)
class Chart:
    """One picture. With `ticks` the x axis has names; `is_joined` where their order means something."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] = ()
    is_joined: bool = True


# Okabe and Ito's colours, in an order in which neighbours differ in lightness too.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
MOST_MARKERS = 60  # more would lie over each other
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")


def require_matplotlib() -> None:
    """Raise an error before the work starts if charts cannot be drawn."""
    require_package("matplotlib", "drawing an image")


def draw(chart: Chart, form: Literal["png", "svg"]) -> bytes:
    """The picture's bytes; the same chart gives the same bytes."""
    return draw_all([chart], form)


def draw_all(charts: Sequence[Chart], form: Literal["png", "svg"]) -> bytes:
    """Several charts below each other in one picture."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4 if len(charts) == 1 else 3.0 * len(charts)), layout="constrained")
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        _draw_chart(axes, chart)
    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clearhead"}):
        figure.savefig(written, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return written.getvalue()


def _draw_chart(axes: "Axes", chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, series in enumerate(chart.series):
        _draw_series(axes, series, number, chart.is_joined)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), chart.ticks, rotation=20 if len(chart.ticks) > 5 else 0)
    elif not chart.log_x and all(x == int(x) for series in chart.series for x, _ in series.points):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.grid(alpha=0.3)
    if len(chart.series) > 1:
        axes.legend(fontsize=8)


def _draw_series(axes: "Axes", series: Series, number: int, is_joined: bool) -> None:
    """The means, and what the seeds span where they differ: a line and a band, or points and bars."""
    points = [(x, values) for x, values in sorted(series.points, key=lambda one: one[0]) if len(values)]
    xs = [x for x, _ in points]
    means = [math.fsum(values) / len(values) for _, values in points]
    lows, highs = [min(values) for _, values in points], [max(values) for _, values in points]
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    if not is_joined:
        spans = [[mean - low for mean, low in zip(means, lows, strict=True)],
                 [high - mean for mean, high in zip(means, highs, strict=True)]]  # fmt: skip
        axes.errorbar(xs, means, spans, fmt=marker, color=colour, label=series.label, markersize=7, capsize=4)
        return
    style = STYLES[number % len(STYLES)]
    shown_marker = marker if len(points) <= MOST_MARKERS else None
    axes.plot(xs, means, label=series.label, color=colour, linestyle=style, marker=shown_marker, markersize=5)
    if any(len(values) > 1 for _, values in points):
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
