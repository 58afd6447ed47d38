"""`clearhead train`: train, fine-tune or resume a model."""

import signal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.options import ColumnsOption, Device, Files, Settings, Threads
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.training.checkpoint.finalize import TrainingResult

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Out = Annotated[Path, typer.Option("--out", help="Folder for the model.", show_default=False)]
Valid = Annotated[
    list[Path] | None,
    typer.Option(
        "--valid", metavar="FILE [FILE]", help="Validation files. [default: hold out part of the training data]"
    ),
]
TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help="translate (sentence pairs: .tsv, .csv, .jsonl, .parquet or two text files), classify (text and label: "
        ".tsv, .csv, .jsonl, .parquet), tag (CoNLL), mlm, lm or denoise (plain text), image (folder with a sub-folder "
        "of PNG files per class), caption (table: path of a PNG file and text). [default: translate]",
    ),
]
Start = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Pretrained model: start from its architecture, tokenizer and weights.", show_default=False
    ),
]
OldValid = Annotated[
    list[Path] | None,
    typer.Option(
        "--old-valid",
        metavar="FILE [FILE]",
        help="With --from: validation files of the pretrained model, scored before and after fine-tuning. "
        "[default: the records that its run saved]",
        show_default=False,
    ),
]
Replay = Annotated[
    list[Path] | None,
    typer.Option(
        "--replay",
        metavar="FILE [FILE]",
        help="With --from: training data of the pretrained model to mix into each batch, which reduces forgetting.",
        show_default=False,
    ),
]
ReplayShare = Annotated[
    float | None,
    typer.Option("--replay-share", help="Fraction of each batch from --replay. [default: 0.2]", show_default=False),
]
Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        help="tiny, small, paper-base, paper-big, bert-base, bert-large (mlm), gpt2 (lm), t5-small (denoise), "
        "vit-tiny (image). [default: chosen by the amount of data]",
    ),
]
Recipe = Annotated[Path | None, typer.Option("--recipe", help="TOML file with settings; --set overrides it.")]
Minutes = Annotated[float | None, typer.Option("--minutes", min=0.01, help="Training time in minutes.")]
Epochs = Annotated[float | None, typer.Option("--epochs", min=0.01, help="Number of passes over the data.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Number of updates.")]
Languages = Annotated[
    str,
    typer.Option("--languages", metavar="SOURCE:TARGET", help="Language codes of a translation model, such as en:de."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan with estimated time and memory, without training.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out; repeat its command with this option.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard event files to OUT/tensorboard.")]


@app.command()
def train(
    files: Files,
    out: Out,
    valid: Valid = None,
    task: TaskName = "",
    columns: ColumnsOption = "",
    start: Start = None,
    old_valid: OldValid = None,
    replay: Replay = None,
    replay_share: ReplayShare = None,
    preset: Preset = "",
    recipe: Recipe = None,
    minutes: Minutes = None,
    epochs: Epochs = None,
    steps: Steps = None,
    languages: Languages = "",
    settings: Settings = [],  # noqa: B006
    dry_run: DryRun = False,
    overwrite: Overwrite = False,
    resume: Resume = False,
    tensorboard: Tensorboard = False,
    threads: Threads = 0,
    device: Device = "auto",
) -> int:
    """Train a model for --task on your own data.

    Unset settings are chosen by the amount of data and the training time, and printed with the reason. To train in
    several processes, run torchrun --nproc-per-node 2 -m clearhead train ... (docs/scale.md).

    Example: clearhead train pairs.tsv --out runs/de --minutes 10
    """
    from clearhead.cli.training_display import training_display
    from clearhead.training import run

    request = run.TrainRequest(
        files=files, out=out, valid=valid or [], preset=preset, settings=_settings(recipe, settings),
        overwrite=overwrite, threads=threads, task=task, start=start, old_valid=old_valid or [], replay=replay or [],
        replay_share=replay_share, columns=columns, languages=languages, minutes=minutes, epochs=epochs, steps=steps,
        resume=resume, device=device, tensorboard=tensorboard,
    )  # fmt: skip
    with training_display() as callback:
        if dry_run:
            run.dry_run(request, callback)
            return 0
        result = run.train(request, callback)
    return _report(result, out)


def _report(result: "TrainingResult", out: Path) -> int:
    """Print the result of a training and return the exit code; only rank 0 prints."""
    from clearhead.training.distributed.process_group import is_first_process

    signal_number = result.outcome.signal
    code = 128 + signal.Signals(signal_number) if signal_number else 0
    if not is_first_process():
        return code
    if signal_number:
        print(f"interrupted; the best model so far is in {out}; --resume resumes the run", file=sys.stderr)
        return code
    validation = result.validation
    print(f"{validation.figure} {validation.signature} (validation)")
    if validation.outputs:
        print(validation.outputs)
    if validation.warning:
        print(f"Model saved to {out}.")
        print(f"warning: {validation.warning}; --dry-run estimates the training time", file=sys.stderr)
    else:
        print(f"Model saved to {out}. Next: clearhead {result.verb} {out}")
    return code


def _settings(recipe: Path | None, assignments: list[str]) -> dict[str, Any]:
    """Return the settings of the recipe, overridden by --set."""
    from clearhead.config import merge, parse_assignments

    return merge(_read_recipe(recipe) if recipe else {}, parse_assignments(assignments))


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {path} is not valid TOML: {error}") from error
