"""`clearhead translate`: lines or pictures in, lines out."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import (
    Alternatives,
    Beam,
    ComputeType,
    EngineName,
    Exclude,
    Folder,
    Include,
    Json,
    NBest,
    Pictures,
    Settings,
    Tag,
    Threads,
    decoding_settings,
    use_threads,
)
from clearhead.cli.stdin_batches import MAX_LINES, stdin_batches, with_progress
from clearhead.errors import DecodingError

if TYPE_CHECKING:
    from clearhead.api import Model, Translation
    from clearhead.config import DecodingConfig
    from clearhead.data.shortlist import Shortlist
    from clearhead.decoding.engine import Engine

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def translate(
    folder: Folder,
    pictures: Pictures = None,
    beam: Beam = None,
    tag: Tag = "",
    n_best: NBest = 1,
    prefix: Annotated[str | None, typer.Option("--prefix", help="What every translation begins with.")] = None,
    include: Include = None,
    exclude: Exclude = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching; see decoding.sampling.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of --sample: the same seed, the same text.")] = None,
    alternatives: Alternatives = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print a line while it is written.")] = False,
    engine: EngineName = "torch",
    compute_type: ComputeType = "float32",
    shortlist: Annotated[
        Path | None, typer.Option("--shortlist", metavar="FILE", help="Made by `clearhead shortlist`; faster.")
    ] = None,
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

    use_threads(threads)
    model = load(folder, tag)
    model.need("translate", pictures=bool(pictures))
    how = _How(n_best, alternatives, stream, as_json, None if shortlist is None else model.load_shortlist(shortlist))
    how.check(engine, bool(pictures))
    given = {"prefix": prefix, "include": include or None, "exclude": exclude or None,
             "method": "sample" if sample else None, "sampling": None if seed is None else {"seed": seed}}  # fmt: skip
    decoding = model.decoding(**decoding_settings(settings, beam, given))
    if alternatives is None:
        model.check_n_best(n_best, decoding)
    chosen = model.engine(engine, compute_type, as_json, how.shortlist)
    chosen.run([], decoding)  # refuses at once what it cannot honour
    for note in chosen.notes(decoding):
        typer.echo(note, err=True)
    if pictures:
        _answer_pictures(model, pictures, decoding, how)
    else:
        _answer_lines(model, decoding, chosen, how)


@dataclass(frozen=True)
class _How:
    """What is printed of the translations, and when."""

    n_best: int
    alternatives: int | None
    stream: bool
    as_json: bool
    shortlist: "Shortlist | None"

    def check(self, engine: str, has_pictures: bool) -> None:
        """Refuses what does not go together."""
        is_special = self.stream or self.alternatives is not None
        if is_special and has_pictures:
            raise DecodingError(
                "--stream and --alternatives-at are for lines of text, not for pictures; leave them out"
            )
        if self.stream and (self.n_best > 1 or self.alternatives is not None):
            raise DecodingError("--stream shows one translation; leave out --n-best and --alternatives-at, or --stream")
        if is_special and engine != "torch":
            raise DecodingError(f"--stream and --alternatives-at need --engine torch, not {engine}")
        if self.shortlist is not None and (is_special or has_pictures):
            raise DecodingError(
                "--shortlist is for lines of text, without --stream and --alternatives-at; leave one of them out"
            )


def _answer_pictures(model: "Model", pictures: list[Path], decoding: "DecodingConfig", how: _How) -> None:
    for path, found in zip(pictures, model.caption_pictures(pictures, how.n_best, decoding), strict=True):
        _show(str(path), found, how)


def _answer_lines(model: "Model", decoding: "DecodingConfig", engine: "Engine", how: _How) -> None:
    first = 1
    for lines in with_progress(stdin_batches(1 if how.stream else MAX_LINES)):
        if how.stream:
            _stream(model, lines[0], decoding, first, how)
        elif how.alternatives is not None:
            for number, line in enumerate(lines, first):
                found = model.alternatives(line, how.alternatives, how.n_best, settings=decoding, line=number)
                _show(line, found, how)
        else:
            answers = model.translate_n_best(lines, how.n_best, decoding, first, engine, how.shortlist)
            for line, found in zip(lines, answers, strict=True):
                _show(line, found, how)
        sys.stdout.flush()
        first += len(lines)


def _show(line: str, found: "list[Translation]", how: _How) -> None:
    if how.as_json:
        best = found[0].to_json()
        record = {"source": line, **best}
        if len(found) > 1:
            record["n_best"] = [one.to_json() for one in found]
        print(json.dumps(record, ensure_ascii=False))
    else:
        for text in [one.text for one in found] + [""] * (how.n_best - len(found)):
            print(text)


def _stream(model: "Model", line: str, decoding: "DecodingConfig", number: int, how: _How) -> None:
    """One line, part by part; with JSON an object for each part, and at last the whole."""
    parts = model.stream_translation(line, settings=decoding, line=number)
    while True:
        try:
            part = next(parts)
        except StopIteration as done:
            if how.as_json:
                _show(line, [done.value], how)
            else:
                print()
            return
        print(json.dumps({"part": part}, ensure_ascii=False) if how.as_json else part, end="\n" if how.as_json else "")
        sys.stdout.flush()
