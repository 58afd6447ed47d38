"""`clearhead classify`: lines or pictures in, labels out."""

import json
import sys

import typer

from clearhead.cli.options import Folder, Json, Pictures, Threads, use_threads
from clearhead.cli.stdin_batches import stdin_batches, with_progress

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def classify(
    folder: Folder,
    pictures: Pictures = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Give each line of standard input its label; at a terminal, a prompt to type into.

    A model for pictures is given files instead, and prints each with its label. With --json each line or picture
    gives one object with the probability of every label.

    Example: clearhead classify runs/mood < in.txt
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    model.need("classify", pictures=bool(pictures))
    if pictures:
        for path, found in zip(pictures, model.classify_pictures(pictures), strict=True):
            record = {"picture": str(path), **found.to_json()}
            print(json.dumps(record, ensure_ascii=False) if as_json else f"{path}\t{found.label}")
        return
    first = 1
    for lines in with_progress(stdin_batches()):
        for line, found in zip(lines, model.classify_many(lines, first), strict=True):
            print(json.dumps({"text": line, **found.to_json()}, ensure_ascii=False) if as_json else found.label)
        sys.stdout.flush()
        first += len(lines)
