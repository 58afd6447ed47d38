"""`clearhead import`: convert a checkpoint of another toolkit into a model folder."""

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
        typer.Argument(metavar="PATH", help="Hugging Face folder, or fairseq or PyTorch .pt file.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.", show_default=False)],
    dictionaries: Annotated[
        list[Path] | None,
        typer.Option(
            "--dict", help="Vocabulary file of the source, then of the target. [default: search next to PATH]"
        ),
    ] = None,
    codes: Annotated[
        Path | None, typer.Option("--codes", help="File with BPE codes. [default: search next to PATH]")
    ] = None,
    settings: Settings = [],  # noqa: B006
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint of another toolkit, with its tokenizer and decoding settings, into a model folder.

    A checkpoint with an unsupported setting is refused, and the error names the setting. A PyTorch state dict contains
    no settings: --set model.num_heads=8 and --dict are then required.

    Example: clearhead import downloads/all-MiniLM-L6-v2 --out runs/minilm
    """
    from clearhead.config import parse_assignments
    from clearhead.interop.importer import ImportSource, import_checkpoint
    from clearhead.tasks.registry import get_task

    source = ImportSource(path, dictionaries or [], codes, parse_assignments(settings))
    imported = import_checkpoint(source, out, overwrite)
    if imported.unused_tensors:
        typer.echo(f"tensors not used: {', '.join(imported.unused_tensors)}", err=True)
    for note in imported.notes:
        typer.echo(note, err=True)
    if as_json:
        summary = {
            "folder": str(out),
            "format": imported.format,
            "parameters": imported.parameters,
            "task": imported.config.task,
        }
        print(json.dumps({**summary, "unused_tensors": imported.unused_tensors}))
        return
    print(f"{imported.format}: {imported.config.model.describe()}: {imported.parameters:,} parameters")
    print(f"Model saved to {out}. Next: clearhead {get_task(imported.config.task).verb} {out}")
