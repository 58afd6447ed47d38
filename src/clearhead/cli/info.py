"""`clearhead info`: contents of a model folder."""

import json
from typing import Any

import typer

from clearhead.cli.options import Folder, Json

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def info(folder: Folder, as_json: Json = False) -> None:
    """Show the contents of a model folder: sizes, settings, data, scores and inference engine; verify every checksum.

    Example: clearhead info runs/de
    """
    from clearhead import bundle
    from clearhead import config as configs
    from clearhead.engines.engine import choose_engine

    loaded = bundle.load(folder)
    choice = choose_engine(configs.parse(loaded.config).model)
    contents: dict[str, Any] = {
        "folder": str(folder),
        "engine": choice.to_json() if as_json else str(choice),
        **loaded.manifest.model_dump(mode="json"),
        "config": loaded.config,
    }
    if as_json:
        print(json.dumps(contents, ensure_ascii=False))
        return
    for key, value in contents.items():
        print("\n".join(_lines(key, value)))


def _lines(key: str, value: Any, depth: int = 0) -> list[str]:
    """Return a nested value as indented lines."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return [f"{indent}{key}", *(line for name, inner in value.items() for line in _lines(name, inner, depth + 1))]
    if isinstance(value, float):
        value = f"{value:.6g}"
    return [f"{indent}{key:<{max(1, 22 - len(indent))}} {value}"]
