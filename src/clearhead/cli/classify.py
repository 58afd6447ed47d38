"""`clearhead classify`: label lines of standard input, or images."""

import json
from collections.abc import Iterator

import typer

from clearhead.cli.options import (
    ComputeType,
    EngineName,
    Folder,
    Images,
    Json,
    LongLines,
    Threads,
    use_threads,
    warn_untrained,
)
from clearhead.cli.stdin_batches import answer_lines, one_line

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def classify(
    folder: Folder,
    images: Images = None,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Classify each line of standard input; at a terminal, prompt for lines.

    For an image model, name the image files instead; each is printed with its label. With --json each line or image
    gives one object with the probability of every label. An empty line gives an empty label. A long line is split into
    parts, whose log-probabilities are averaged.

    Example: clearhead classify runs/mood < in.txt
    """
    from clearhead.api import load
    from clearhead.tasks.long_texts import LongTexts

    use_threads(threads)
    model = load(folder, engine=engine, compute_type=compute_type)
    model.require_task("classify", images=bool(images))
    warn_untrained(model)
    if images:
        for path, prediction in zip(images, model.classify_images(images), strict=True):
            record = {"image": str(path), **prediction.to_json()}
            print(json.dumps(record, ensure_ascii=False) if as_json else f"{path}\t{prediction.label}")
        return
    long_texts = LongTexts(long_lines)

    def answer(lines: list[str], first: int) -> Iterator[str]:
        for line, prediction in zip(lines, model.classify_many(lines, first, long_texts=long_texts), strict=True):
            record = {"text": line, **prediction.to_json()}
            yield json.dumps(record, ensure_ascii=False) if as_json else one_line(prediction.label)

    answer_lines(answer, long_texts)
