"""`clearhead info`: what is in a model folder."""

import json
from typing import Any

import typer

from clearhead.cli.options import Folder, Json

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def info(folder: Folder, as_json: Json = False) -> None:
    """Show what a model folder is: its sizes, settings, data and scores. Every checksum is checked.

    Example: clearhead info runs/de
    """
    from clearhead import bundle

    found = bundle.load(folder)
    facts: dict[str, Any] = {
        "folder": str(folder),
        **found.manifest.model_dump(mode="json"),
        "config": found.config,
    }
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    for key, value in facts.items():
        print("\n".join(_lines(key, value)))


def _lines(key: str, value: Any, depth: int = 0) -> list[str]:
    """A nested value as indented lines."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return [f"{indent}{key}", *(line for name, inner in value.items() for line in _lines(name, inner, depth + 1))]
    if isinstance(value, float):
        value = f"{value:.6g}"
    return [f"{indent}{key:<{max(1, 22 - len(indent))}} {value}"]
