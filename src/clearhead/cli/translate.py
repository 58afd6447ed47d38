"""`clearhead translate`: lines or pictures in, lines out."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clearhead.cli.options import (
    Beam,
    ComputeType,
    Folder,
    Json,
    Pictures,
    Settings,
    Tag,
    Threads,
    decoding_settings,
    use_threads,
)
from clearhead.cli.stream import counted, given_lines

if TYPE_CHECKING:
    from clearhead.api import Model, Translation
    from clearhead.config import DecodingConfig

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Words = list[str] | None


@app.command()
def translate(
    folder: Folder,
    pictures: Pictures = None,
    beam: Beam = None,
    tag: Tag = "",
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="Translations of each line.")] = 1,
    prefix: Annotated[str | None, typer.Option("--prefix", help="What every translation begins with.")] = None,
    include: Annotated[Words, typer.Option("--include", metavar="WORD", help="Must be in it; repeatable.")] = None,
    exclude: Annotated[Words, typer.Option("--exclude", metavar="WORD", help="Must not be in it; repeatable.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching; see decoding.sampling.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of --sample: the same seed, the same text.")] = None,
    alternatives: Annotated[
        int | None,
        typer.Option("--alternatives-at", metavar="PLACE", min=0, help="Other pieces there, --n-best of them."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print a line while it is written.")] = False,
    engine: Annotated[
        Literal["torch", "ctranslate2"], typer.Option("--engine", help="What searches; ctranslate2: fast on a CPU.")
    ] = "torch",
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Translate lines from standard input, in order; at a terminal, a prompt to type into.

    A model for captions is given pictures as files instead. With --n-best N each line or picture gives N lines, empty
    ones where fewer were found. With --json each gives one object, in which `unmet` names the words of --include and
    --exclude that it does not meet.
    --engine ctranslate2 converts the model once and keeps the result in DIR/cache.

    Example: clearhead translate runs/de < in.txt > out.txt
    """
    from clearhead.api import load
    from clearhead.errors import DecodingError

    use_threads(threads)
    model = load(folder, tag)
    model.need("translate", pictures=bool(pictures))
    if (stream or alternatives is not None) and pictures:
        raise DecodingError("--stream and --alternatives-at are for lines of text, not for pictures; leave them out")
    if stream and (n_best > 1 or alternatives is not None):
        raise DecodingError("--stream shows one translation; leave out --n-best and --alternatives-at, or --stream")
    given = {"prefix": prefix, "include": include or None, "exclude": exclude or None}
    sampling = {"method": "sample"} if sample else {}
    if seed is not None:
        sampling["sampling"] = {"seed": seed}  # type: ignore[assignment]
    decoding = model.decoding(**decoding_settings(settings, beam, {**given, **sampling}))
    if alternatives is None:
        model.check_n_best(n_best, decoding)
    if engine != "torch" and (stream or alternatives is not None):
        raise DecodingError(f"--stream and --alternatives-at need --engine torch, not {engine}")
    chosen = model.engine(engine, compute_type, token_log_probs=as_json)
    chosen.run([], decoding)  # refuses at once what it cannot honour
    for note in chosen.notes(decoding):
        typer.echo(note, err=True)
    if pictures:
        for path, found in zip(pictures, model.caption_pictures(pictures, n_best, decoding), strict=True):
            _show(str(path), found, n_best, as_json)
        return
    first = 1
    for lines in counted(given_lines(1 if stream else None)):
        if stream:
            _stream(model, lines[0], decoding, first, as_json)
        elif alternatives is not None:
            for number, line in enumerate(lines, first):
                found = model.alternatives(line, alternatives, n_best, settings=decoding, line=number)
                _show(line, found, n_best, as_json)
        else:
            for line, found in zip(lines, model.translate_n_best(lines, n_best, decoding, first, chosen), strict=True):
                _show(line, found, n_best, as_json)
        sys.stdout.flush()
        first += len(lines)


def _show(line: str, found: "list[Translation]", n_best: int, as_json: bool) -> None:
    if as_json:
        best = found[0].to_json()
        record = {"source": line, **best}
        if len(found) > 1:
            record["n_best"] = [one.to_json() for one in found]
        print(json.dumps(record, ensure_ascii=False))
    else:
        for text in [one.text for one in found] + [""] * (n_best - len(found)):
            print(text)


def _stream(model: "Model", line: str, decoding: "DecodingConfig", number: int, as_json: bool) -> None:
    """One line, part by part; with JSON an object for each part, and at last the whole."""
    parts = model.stream_translation(line, settings=decoding, line=number)
    while True:
        try:
            part = next(parts)
        except StopIteration as done:
            if as_json:
                _show(line, [done.value], 1, as_json)
            else:
                print()
            return
        print(json.dumps({"part": part}, ensure_ascii=False) if as_json else part, end="\n" if as_json else "")
        sys.stdout.flush()
