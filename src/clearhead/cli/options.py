"""Options shared by several commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.api import Model

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Model folder.", show_default=False)]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="Training files in the format of --task; may be .gz or .zst.", show_default=False
    ),
]
TestFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Test files in the format of the training files; may be .gz or .zst.",
        show_default=False,
    ),
]
PairFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Sentence pairs: a .tsv, .csv, .jsonl or .parquet file, or two text files with one sentence per line; "
        "may be .gz or .zst.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Columns to read from the table, by number or header name: text=2,label=3 or source=en,target=de.",
        show_default=False,
    ),
]
Images = Annotated[
    list[Path] | None,
    typer.Argument(metavar="IMAGE.png", help="PNG files, for image models.", show_default=False),
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="SECTION.FIELD=VALUE", help="Set any setting, such as model.dropout=0.3; repeatable."
    ),
]
DecodingSettings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="decoding.FIELD=VALUE",
        help="Set a decoding setting, such as decoding.length_penalty=0.8; repeatable.",
    ),
]
EvaluationSettings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Set a decoding or table setting, such as decoding.length_penalty=0.8 or data.header=no; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Threads = Annotated[int, typer.Option("--threads", min=0, help="Number of threads; 0: one per core.")]
Tag = Annotated[str, typer.Option("--tag", help="Source tag (language or domain), for models trained with tags.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Device; auto: a GPU if one is available.")
]
Beam = Annotated[
    int | None,
    typer.Option("--beam", help="Beam size; 1: greedy search. [default: the model's beam size, usually 4]"),
]
ComputeType = Annotated[
    Literal["float32", "int8"],
    typer.Option("--compute-type", help="int8 is smaller, faster and slightly less accurate."),
]
EngineName = Annotated[
    Literal["native", "torch"] | None,
    typer.Option("--engine", help="Inference engine. [default: native if it supports the model, else torch]"),
]
NBest = Annotated[int, typer.Option("--n-best", min=1, help="Number of hypotheses to print per line.")]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="WORD", help="Require WORD in every output; repeatable.", show_default=False),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="WORD", help="Exclude WORD from every output; repeatable.", show_default=False),
]
LongLines = Annotated[
    Literal["split", "skip", "stop"],
    typer.Option(
        "--long-lines",
        help="Lines with more tokens than the model accepts: split, skip (empty output) or stop (error).",
    ),
]
Alternatives = Annotated[
    int | None,
    typer.Option(
        "--alternatives-at",
        metavar="POSITION",
        min=0,
        help="Print --n-best outputs that differ in the token at this position, counted from 0.",
    ),
]


def use_threads(threads: int) -> None:
    """Set the number of threads of all engines, also of torch if it is imported later."""
    from clearhead.engines.threads import set_num_threads

    set_num_threads(threads)


def warn_untrained(model: "Model") -> None:
    """Print a warning on stderr if the training recorded that the model has not learned its task."""
    if warning := model.manifest.training.get("warning"):
        typer.echo(f"warning: {model.folder}: {warning}", err=True)


def table_settings(assignments: list[str], columns: str) -> dict[str, Any]:
    """Return the `data` settings of --set and --columns; raise ConfigError for one that only training uses."""
    from clearhead.config import parse_assignments
    from clearhead.data.readers.tables import TABLE_FIELDS

    data = parse_assignments([each for each in assignments if each.startswith("data.")]).get("data", {})
    for name in data:
        if name not in TABLE_FIELDS:
            expected = ", ".join(f"data.{field}" for field in TABLE_FIELDS)
            raise ConfigError(f"--set data.{name} has no effect on a trained model; expected one of {expected}")
    return {**data, "columns": columns} if columns else dict(data)


def decoding_settings(
    assignments: list[str], beam: int | None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the `decoding` settings of --set, --beam and other options; raise ConfigError for other sections."""
    from clearhead.config import merge, parse_assignments

    settings = parse_assignments(assignments)
    for section in settings:
        if section != "decoding":
            raise ConfigError(f"--set {section}.FIELD has no effect on a trained model; expected decoding.FIELD")
    overrides = {name: value for name, value in {"beam_size": beam, **(options or {})}.items() if value is not None}
    return merge(settings.get("decoding", {}), overrides)
