"""Line charts as data (series over an axis, one value per seed) and their rendering to PNG and SVG by matplotlib.

Lines differ in style, marker and lightness, so that charts stay readable in grayscale and for color-blind readers.
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
    """One line. Each point is an x value with one y value per seed; the line is their mean, the band their range."""

    label: str
    points: Sequence[tuple[float, Sequence[float]]]


@dataclass(frozen=True)
class Chart:
    """One chart. `ticks` are the names on a categorical x axis; with `is_joined=False` points are not joined by lines,
    for categories without an order."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] = ()
    is_joined: bool = True


# The palette of Okabe and Ito, ordered so that neighbors also differ in lightness.
COLORS = ("#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F")
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
MAX_MARKERS = 60  # markers of longer series would overlap
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")


def require_matplotlib() -> None:
    """Raise MissingPackageError if charts cannot be drawn; to be called before long computations."""
    require_package("matplotlib", "drawing an image")


def draw(chart: Chart, form: Literal["png", "svg"]) -> bytes:
    """Return the chart as an image file; equal charts give equal bytes."""
    return draw_all([chart], form)


def draw_all(charts: Sequence[Chart], form: Literal["png", "svg"]) -> bytes:
    """Return an image file with several charts, one below the other."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4 if len(charts) == 1 else 3.0 * len(charts)), layout="constrained")
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        _draw_chart(axes, chart)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clearhead"}):
        figure.savefig(buffer, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()


def _draw_chart(axes: "Axes", chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    for index, series in enumerate(chart.series):
        _draw_series(axes, series, index, chart.is_joined)
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


def _draw_series(axes: "Axes", series: Series, index: int, is_joined: bool) -> None:
    """Draw the means and the range over the seeds: a line with a band, or points with error bars."""
    points = [(x, values) for x, values in sorted(series.points, key=lambda point: point[0]) if len(values)]
    xs = [x for x, _ in points]
    means = [math.fsum(values) / len(values) for _, values in points]
    lows, highs = [min(values) for _, values in points], [max(values) for _, values in points]
    color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
    if not is_joined:
        errors = [[mean - low for mean, low in zip(means, lows, strict=True)],
                  [high - mean for mean, high in zip(means, highs, strict=True)]]  # fmt: skip
        axes.errorbar(xs, means, errors, fmt=marker, color=color, label=series.label, markersize=7, capsize=4)
        return
    style = LINE_STYLES[index % len(LINE_STYLES)]
    shown_marker = marker if len(points) <= MAX_MARKERS else None
    axes.plot(xs, means, label=series.label, color=color, linestyle=style, marker=shown_marker, markersize=5)
    if any(len(values) > 1 for _, values in points):
        axes.fill_between(xs, lows, highs, color=color, alpha=0.15, linewidth=0)
