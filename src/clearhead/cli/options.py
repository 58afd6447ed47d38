"""Options that several verbs share, so that they look and behave the same everywhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.api import Model

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Model folder, made by `clearhead train`.", show_default=False)
]
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES...", help="What the task reads; also .gz, .zst. See --task.", show_default=False),
]
TestFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES...",
        help="To test on, of the kind that the model was trained on; also .gz, .zst.",
        show_default=False,
    ),
]
PairFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES...",
        help="Pairs: .tsv, .csv, .jsonl, .parquet or two line files; also .gz, .zst.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Columns of the table by number or header name: text=2,label=3 or source=en,target=de.",
        show_default=False,
    ),
]
Pictures = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PICTURE.png...]", help="For a model that reads pictures.", show_default=False),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Set any field, such as model.dropout=0.3."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Threads = Annotated[int, typer.Option("--threads", min=0, help="Cores to use; 0: all.")]
Tag = Annotated[str, typer.Option("--tag", help="Language or domain, of a model trained with tags.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute; auto: a GPU where there is one.")
]
Beam = Annotated[int | None, typer.Option("--beam", help="Hypotheses kept; 1 is greedy. [default: the model's, 4]")]
ComputeType = Annotated[
    Literal["float32", "int8"], typer.Option("--compute-type", help="int8: smaller and faster, slightly less exact.")
]
EngineName = Annotated[
    Literal["native", "torch"] | None,
    typer.Option("--engine", help="Inference engine. [default: native if it supports the model, else torch]"),
]
NBest = Annotated[int, typer.Option("--n-best", min=1, help="Translations of each line.")]
Include = Annotated[
    list[str] | None, typer.Option("--include", metavar="WORD", help="Must be in it; repeatable.", show_default=False)
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="WORD", help="Must not be in it; repeatable.", show_default=False),
]
LongLines = Annotated[
    Literal["split", "skip", "stop"],
    typer.Option(
        "--long-lines",
        help="Lines with more tokens than the model accepts: split and process the parts, skip (empty output) or stop.",
    ),
]
Alternatives = Annotated[
    int | None, typer.Option("--alternatives-at", metavar="PLACE", min=0, help="Other pieces there, --n-best of them.")
]


def use_threads(threads: int) -> None:
    """Set the number of threads of all engines; torch is told when it is imported."""
    from clearhead.engines.threads import set_num_threads

    set_num_threads(threads)


def warn_untrained(model: "Model") -> None:
    """Say on stderr that a model has not learned its task, if its training recorded that."""
    if warning := model.manifest.training.get("warning"):
        typer.echo(f"warning: {model.folder}: {warning}", err=True)


def table_settings(assignments: list[str], columns: str) -> dict[str, Any]:
    """Return the data section of `--set` and `--columns`; after training only the settings of tables may change."""
    from clearhead.config import parse_assignments
    from clearhead.data.readers.tables import TABLE_FIELDS

    given = parse_assignments([each for each in assignments if each.startswith("data.")]).get("data", {})
    for name in given:
        if name not in TABLE_FIELDS:
            known = ", ".join(f"data.{field}" for field in TABLE_FIELDS)
            raise ConfigError(f"--set data.{name} cannot change a trained model; here {known} can be set")
    return {**given, "columns": columns} if columns else dict(given)


def decoding_settings(
    assignments: list[str], beam: int | None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The decoding section of `--set`, `--beam` and other options; other sections cannot be changed after training."""
    from clearhead.config import merge, parse_assignments

    settings = parse_assignments(assignments)
    for section in settings:
        if section != "decoding":
            raise ConfigError(f"--set {section}.… cannot change a trained model; here only decoding.… can be set")
    given = {name: value for name, value in {"beam_size": beam, **(options or {})}.items() if value is not None}
    return merge(settings.get("decoding", {}), given)
