"""`clearhead plot`: the curves of a training."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearhead.cli.options import Json
from clearhead.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from clearhead.study.harness.charts import Chart
    from clearhead.training.checkpoint.run_history import Curves, Point

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, as in --out.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Picture to write: .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Draw how a training went: loss, validation score and learning rate, also while it runs.

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
    _show(charts)


def _form(out: Path) -> Literal["png", "svg"]:
    if out.suffix == ".png":
        return "png"
    if out.suffix == ".svg":
        return "svg"
    raise ConfigError(f"--out {out}: expected a name that ends in .png or .svg")


def _charts(curves: "Curves", folder: Path) -> "list[Chart]":
    """One for each kind of number; what was never noted has none."""
    from clearhead.study.harness.charts import Chart, Series

    def chart(name: str, label: str, lines: "dict[str, list[Point] | tuple[Point, ...]]") -> "Chart":
        series = [Series(line, [(step, [value]) for step, value in points]) for line, points in lines.items() if points]
        return Chart(name, f"{folder}: {label}", "update", label, series)

    found = [
        chart(
            "loss",
            "loss a token",
            {"training (mean of the last updates)": list(curves.loss), "validation": list(curves.valid_loss)},
        ),
        chart("score", f"validation {curves.score_name}", {curves.score_name: list(curves.score)}),
        chart("rate", "learning rate", {"learning rate": list(curves.rate)}),
    ]
    return [one for one in found if one.series]


def _write(out: Path, charts: "list[Chart]", form: Literal["png", "svg"]) -> None:
    from clearhead.files import write_atomically
    from clearhead.study.harness.charts import draw_all, require_matplotlib

    require_matplotlib()
    try:
        write_atomically(out, draw_all(charts, form))
    except OSError as error:
        raise TrainingError(f"cannot write {out}: {error.strerror}; choose another file") from error


def _show(charts: "list[Chart]") -> None:
    from shutil import get_terminal_size

    from clearhead.cli.curves import draw

    width = min(100, get_terminal_size().columns)
    for one in charts:
        print("\n".join(draw(one, width)), end="\n\n")
