"""`clearhead translate`: lines or images in, translations or captions out."""

import json
import sys
from collections.abc import Iterator
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
    LongLines,
    NBest,
    Pictures,
    Settings,
    Tag,
    Threads,
    decoding_settings,
    use_threads,
    warn_untrained,
)
from clearhead.cli.stdin_batches import answer_lines, one_line
from clearhead.errors import DecodingError

if TYPE_CHECKING:
    from clearhead.api import Model, Translation
    from clearhead.config import DecodingConfig
    from clearhead.data.shortlist import Shortlist
    from clearhead.engines.engine import Engine
    from clearhead.tasks.long_texts import LongTexts

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def translate(
    folder: Folder,
    pictures: Pictures = None,
    beam: Beam = None,
    tag: Tag = "",
    n_best: NBest = 1,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Beginning of every translation.")] = None,
    include: Include = None,
    exclude: Exclude = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching; see decoding.sampling.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of --sample: the same seed, the same text.")] = None,
    alternatives: Alternatives = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each translation while it is generated.")] = False,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Translate each sentence of a line separately, if trained so.")
    ] = True,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    shortlist: Annotated[
        Path | None, typer.Option("--shortlist", metavar="FILE", help="Made by `clearhead shortlist`; faster.")
    ] = None,
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Translate lines from standard input, in order; at a terminal, prompt for lines.

    A model trained on single sentences translates the sentences of a line one by one and joins the translations.
    Captioning models take image files instead. With --n-best N each line or image gives N lines, empty ones if fewer
    were found. With --json each gives one object, in which `unmet` names the words of --include and --exclude that it
    does not satisfy, and `parts` the parts of a line that was split. With --n-best, --prefix, --include,
    --alternatives-at and --stream long lines are skipped instead of split.

    Example: clearhead translate runs/de < in.txt > out.txt
    """
    from clearhead.api import load
    from clearhead.api.translation import can_be_split
    from clearhead.tasks.long_texts import LongTexts

    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    model.require_task("translate", images=bool(pictures))
    listed = None if shortlist is None else model.load_shortlist(shortlist)
    how = _How(n_best, alternatives, stream, as_json, listed, split)
    how.check(bool(pictures))
    given = {"prefix": prefix, "include": include or None, "exclude": exclude or None,
             "method": "sample" if sample else None, "sampling": None if seed is None else {"seed": seed}}  # fmt: skip
    decoding = model.decoding(**decoding_settings(settings, beam, given))
    if alternatives is None:
        model.check_n_best(n_best, decoding)
    chosen = model.engine(token_log_probs=as_json)
    warn_untrained(model)
    if pictures:
        _answer_pictures(model, pictures, decoding, how)
    else:
        is_whole = stream or alternatives is not None or not can_be_split(n_best, decoding)
        long_texts = LongTexts("skip" if long_lines == "split" and is_whole else long_lines)
        _answer_lines(model, decoding, chosen, how, long_texts)


@dataclass(frozen=True)
class _How:
    """Options about the translations and their output."""

    n_best: int
    alternatives: int | None
    stream: bool
    as_json: bool
    shortlist: "Shortlist | None"
    split: bool

    def check(self, has_pictures: bool) -> None:
        """Refuses what does not go together."""
        is_special = self.stream or self.alternatives is not None
        if is_special and has_pictures:
            raise DecodingError("--stream and --alternatives-at are for lines of text, not for images; leave them out")
        if self.stream and (self.n_best > 1 or self.alternatives is not None):
            raise DecodingError("--stream shows one translation; leave out --n-best and --alternatives-at, or --stream")
        if self.shortlist is not None and (is_special or has_pictures):
            raise DecodingError(
                "--shortlist is for lines of text, without --stream and --alternatives-at; leave one of them out"
            )


def _answer_pictures(model: "Model", pictures: list[Path], decoding: "DecodingConfig", how: _How) -> None:
    for path, found in zip(pictures, model.caption_images(pictures, how.n_best, decoding), strict=True):
        print(*_shown(str(path), found, how), sep="\n")


def _answer_lines(
    model: "Model", decoding: "DecodingConfig", engine: "Engine", how: _How, long_texts: "LongTexts"
) -> None:
    from clearhead.engines.constrained_decoding import NoSuchPositionError
    from clearhead.tasks.translation.result import SKIPPED

    def translated(lines: list[str], first: int) -> Iterator[str]:
        answers = model.translate_n_best(
            lines, how.n_best, decoding, first, engine, how.shortlist, split=how.split, long_texts=long_texts
        )
        for line, found in zip(lines, answers, strict=True):
            yield from _shown(line, found, how)

    def alternatives(lines: list[str], first: int) -> Iterator[str]:
        assert how.alternatives is not None
        for number, line in enumerate(lines, first):
            try:
                found = model.alternatives(
                    line, how.alternatives, how.n_best, settings=decoding, line=number, long_texts=long_texts
                )
            except NoSuchPositionError as error:
                print(error, file=sys.stderr)
                found = [SKIPPED]
            yield from _shown(line, found, how)

    def streamed(lines: list[str], first: int) -> Iterator[str]:
        for number, line in enumerate(lines, first):
            yield from _stream(model, line, decoding, number, how, long_texts)

    if how.stream:
        answer_lines(streamed, long_texts, max_lines=1)
    else:
        answer_lines(translated if how.alternatives is None else alternatives, long_texts)


def _shown(line: str, found: "list[Translation]", how: _How) -> list[str]:
    """Return the output lines of one input line."""
    if not how.as_json:
        return [one_line(one.text) for one in found] + [""] * (how.n_best - len(found))
    record = {"source": line, **found[0].to_json()}
    if len(found) > 1:
        record["n_best"] = [one.to_json() for one in found]
    return [json.dumps(record, ensure_ascii=False)]


def _stream(
    model: "Model", line: str, decoding: "DecodingConfig", number: int, how: _How, long_texts: "LongTexts"
) -> Iterator[str]:
    """Print a translation in parts and yield the end of its line; with JSON yield an object per part and the whole."""
    parts = model.stream_translation(line, settings=decoding, line=number, split=how.split, long_texts=long_texts)
    while True:
        try:
            part = next(parts)
        except StopIteration as done:
            yield from _shown(line, [done.value], how) if how.as_json else [""]
            return
        if how.as_json:
            yield json.dumps({"part": part}, ensure_ascii=False)
        else:
            sys.stdout.write(one_line(part))
        sys.stdout.flush()
