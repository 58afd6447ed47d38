"""`clearhead runs`: list of the training runs below a folder."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Json

if TYPE_CHECKING:
    from clearhead.training.checkpoint.run_history import RunStatus

TABLE_WIDTH = 240  # characters, if the output is not a terminal

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", help="Folders to search for runs. [default: current folder]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List training runs with their state, number of updates, best score, training time and number of parameters.

    Example: clearhead runs runs
    """
    from clearhead.training.checkpoint.run_history import find_runs

    statuses = find_runs(folders or [Path()])
    if as_json:
        print(json.dumps([status.to_json() for status in statuses], ensure_ascii=False))
        return
    if not statuses:
        print(f"no training runs found in {', '.join(map(str, folders or ())) or 'the current folder'}")
        return
    _print_table(statuses)


def _print_table(statuses: "list[RunStatus]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    for name in ("task", "state", "updates", "best score", "minutes", "parameters"):
        table.add_column(name, justify="left" if name in ("task", "state") else "right", no_wrap=True)
    for status in statuses:
        table.add_row(*_cells(status))
    is_terminal = sys.stdout.isatty()
    Console(highlight=False, markup=False, width=None if is_terminal else TABLE_WIDTH).print(table)
    for status in statuses:
        if status.problem:
            print(f"{status.folder}: {status.problem}")


def _cells(run: "RunStatus") -> list[str]:
    """Return the cells of a run; unknown values are empty."""
    updates = "" if run.step is None else f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else "")
    score = "" if run.score is None else f"{run.score_name} {run.score:.2f}"
    minutes = "" if run.minutes is None else f"{run.minutes:.1f}"
    parameters = "" if run.parameters is None else f"{run.parameters:,}"
    return [run.folder, run.task or "", run.state, updates, score, minutes, parameters]
