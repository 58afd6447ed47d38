"""The `clearhead` command: its subcommands, exit codes and error messages.

Exit codes: 0 success, 1 internal error, 2 user error (one line on stderr), 128 plus the number of the signal that
interrupted the command (130 Ctrl-C, 141 closed pipe, 143 SIGTERM). `serve` returns 0 after SIGTERM.
"""

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from clearhead.errors import ClearheadError

# Subcommand -> one line of help. The module of a subcommand is imported when it is called, so that help stays fast.
COMMANDS = {
    "train": "Train a model on your own text: translation, classification, tagging, ...",
    "translate": "Translate lines of standard input, or caption images.",
    "classify": "Classify each line, or images.",
    "tag": "Mark names and other spans in each line.",
    "fill": "Predict the masked words of a text.",
    "generate": "Continue a prompt with a language model.",
    "embed": "Compute sentence embeddings.",
    "score": "Score given translations by their log-probability.",
    "align": "Align the words of given translations.",
    "shortlist": "Learn a vocabulary shortlist for faster translation.",
    "evaluate": "Evaluate a model on a test set, or compare two models.",
    "inspect": "Show the attention of every head of every layer for one input.",
    "export": "Export a model to another toolkit's format.",
    "serve": "Serve models over HTTP, with an inspection page.",
    "study": "Test a claim about Transformers in an experiment with a fixed decision rule.",
    "info": "Show the contents of a model folder.",
    "runs": "List training runs with their state, score and size.",
    "plot": "Plot the curves of a training run.",
    "import": "Import a Hugging Face, fairseq or PyTorch checkpoint.",
    "data": "Generate data: the built-in English-German corpus, or handwritten digits.",
    "doctor": "Report what is installed, which engine runs models, and what is missing.",
    "demo": "Train a translator on the built-in corpus and show its output.",
}

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MODULES = {"import": "import_checkpoint"}  # subcommands whose name is a Python keyword


class _LazyCommands(TyperGroup):
    """Group of subcommands, each imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return typer.main.get_command(importlib.import_module(f"clearhead.cli.{_MODULES.get(cmd_name, cmd_name)}").app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(cls=_LazyCommands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    """Train, run, serve and inspect Transformer models on an ordinary CPU.

    Example: clearhead train pairs.tsv --out runs/de --minutes 10
    """
    if version:
        from importlib.metadata import version as installed_version

        print(f"clearhead {installed_version('clearhead')}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
        raise typer.Exit


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its exit code."""
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; print each error that users can cause as one line."""
    try:
        code = _invoke(_repeat_file_options(arguments))
        sys.stdout.flush()
        return code
    except ClearheadError as error:
        return _fail(f"clearhead: {error}")
    except ModuleNotFoundError as error:
        return _fail_without_package(error, arguments)
    except typer.Abort:
        return 128 + signal.SIGINT
    except typer.TyperException as error:  # invalid command line
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "clearhead"
        message = getattr(error, "format_message", error.__str__)()
        return _fail(f"{path}: {' '.join(message.split()).removesuffix('.')}. See {path} --help.")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of a pipe such as `| head` has closed it
        _discard_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _DISK_FULL or error.filename is not None:
            raise
        _discard_stdout()
        return _fail(f"clearhead: cannot write the output: {error.strerror}; it is incomplete. Free some disk space.")


def _invoke(arguments: list[str]) -> int:
    """Run the command and return its exit code. Typer's `main` would exit with 1 when a pipe is closed."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("clearhead", arguments) as context:
            result = command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return result if isinstance(result, int) else 0


def _discard_stdout() -> None:
    """Point stdout to the null device, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line: str) -> int:
    print(" ".join(line.split("\n")), file=sys.stderr)
    return 2


def _fail_without_package(error: ModuleNotFoundError, arguments: Sequence[str]) -> int:
    """Print which extra contains the missing package and return exit code 2; raise `error` if no extra does."""
    from clearhead.extras import missing_package

    command = next((word for word in arguments if word in COMMANDS), "")
    failure = missing_package(error, f"clearhead {command}".strip())
    if failure is error:
        raise error
    return _fail(f"clearhead: {failure}")


def _repeat_file_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--valid a.en a.de` as `--valid a.en --valid a.de`; also --old-valid and --replay."""
    repeated: list[str] = []
    rest = list(arguments)
    while rest:
        repeated.append(rest.pop(0))
        option = repeated[-1]
        if option in ("--valid", "--old-valid", "--replay") and rest:
            first = rest.pop(0)
            repeated.append(first)
            if rest and _is_language_pair(first, rest[0]):
                repeated += [option, rest.pop(0)]
    return repeated


def _is_language_pair(first: str, second: str) -> bool:
    """Return whether two file names differ only in their suffix, such as a.en and a.de."""
    stems, suffixes = zip(*(Path(name.removesuffix(".gz")).name.rpartition(".")[::2] for name in (first, second)),
                          strict=True)  # fmt: skip
    return not second.startswith("-") and stems[0] == stems[1] and suffixes[0] != suffixes[1]
