"""`clearhead import`: a checkpoint of another toolkit in, a model folder out."""

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Json, Settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def import_checkpoint(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Hugging Face folder, or fairseq or torch .pt file.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.", show_default=False)],
    dictionaries: Annotated[
        list[Path] | None,
        typer.Option("--dict", help="Vocabulary of the source, and of the target. [default: found near the file]"),
    ] = None,
    codes: Annotated[Path | None, typer.Option("--codes", help="BPE codes. [default: found near the file]")] = None,
    settings: Settings = [],  # noqa: B006
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint of another toolkit into a model folder, with its tokenizer and decoding settings.

    What clearhead lacks is refused by name. --set says what a bare state dict does not: --set model.num_heads=8.

    Example: clearhead import downloads/all-MiniLM-L6-v2 --out runs/minilm
    """
    from clearhead.config import parse_assignments
    from clearhead.interop.importer import ImportSource, import_checkpoint
    from clearhead.tasks.registry import get_task

    source = ImportSource(path, dictionaries or [], codes, parse_assignments(settings))
    found = import_checkpoint(source, out, overwrite)
    if found.unused_tensors:
        typer.echo(f"not used: {', '.join(found.unused_tensors)}", err=True)
    for note in found.notes:
        typer.echo(note, err=True)
    if as_json:
        facts = {"folder": str(out), "format": found.format, "parameters": found.parameters, "task": found.config.task}
        print(json.dumps({**facts, "unused_tensors": found.unused_tensors}))
        return
    print(f"{found.format}: {found.config.model.describe()}: {found.parameters:,} parameters")
    print(f"model {out}   next: clearhead {get_task(found.config.task).verb} {out}")
