"""`clearhead fill`: text with gaps in, what fits into them out."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Folder, Json, Threads, use_threads
from clearhead.cli.stdin_batches import stdin_batches, with_progress

if TYPE_CHECKING:
    from clearhead.tasks.filling import Filling

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def fill(
    folder: Folder,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Text with [MASK] or <mask> in each gap. [default: standard input]"),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Fillings of each gap.")] = 5,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Fill the gaps of a text, or of each line of standard input; a gap is filled with one piece of the vocabulary.

    Each filling is a line: its probability, the piece, and the text with it, where other gaps stay open. A text with
    several gaps has the number of the gap before that. With --json each text gives one list.

    Example: clearhead fill runs/mlm "The [MASK] sat."
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    model.need("fill")
    if text is not None:
        _show(model.fill(text, top), as_json)
        return
    number = 0
    for lines in with_progress(stdin_batches()):
        for line in lines:
            number += 1
            if number > 1 and not as_json:
                print()
            _show(model.fill(line, top, f"line {number}"), as_json)
        sys.stdout.flush()


def _show(gaps: "list[list[Filling]]", as_json: bool) -> None:
    """The fillings of one text."""
    fillings = [filling for gap in gaps for filling in gap]
    if as_json:
        print(json.dumps([filling.to_json() for filling in fillings], ensure_ascii=False))
        return
    for filling in fillings:
        number = f"{filling.gap}  " if len(gaps) > 1 else ""
        print(f"{number}{filling.probability:.2f}  {filling.word}  {filling.text}")
