"""`clearhead export`: a model folder in, a folder of another toolkit out."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="huggingface", show_default=False)],
) -> None:
    """Write a model in the format of another toolkit, with its tokenizer; what that cannot hold is refused by name.

    Example: clearhead export runs/de --to huggingface out/de
    """
    from clearhead.errors import InteropError
    from clearhead.interop.exporting import EXPORTERS

    if to not in EXPORTERS:
        raise InteropError(f"unknown format {to!r}; there are {', '.join(EXPORTERS)}")
    found = EXPORTERS[to](folder, out)
    for note in found.notes:
        typer.echo(note, err=True)
    print(f"{found.format} {out}")
