"""`clearhead embed`: lines in, vectors out."""

import json
import sys
from typing import Annotated

import typer

from clearhead.cli.options import Folder, Json, Threads, use_threads
from clearhead.cli.stdin_batches import stdin_batches, with_progress

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def embed(
    folder: Folder,
    unit: Annotated[bool, typer.Option("--unit", help="Scale every vector to length 1.")] = False,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Give each line of standard input its vector: the mean of the encoder's states, as numbers with spaces between.

    Any model with a text encoder will do. With --json each line gives one object, {"embedding": [...]}.

    Example: clearhead embed runs/minilm --json < in.txt
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    first = 1
    for lines in with_progress(stdin_batches()):
        for vector_D in model.embed_many(lines, unit=unit, first_line=first):
            numbers = vector_D.tolist()
            print(json.dumps({"embedding": numbers}) if as_json else " ".join(f"{number:.6g}" for number in numbers))
        sys.stdout.flush()
        first += len(lines)
