"""`clearhead train`: train, fine-tune or resume a model."""

import signal
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import ColumnsOption, Device, Files, Settings, Threads
from clearhead.errors import ConfigError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def train(
    files: Files,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.", show_default=False)],
    valid: Annotated[
        list[Path] | None,
        typer.Option(
            "--valid", metavar="FILE [FILE]", help="Validation files. [default: hold out part of the training data]"
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            help="translate (pairs: .tsv, .csv, .jsonl, .parquet or two line files), classify (text and label: .tsv, "
            ".csv, .jsonl, .parquet), tag (CoNLL), mlm, lm, denoise (plain text), image (folder of PNGs by class), "
            "caption (path of a PNG and text, as a table). [default: translate]",
        ),
    ] = "",
    columns: ColumnsOption = "",
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Pretrained model: start from its architecture, tokenizer and weights.", show_default=False
        ),
    ] = None,
    old_valid: Annotated[
        list[Path] | None,
        typer.Option(
            "--old-valid",
            metavar="FILE [FILE]",
            help="With --from: validation files of the pretrained model, scored before and after. "
            "[default: saved by its run]",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        list[Path] | None,
        typer.Option(
            "--replay",
            metavar="FILE [FILE]",
            help="With --from: earlier training data to mix into each batch, which reduces forgetting.",
            show_default=False,
        ),
    ] = None,
    replay_share: Annotated[
        float | None,
        typer.Option("--replay-share", help="Share of each batch from --replay. [default: 0.2]", show_default=False),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="tiny, small, paper-base, paper-big, bert-base, bert-large (mlm), gpt2 (lm), t5-small (denoise), "
            "vit-tiny (image). [default: by amount of data]",
        ),
    ] = "",
    recipe: Annotated[Path | None, typer.Option("--recipe", help="Settings from a TOML file.")] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0.01, help="Training time.")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", min=0.01, help="Passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Number of updates.")] = None,
    languages: Annotated[
        str, typer.Option("--languages", metavar="SOURCE:TARGET", help="Translation: language codes, such as en:de.")
    ] = "",
    settings: Settings = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan with estimated time and memory, without training.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --out; repeat its command with this option.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard event files to DIR/tensorboard.")
    ] = False,
    threads: Threads = 0,
    device: Device = "auto",
) -> int:
    """Train a model for --task on your own data.

    Settings that are not given are chosen from the amount of data and the training time, and printed with the reason.
    Several processes: torchrun --nproc-per-node 2 -m clearhead train ... (docs/scale.md).

    Example: clearhead train pairs.tsv --out runs/de --minutes 10
    """
    from clearhead.cli.training_display import training_display
    from clearhead.config import merge
    from clearhead.training import run
    from clearhead.training.distributed.process_group import is_first_process

    overrides = _settings(recipe, settings, {"minutes": minutes, "epochs": epochs, "steps": steps})
    data_options = {"columns": columns, "replay_share": replay_share, "languages": languages}
    overrides = merge(
        overrides, {"data": {name: value for name, value in data_options.items() if value not in (None, "")}}
    )
    request = run.TrainRequest(
        files=files,
        out=out,
        valid=valid or [],
        preset=preset,
        settings=overrides,
        overwrite=overwrite,
        threads=threads,
        task=task,
        start=start,
        old_valid=old_valid or [],
        replay=replay or [],
        resume=resume,
        device=device,
        tensorboard=tensorboard,
    )
    with training_display() as callback:
        if dry_run:
            run.dry_run(request, callback)
            return 0
        result = run.train(request, callback)
    if not is_first_process():  # only rank 0 prints results
        return 128 + signal.Signals(result.outcome.signal) if result.outcome.signal else 0
    validation = result.validation
    if result.outcome.signal:
        print(f"interrupted; the best model so far is in {out}; --resume continues the run", file=sys.stderr)
        return 128 + signal.Signals(result.outcome.signal)
    print(f"{validation.figure} {validation.signature} (validation)")
    if validation.outputs:
        print(validation.outputs)
    if validation.warning:
        print(f"Model saved to {out}.")
        print(f"warning: {validation.warning}; --dry-run estimates how long", file=sys.stderr)
    else:
        print(f"Model saved to {out}. Next: clearhead {result.verb} {out}")
    return 0


def _settings(recipe: Path | None, assignments: list[str], length: dict[str, float | None]) -> dict[str, Any]:
    """Return the settings of the recipe, overridden by --set, then by --minutes, --epochs or --steps."""
    from clearhead.config import merge, parse_assignments

    settings = merge(_read_recipe(recipe) if recipe else {}, parse_assignments(assignments))
    lengths = {name: value for name, value in length.items() if value is not None}
    if lengths:  # a length on the command line replaces the recipe's
        settings = merge(settings, {"training": {"minutes": 0, "epochs": 0, "steps": 0, **lengths}})
    return settings


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {path} is not valid TOML: {error}") from error
