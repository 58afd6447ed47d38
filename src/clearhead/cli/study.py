"""`clearhead study`: measure a claim; print a table and a verdict by a rule that was fixed in advance; draw plots."""

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
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the study. [default: list all]")] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="Time on 2 cores for the default number of seeds; more seeds take longer. [default: by study]",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Number of seeds. [default: by study]")] = None,
    full: Annotated[bool, typer.Option("--full", help="Run the long version.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for results and plots. [default: studies/NAME]")
    ] = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Measure a claim about Transformers: table, plots, raw results, and a verdict by a rule fixed in advance.

    An interrupted study resumes; a larger --seeds adds seeds to the existing results.

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

    listed = [sizes[size] for sizes in STUDIES.values()]  # type: ignore[index]
    if as_json:
        record = [
            {"name": one.info.name, "claim_id": one.info.claim_id, "claim": one.info.claim, "minutes": one.minutes,
             "seeds": one.seeds, "rule": [each.statement for each in one.info.rule.requirements]} for one in listed
        ]  # fmt: skip
        print(json.dumps(record, ensure_ascii=False))
        return
    for one in listed:
        print(f"{one.info.name:<12} {one.info.claim_id:<4} {one.minutes:>4.0f} min  {one.info.claim}")
    print(f"all {len(listed)}: at most {sum(one.minutes for one in listed):,.0f} minutes on 2 cores", file=sys.stderr)


def _show(results: "Results") -> None:
    from rich.console import Console

    from clearhead.study.harness.results import fit_width, table_rows, verdict_lines

    console = Console(highlight=False, markup=False)
    console.print(_grid(fit_width(table_rows(results), console.width)))
    for more in results.study.info.tables(results.findings):
        console.print(f"\n{more.title}")
        console.print(_grid(more.rows))
    print("\n" + "\n".join(verdict_lines(results)))
    print(f"results and plots saved to {results.folder}", file=sys.stderr)


def _grid(rows: Sequence[Sequence[str]]) -> "Table":
    """Return a table; the first row is the header."""
    from rich.table import Table

    heading, *body = rows
    table = Table(*heading, box=None, pad_edge=False)
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
        """Print how many cells were measured before."""
        self._bar.console.print(f"{done} of {total} cells were measured before", markup=False)

    def cell_started(self, cell: "Cell", done: int, total: int, seconds_left: float) -> None:
        """Show the cell that is measured now."""
        from clearhead.cli.progress_display import format_remaining_time

        self._cell, self._total = f"{done + 1}/{total}  {cell}", total
        if self._is_plain:
            print(f"{self._cell}  {format_remaining_time(seconds_left)} left", file=sys.stderr, flush=True)
        self._bar.update(
            self._task, total=total, description=f"{self._cell}  {format_remaining_time(seconds_left)} left"
        )

    def progress(self, done: float, seconds_left: float) -> None:
        """Move the bar."""
        from clearhead.cli.progress_display import format_remaining_time

        text = f"{self._cell}  {format_remaining_time(seconds_left)} left"
        self._bar.update(self._task, completed=done, total=self._total, description=text)
