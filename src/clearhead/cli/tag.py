"""`clearhead tag`: lines in, lines with marked spans out."""

import json
import sys

import typer

from clearhead.cli.options import Folder, Json, Threads, use_threads
from clearhead.cli.stdin_batches import stdin_batches, with_progress

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def tag(folder: Folder, as_json: Json = False, threads: Threads = 0) -> None:
    r"""Mark names and other spans in each line of standard input, as in "[Nairobi LOC] grows".

    Brackets and backslashes of the text itself come out as \[, \] and \\. With --json each line gives one object
    with the spans and the words, each with its place in the line, counted in characters from 0.

    Example: clearhead tag runs/names < in.txt
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    model.need("tag")
    first = 1
    for lines in with_progress(stdin_batches()):
        for found in model.tag_many(lines, first):
            print(json.dumps(found.to_json(), ensure_ascii=False) if as_json else found)
        sys.stdout.flush()
        first += len(lines)
