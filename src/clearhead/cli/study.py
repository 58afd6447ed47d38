"""`clearhead study`: test a claim in an experiment; print a table and the verdict of its decision rule; draw plots."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Json, Threads, use_threads

if TYPE_CHECKING:
    from rich.table import Table

    from clearhead.study.harness.protocol import Cell
    from clearhead.study.harness.results import Results

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the study. [default: list all]")] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="Time on 2 cores for the default number of seeds; more seeds take longer. [default: set by the study]",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Number of seeds. [default: set by the study]")] = None,
    full: Annotated[bool, typer.Option("--full", help="Run the full size, with more data and seeds (hours).")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for results and plots. [default: studies/NAME]")
    ] = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Test a claim about Transformers in an experiment: a table, plots, raw results and a verdict.

    The verdict follows from a decision rule that was fixed before the experiment. To resume an interrupted study, run
    the same command again; a larger --seeds adds seeds to the existing results.

    Example: clearhead study order --out studies/order
    """
    from clearhead.study import registry
    from clearhead.study.harness import runner

    size: registry.Size = "full" if full else "default"
    if not name:
        _list(size, as_json)
        return
    use_threads(threads)
    chosen = registry.get_study(name, size)
    plan = runner.make_plan(chosen, size, minutes, seeds)
    with _ProgressDisplay() as display:
        results = runner.run(chosen, out or Path("studies") / name, plan, display, threads)
    if as_json:
        print(json.dumps(results.to_json(), ensure_ascii=False))
    else:
        _show(results)


def _list(size: str, as_json: bool) -> None:
    from clearhead.study.registry import STUDIES

    studies = [sizes[size] for sizes in STUDIES.values()]  # type: ignore[index]
    if as_json:
        records = [
            {"name": study.info.name, "claim_id": study.info.claim_id, "claim": study.info.claim,
             "minutes": study.minutes, "seeds": study.seeds,
             "rule": [requirement.statement for requirement in study.info.rule.requirements]} for study in studies
        ]  # fmt: skip
        print(json.dumps(records, ensure_ascii=False))
        return
    for study in studies:
        print(f"{study.info.name:<12} {study.info.claim_id:<4} {study.minutes:>4.0f} min  {study.info.claim}")
    minutes = sum(study.minutes for study in studies)
    print(f"all {len(studies)}: at most {minutes:,.0f} minutes on 2 cores", file=sys.stderr)


def _show(results: "Results") -> None:
    from rich.console import Console

    from clearhead.study.harness.results import fit_width, table_rows, verdict_lines

    console = Console(highlight=False, markup=False)
    console.print(_grid(fit_width(table_rows(results), console.width)))
    for table in results.study.info.tables(results.findings):
        console.print(f"\n{table.title}")
        console.print(_grid(table.rows))
    print("\n" + "\n".join(verdict_lines(results)))
    print(f"results and plots saved to {results.folder}", file=sys.stderr)


def _grid(rows: Sequence[Sequence[str]]) -> "Table":
    """Return a table; the first row is the header."""
    from rich.table import Table

    header, *body = rows
    table = Table(*header, box=None, pad_edge=False)
    for row in body:
        table.add_row(*row)
    return table


class _ProgressDisplay:
    """Progress on stderr: a bar with the remaining time on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn

        from clearhead.cli.progress_display import stderr_progress

        console = Console(stderr=True, highlight=False)
        columns = (BarColumn(24), TextColumn("{task.description}"))
        self._bar = stderr_progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._is_plain, self._cell, self._total = not console.is_terminal, "", 0

    def __enter__(self) -> "_ProgressDisplay":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def resumed(self, done: int, total: int) -> None:
        """Print the number of cells (a condition with a seed) that an earlier run measured."""
        self._bar.console.print(f"resuming: {done} of {total} cells are already measured", markup=False)

    def cell_started(self, cell: "Cell", done: int, total: int, seconds_left: float) -> None:
        """Show the cell that is being measured."""
        self._cell, self._total = f"{done + 1}/{total}  {cell}", total
        text = self._describe(seconds_left)
        if self._is_plain:
            print(text, file=sys.stderr, flush=True)
        self._bar.update(self._task, total=total, description=text)

    def progress(self, done: float, seconds_left: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=self._total, description=self._describe(seconds_left))

    def _describe(self, seconds_left: float) -> str:
        """Return the current cell and the remaining time of the study."""
        from clearhead.cli.progress_display import format_remaining_time

        return f"{self._cell}  {format_remaining_time(seconds_left)} left"
