"""`clearhead tag`: mark spans in lines of standard input."""

import json
from collections.abc import Iterator

import typer

from clearhead.cli.options import ComputeType, EngineName, Folder, Json, LongLines, Threads, use_threads, warn_untrained
from clearhead.cli.stdin_batches import answer_lines

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def tag(
    folder: Folder,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    r"""Mark names and other spans in each line of standard input, as in "[Nairobi LOC] grows".

    Brackets and backslashes that occur in the text are printed as \[, \] and \\. With --json each line gives one
    object with the spans and the words, each with its start and end in the line, in characters from 0. A long line is
    processed in overlapping windows.

    Example: clearhead tag runs/names < in.txt
    """
    from clearhead.api import load
    from clearhead.tasks.long_texts import LongTexts

    use_threads(threads)
    model, long_texts = load(folder, engine=engine, compute_type=compute_type), LongTexts(long_lines)
    model.require_task("tag")
    warn_untrained(model)

    def answer(lines: list[str], first: int) -> Iterator[str]:
        for tagged in model.tag_many(lines, first, long_texts=long_texts):
            yield json.dumps(tagged.to_json(), ensure_ascii=False) if as_json else str(tagged)

    answer_lines(answer, long_texts)
