"""`clearhead translate`: translate lines of standard input, or caption images."""

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
    DecodingSettings,
    EngineName,
    Exclude,
    Folder,
    Images,
    Include,
    Json,
    LongLines,
    NBest,
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

Prefix = Annotated[str | None, typer.Option("--prefix", help="Text that every translation must begin with.")]
Sample = Annotated[
    bool, typer.Option("--sample", help="Sample instead of beam search; settings: --set decoding.sampling.FIELD.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Random seed for --sample. [default: 0]")]
Stream = Annotated[bool, typer.Option("--stream", help="Print each translation while it is generated.")]
Split = Annotated[
    bool,
    typer.Option(
        "--split/--no-split",
        help="Translate each sentence of a line separately, if the model was trained on sentences.",
    ),
]
ShortlistFile = Annotated[
    Path | None,
    typer.Option("--shortlist", metavar="FILE", help="Vocabulary shortlist written by `clearhead shortlist`."),
]


@app.command()
def translate(
    folder: Folder,
    images: Images = None,
    beam: Beam = None,
    tag: Tag = "",
    n_best: NBest = 1,
    prefix: Prefix = None,
    include: Include = None,
    exclude: Exclude = None,
    sample: Sample = False,
    seed: Seed = None,
    alternatives: Alternatives = None,
    stream: Stream = False,
    split: Split = True,
    long_lines: LongLines = "split",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    shortlist: ShortlistFile = None,
    as_json: Json = False,
    settings: DecodingSettings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Translate each line of standard input; at a terminal, prompt for lines.

    A model trained on single sentences translates the sentences of a line separately and joins the translations. For a
    captioning model, name the image files instead. With --n-best N each line or image gives N output lines; if search
    finds fewer hypotheses, the remaining lines are empty. With --json each line or image gives one object:
    `unmet_constraints` lists the constraints of --prefix, --include and --exclude that the output violates, and `parts`
    the parts of a line that was split. With --n-best, --prefix, --include, --alternatives-at or --stream, long lines
    are skipped instead of split.

    Example: clearhead translate runs/de < in.txt > out.txt
    """
    from clearhead.api import load
    from clearhead.api.translation import can_be_split
    from clearhead.tasks.long_texts import LongTexts

    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    model.require_task("translate", images=bool(images))
    loaded_shortlist = None if shortlist is None else model.load_shortlist(shortlist)
    options = _OutputOptions(n_best, alternatives, stream, as_json, loaded_shortlist, split)
    options.check(bool(images))
    overrides = {"prefix": prefix, "include": include or None, "exclude": exclude or None,
             "method": "sample" if sample else None, "sampling": None if seed is None else {"seed": seed}}  # fmt: skip
    decoding = model.decoding(**decoding_settings(settings, beam, overrides))
    if alternatives is None:
        model.check_n_best(n_best, decoding)
    inference_engine = model.engine(token_log_probs=as_json)
    warn_untrained(model)
    if images:
        _caption(model, images, decoding, options)
    else:
        is_unsplittable = stream or alternatives is not None or not can_be_split(n_best, decoding)
        long_texts = LongTexts("skip" if long_lines == "split" and is_unsplittable else long_lines)
        _answer_lines(model, decoding, inference_engine, options, long_texts)


@dataclass(frozen=True)
class _OutputOptions:
    """Options that select the hypotheses to print and their format."""

    n_best: int
    alternatives: int | None
    stream: bool
    as_json: bool
    shortlist: "Shortlist | None"
    split: bool

    def check(self, has_images: bool) -> None:
        """Raise DecodingError for options that exclude each other."""
        is_special = self.stream or self.alternatives is not None
        if is_special and has_images:
            raise DecodingError("--stream and --alternatives-at need text input, not images; leave them out")
        if self.stream and (self.n_best > 1 or self.alternatives is not None):
            raise DecodingError(
                "--stream prints one translation; leave out --n-best and --alternatives-at, or --stream"
            )
        if self.shortlist is not None and (is_special or has_images):
            raise DecodingError(
                "--shortlist needs text input, without --stream and --alternatives-at; leave one of them out"
            )


def _caption(model: "Model", images: list[Path], decoding: "DecodingConfig", options: _OutputOptions) -> None:
    for path, hypotheses in zip(images, model.caption_images(images, options.n_best, decoding), strict=True):
        print(*_format(str(path), hypotheses, options), sep="\n")


def _answer_lines(
    model: "Model", decoding: "DecodingConfig", engine: "Engine", options: _OutputOptions, long_texts: "LongTexts"
) -> None:
    from clearhead.engines.constrained_decoding import NoSuchPositionError
    from clearhead.tasks.generated_text import Translation

    def translations(lines: list[str], first: int) -> Iterator[str]:
        results = model.translate_n_best(
            lines,
            options.n_best,
            decoding,
            first,
            engine,
            options.shortlist,
            split=options.split,
            long_texts=long_texts,
        )
        for line, hypotheses in zip(lines, results, strict=True):
            yield from _format(line, hypotheses, options)

    def alternatives(lines: list[str], first: int) -> Iterator[str]:
        assert options.alternatives is not None
        for number, line in enumerate(lines, first):
            try:
                hypotheses = model.alternatives(
                    line, options.alternatives, options.n_best, settings=decoding, line=number, long_texts=long_texts
                )
            except NoSuchPositionError as error:
                print(error, file=sys.stderr)
                hypotheses = [Translation.skipped()]
            yield from _format(line, hypotheses, options)

    def streamed(lines: list[str], first: int) -> Iterator[str]:
        for number, line in enumerate(lines, first):
            yield from _stream(model, line, decoding, number, options, long_texts)

    if options.stream:
        answer_lines(streamed, long_texts, max_lines=1)
    else:
        answer_lines(translations if options.alternatives is None else alternatives, long_texts)


def _format(line: str, hypotheses: "list[Translation]", options: _OutputOptions) -> list[str]:
    """Return the output lines of one input line."""
    if not options.as_json:
        return [one_line(each.text) for each in hypotheses] + [""] * (options.n_best - len(hypotheses))
    record = {"source": line, **hypotheses[0].to_json()}
    if len(hypotheses) > 1:
        record["n_best"] = [each.to_json() for each in hypotheses]
    return [json.dumps(record, ensure_ascii=False)]


def _stream(
    model: "Model", line: str, decoding: "DecodingConfig", number: int, options: _OutputOptions, long_texts: "LongTexts"
) -> Iterator[str]:
    """Print a translation while it is generated and yield an empty string, which ends its line.

    With JSON, yield an object per part and one for the whole translation instead.
    """
    parts = model.stream_translation(line, settings=decoding, line=number, split=options.split, long_texts=long_texts)
    while True:
        try:
            part = next(parts)
        except StopIteration as done:
            yield from _format(line, [done.value], options) if options.as_json else [""]
            return
        if options.as_json:
            yield json.dumps({"part": part}, ensure_ascii=False)
        else:
            sys.stdout.write(one_line(part))
        sys.stdout.flush()
