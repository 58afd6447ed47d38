"""`clearhead embed`: sentence embeddings of lines of standard input."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from clearhead.cli.options import ComputeType, EngineName, Folder, Json, LongLines, Threads, use_threads
from clearhead.cli.stdin_batches import answer_lines

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def embed(
    folder: Folder,
    unit: Annotated[bool, typer.Option("--unit", help="Scale every embedding to length 1.")] = False,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Compute the sentence embedding of each line of standard input: the mean of the encoder states.

    Numbers are separated by spaces; an empty line gives an empty line. With --json each line gives one object,
    {"embedding": [...]}, with null for an empty line. Any model with a text encoder can be used. The embedding of a
    long line is the mean over its parts, weighted by length.

    Example: clearhead embed runs/minilm --json < in.txt
    """
    from clearhead.api import load
    from clearhead.tasks.long_texts import LongTexts

    use_threads(threads)
    model, long_texts = load(folder, engine=engine, compute_type=compute_type), LongTexts(long_lines)

    def answer(lines: list[str], first: int) -> Iterator[str]:
        for embedded in model.embed_texts(lines, unit=unit, first_line=first, long_texts=long_texts):
            numbers = [] if embedded.embedding is None else embedded.embedding.tolist()
            yield json.dumps(embedded.to_json()) if as_json else " ".join(f"{number:.6g}" for number in numbers)

    answer_lines(answer, long_texts)
