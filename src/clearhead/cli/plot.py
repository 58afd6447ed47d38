"""`clearhead plot`: loss, validation score and learning rate of a run, in the terminal or as an image.

The terminal shows Braille characters, each with two columns and four rows of dots.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearhead.cli.options import Json
from clearhead.errors import ConfigError, TrainingError
from clearhead.study.harness.charts import Chart, Series

if TYPE_CHECKING:
    from clearhead.training.checkpoint.run_history import Point, RunCurves

app = typer.Typer(rich_markup_mode=None, add_completion=False)

HEIGHT = 8  # lines
MARGIN = 10  # characters for the labels of the y axis
# Bit of each dot of a character, by column and row from the top (Unicode block Braille Patterns).
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
BRAILLE = 0x2800
Cells = list[list[int]]


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a training run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write an image: .png or .svg.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plot loss, validation score and learning rate of a finished or running training.

    Example: clearhead plot runs/de --out curves.png
    """
    from clearhead.training.checkpoint.run_history import read_curves

    form = _form(out) if out else None
    curves = read_curves(folder)
    charts = _charts(curves, folder)
    if out and form:
        _write(out, charts, form)
    if as_json:
        print(json.dumps(curves.to_json(), ensure_ascii=False))
        return
    _print_charts(charts)


def _form(out: Path) -> Literal["png", "svg"]:
    if out.suffix == ".png":
        return "png"
    if out.suffix == ".svg":
        return "svg"
    raise ConfigError(f"--out {out}: expected a name that ends in .png or .svg")


def _charts(curves: "RunCurves", folder: Path) -> list[Chart]:
    """Return a chart for each quantity that the run recorded."""

    def chart(name: str, label: str, lines: "dict[str, list[Point] | tuple[Point, ...]]") -> Chart:
        series = [Series(line, [(step, [value]) for step, value in points]) for line, points in lines.items() if points]
        return Chart(name, f"{folder}: {label}", "update", label, series)

    charts = [
        chart(
            "loss",
            "loss per token",
            {"training (mean of the last updates)": list(curves.loss), "validation": list(curves.valid_loss)},
        ),
        chart("score", f"validation {curves.score_name}", {curves.score_name: list(curves.score)}),
        chart("rate", "learning rate", {"learning rate": list(curves.rate)}),
    ]
    return [chart for chart in charts if chart.series]


def _write(out: Path, charts: list[Chart], form: Literal["png", "svg"]) -> None:
    from clearhead.files import write_atomically
    from clearhead.study.harness.charts import draw_all, require_matplotlib

    require_matplotlib()
    try:
        write_atomically(out, draw_all(charts, form))
    except OSError as error:
        raise TrainingError(f"cannot write {out}: {error.strerror}; choose another file") from error
    typer.echo(f"wrote {out}", err=True)


def _print_charts(charts: list[Chart]) -> None:
    from shutil import get_terminal_size

    width = min(100, get_terminal_size().columns)
    for chart in charts:
        print("\n".join(draw(chart, width)), end="\n\n")


def draw(chart: Chart, width: int, height: int = HEIGHT) -> Iterator[str]:
    """Yield the lines of a chart: title, curves with the y axis, x axis and legend."""
    columns = max(10, width - MARGIN - 1)
    points = [point for series in chart.series for point in means(series)]
    low, high = _span([y for _, y in points])
    first, last = _span([x for x, _ in points])
    cells: Cells = [[0] * columns for _ in range(height)]
    for series in chart.series:
        _draw_line(cells, [((x - first) / (last - first), (y - low) / (high - low)) for x, y in means(series)])
    yield chart.title
    for row, line in enumerate(cells):
        label = {0: high, height // 2: (low + high) / 2, height - 1: low}.get(row)
        yield f"{'' if label is None else f'{label:.4g}':>{MARGIN}}│" + "".join(chr(BRAILLE + cell) for cell in line)
    yield " " * MARGIN + "└" + "─" * columns
    ends = f"{min(x for x, _ in points):,.0f}", f"{max(x for x, _ in points):,.0f} {chart.x_label}"
    yield " " * (MARGIN + 1) + ends[0] + ends[1].rjust(columns - len(ends[0]))
    if len(chart.series) > 1:
        yield " " * (MARGIN + 1) + "; ".join(
            f"{series.label}: {means(series)[0][1]:.4g} → {means(series)[-1][1]:.4g}" for series in chart.series
        )


def means(series: Series) -> list[tuple[float, float]]:
    """Return the points of a series by x, each with the mean over the seeds."""
    return sorted((x, math.fsum(values) / len(values)) for x, values in series.points if len(values))


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value; a single value is widened to an interval."""
    low, high = min(values), max(values)
    margin = 0.0 if high > low else abs(low) / 10 or 1.0
    return low - margin, high + margin


def _draw_line(cells: Cells, points: Sequence[tuple[float, float]]) -> None:
    """Draw a polyline into the cells; points are fractions of width and height."""
    right, top = 2 * len(cells[0]) - 1, 4 * len(cells) - 1
    dots = [(round(x * right), round((1 - y) * top)) for x, y in points]
    for (x, y), (to_x, to_y) in zip(dots, dots[1:] or dots, strict=False):
        length = max(1, abs(to_x - x), abs(to_y - y))
        for step in range(length + 1):
            column, row = round(x + (to_x - x) * step / length), round(y + (to_y - y) * step / length)
            cells[row // 4][column // 2] |= DOTS[column % 2][row % 4]
