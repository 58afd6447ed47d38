"""`clearhead export`: a model as another toolkit reads it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clearhead.cli.options import ComputeType, Folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Format = Literal["ctranslate2", "onnx", "huggingface"]


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to be made.", show_default=False)],
    to: Annotated[Format, typer.Option("--to", help="The format.", show_default=False)],
    compute_type: ComputeType = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Write a model as another toolkit reads it, with its tokenizer; what that cannot hold is refused by name.

    ctranslate2: what `ctranslate2.Translator` (or Generator) loads; its tokens are the pieces that
    `clearhead translate --json` shows. onnx: the encoder, and one step of the decoder with its cache. huggingface: a
    folder that `transformers` loads.

    Example: clearhead export runs/de --to ctranslate2 runs/de-ct2 --compute-type int8
    """
    from clearhead.api import load

    for note in load(folder).export(out, to, compute_type=compute_type, overwrite=overwrite):
        typer.echo(note, err=True)
    typer.echo(f"wrote {out}", err=True)
