"""`clearhead data`: generate data, and manage cached corpora."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Json
from clearhead.errors import ConfigError

HELP = "Generate data (the built-in English-German corpus, or handwritten digits), or list cached corpora."
app = typer.Typer(help=HELP, rich_markup_mode=None, add_completion=False)


@app.callback(help=f"{HELP}\n\nExample: clearhead data grammar --pairs 20000 --out pairs.tsv")
def data() -> None:
    """Group of the subcommands."""


@app.command()
def grammar(
    out: Annotated[Path, typer.Option("--out", help=".tsv: source TAB target; .jsonl: all fields.")],
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Number of sentence pairs.")] = 20000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed.")] = 1,
    split: Annotated[str, typer.Option("--split", help="train, valid, test, test_unseen or test_pronoun.")] = "train",
    distance: Annotated[
        str,
        typer.Option(
            "--distance", metavar="LOW-HIGH", help='Only sentences in which "it" is LOW to HIGH words after its noun.'
        ),
    ] = "",
) -> None:
    """Write sentence pairs of the built-in grammar; .jsonl includes gold alignments.

    Example: clearhead data grammar --pairs 20000 --out pairs.tsv
    """
    from clearhead import grammar as builtin

    if split not in builtin.SPLITS:
        raise ConfigError(f"unknown split {split!r}; expected one of {', '.join(builtin.SPLITS)}.")
    if out.suffix not in {".tsv", ".jsonl"}:
        raise ConfigError(f"--out {out}: expected a name that ends in .tsv or .jsonl.")
    write_grammar(out, pairs, seed, split, _parse_distance(distance))


@app.command()
def digits(
    out: Annotated[Path, typer.Option("--out", help="New or empty folder for one sub-folder per digit.")],
    captions: Annotated[
        Path | None,
        typer.Option(
            "--captions",
            help="Also write this .tsv table: image TAB English and German name, such as: seven sieben.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write scikit-learn's handwritten digits (8x8 pixels, greyscale) as PNG files.

    Example: clearhead data digits --out digits --captions captions.tsv
    """
    from clearhead.data.readers.images import write_digits

    if captions is not None and captions.suffix != ".tsv":
        raise ConfigError(f"--captions {captions}: expected a name that ends in .tsv.")
    count = write_digits(out)
    if captions is not None:
        write_captions(out, captions)
    typer.echo(f"{count:,} images in {out}", err=True)


@app.command()
def cached(
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the listed corpora; a training prepares them again when needed.")
    ] = False,
    days: Annotated[
        float, typer.Option("--days", min=0, help="Only corpora that were not used for this number of days.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """List or remove prepared corpora: trainings on large files cache them in the user's cache folder.

    Example: clearhead data cached --days 30 --remove
    """
    from clearhead.data.corpus.corpus_cache import list_cached_corpora

    corpora = [corpus for corpus in list_cached_corpora() if corpus.days_unused >= days]
    for corpus in corpora:
        if remove:
            corpus.remove()
        if not as_json:
            size = f"{corpus.num_bytes / 2**20:,.0f} MiB"
            source_files = ", ".join(corpus.files) or "unknown files"
            typer.echo(
                f"{corpus.folder}  {corpus.records:,} records, {size}, {corpus.days_unused:.0f} days unused: "
                f"{source_files}"
            )
    if as_json:
        typer.echo(json.dumps([corpus.to_json() for corpus in corpora], ensure_ascii=False))
    total = sum(corpus.num_bytes for corpus in corpora) / 2**20
    typer.echo(f"{len(corpora)} corpora, {total:,.0f} MiB{' removed' if remove else ''}", err=True)


def write_captions(folder: Path, captions: Path) -> None:
    """Write a table of the images in a folder of digits, each with its name in English and German."""
    from clearhead.data.readers.images import DIGIT_NAMES
    from clearhead.files import write_atomically

    lines = []
    for path in sorted(folder.glob("[0-9]/*.png")):
        names = " ".join(DIGIT_NAMES[language][int(path.parent.name)] for language in ("en", "de"))
        lines.append(f"{os.path.relpath(path, captions.parent)}\t{names}\n")
    try:
        write_atomically(captions, "".join(lines))
    except OSError as error:
        raise ConfigError(f"cannot write {captions}: {error.strerror}") from error


def _parse_distance(text: str) -> tuple[int, int] | None:
    """Return `2-60` as two numbers; None for an empty text."""
    if not text:
        return None
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and 2 <= int(low) <= int(high) <= 60):
        raise ConfigError(f"--distance {text}: expected LOW-HIGH between 2 and 60, such as 16-60.")
    return int(low), int(high)


def write_grammar(out: Path, pairs: int, seed: int, split: str, distance: tuple[int, int] | None = None) -> None:
    """Write sentence pairs and show a progress bar; `out` is replaced only when all of them are written."""
    from clearhead import grammar as builtin
    from clearhead.cli.progress_display import progress_bar
    from clearhead.files import replace_file

    examples = builtin.generate(pairs, seed, split, distance)
    try:
        with replace_file(out) as temporary, temporary.open("w", encoding="utf-8") as file, progress_bar() as bar:
            for example in bar.track(examples, total=pairs, description="sentences"):
                if out.suffix == ".tsv":
                    file.write(f"{example.source}\t{example.target}\n")
                else:
                    file.write(json.dumps(example.to_json(), ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error
