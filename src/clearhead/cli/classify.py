"""`clearhead classify`: lines in, labels out."""

import json
import sys

import typer

from clearhead.cli.options import Folder, Json, Threads, use_threads
from clearhead.cli.stream import given_lines

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def classify(folder: Folder, as_json: Json = False, threads: Threads = 0) -> None:
    """Give each line of standard input its label; at a terminal, a prompt to type into.

    With --json each line gives one object with the probability of every label.

    Example: clearhead classify runs/mood < in.txt
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    model.need("classify")
    first = 1
    for lines in given_lines():
        for line, found in zip(lines, model.classify_many(lines, first), strict=True):
            print(json.dumps({"text": line, **found.to_json()}, ensure_ascii=False) if as_json else found.label)
        sys.stdout.flush()
        first += len(lines)
