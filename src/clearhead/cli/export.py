"""`clearhead export`: export a model to another toolkit's format."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clearhead.cli.options import ComputeType, Folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Format = Literal["ctranslate2", "onnx", "huggingface"]


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder for the exported model.", show_default=False)],
    to: Annotated[Format, typer.Option("--to", help="Export format.", show_default=False)],
    compute_type: ComputeType = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Export a model and its tokenizer to another toolkit's format.

    onnx: one graph for an encoder (classify, tag, fill, embed); for a model that generates text, a graph of the encoder
    and a graph of one decoder step with its KV cache. ctranslate2: a folder for `ctranslate2.Translator` (language
    models: `ctranslate2.Generator`), with the tokens that `clearhead translate --json` prints. huggingface: a folder
    for `transformers`, which `clearhead import` also reads. If a format does not support the model, the error lists the
    unsupported settings and the formats that work.

    Example: clearhead export runs/de --to ctranslate2 runs/de-ct2 --compute-type int8
    """
    from clearhead.api import load

    for note in load(folder).export(out, to, compute_type=compute_type, overwrite=overwrite):
        typer.echo(note, err=True)
    typer.echo(f"wrote {out}", err=True)
