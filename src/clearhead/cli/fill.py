"""`clearhead fill`: predict masked words."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import ComputeType, EngineName, Folder, Json, LongLines, Threads, use_threads, warn_untrained
from clearhead.cli.stdin_batches import answer_lines, one_line

if TYPE_CHECKING:
    from clearhead.tasks.masked_lm.inference import MaskFilling

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def fill(
    folder: Folder,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Text with [MASK] or <mask> for each missing word. [default: stdin]"),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of predictions per mask.")] = 5,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Predict the masked words of a text, or of each line of standard input; a mask is filled with one token.

    Each prediction is printed as one line: the probability, the word, and the text with this mask filled and the other
    masks unchanged. If a text has several masks, the line begins with the number of the mask. The predictions for one
    text form a block, empty if it has no mask; an empty line separates blocks. With --json each text gives one list.

    Example: clearhead fill runs/mlm "The [MASK] sat."
    """
    from clearhead.api import load
    from clearhead.tasks.long_texts import LongTexts
    from clearhead.tasks.masked_lm.inference import MASK_PATTERN

    use_threads(threads)
    model, long_texts = load(folder, engine=engine, compute_type=compute_type), LongTexts(long_lines)
    model.require_task("fill")
    warn_untrained(model)
    if text is not None:
        print(*_output_lines(model.fill(text, top, long_texts=long_texts), as_json), sep="\n")
        if long_texts.count:
            print(long_texts.report(), file=sys.stderr)
        return
    without_mask = 0

    def answer(lines: list[str], first: int) -> Iterator[str]:
        nonlocal without_mask
        without_mask += sum(bool(line.strip()) and not MASK_PATTERN.search(line) for line in lines)
        for number, masks in enumerate(model.fill_many(lines, top, first, long_texts=long_texts), first):
            if number > 1 and not as_json:
                yield ""
            yield from _output_lines(masks, as_json)

    answer_lines(answer, long_texts)
    if without_mask:
        lines = "1 line has" if without_mask == 1 else f"{without_mask:,} lines have"
        print(f"{lines} no mask; write [MASK] for each missing word, as in: The [MASK] sat.", file=sys.stderr)


def _output_lines(masks: "list[list[MaskFilling]]", as_json: bool) -> list[str]:
    """Return the output lines of one text."""
    fillings = [filling for mask in masks for filling in mask]
    if as_json:
        return [json.dumps([filling.to_json() for filling in fillings], ensure_ascii=False)]
    numbers = [f"{filling.mask}  " if len(masks) > 1 else "" for filling in fillings]
    return [
        one_line(f"{number}{filling.probability:.2f}  {filling.word}  {filling.text}")
        for number, filling in zip(numbers, fillings, strict=True)
    ]
