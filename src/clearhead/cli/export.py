"""`clearhead export`: write a model in another toolkit's format."""

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
    """Export a model and its tokenizer to another toolkit's format.

    onnx: one graph of an encoder (classify, tag, fill, embed), or the encoder and one step of the decoder with its KV
    cache. ctranslate2: what `ctranslate2.Translator` (or Generator) loads; its tokens are those that `clearhead
    translate --json` shows. huggingface: a folder that `transformers` loads and that `clearhead import` reads again. A
    format that cannot express the model lists the settings that are in the way, and the formats that work.

    Example: clearhead export runs/de --to ctranslate2 runs/de-ct2 --compute-type int8
    """
    from clearhead.api import load

    for note in load(folder).export(out, to, compute_type=compute_type, overwrite=overwrite):
        typer.echo(note, err=True)
    typer.echo(f"wrote {out}", err=True)
