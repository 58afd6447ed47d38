"""The `clearhead` command: its verbs, and what becomes of errors.

Exit codes: 0 success, 1 a bug, 2 a mistake of the user (one line on stderr), 130 and 143 interrupted (`serve`: 0
after SIGTERM).
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

# Verb -> one line of help. The verb's module is imported when the verb is called, so that help stays fast.
VERBS = {
    "train": "Train a model on your own text: a translator, a classifier, a tagger, ...",
    "translate": "Translate lines from standard input.",
    "classify": "Give each line its label.",
    "tag": "Mark names and other spans in each line.",
    "fill": "Fill the gaps of a text.",
    "generate": "Write on from a prompt, piece by piece.",
    "embed": "Give each line its vector.",
    "score": "Print how probable a model finds given translations.",
    "align": "Print which words of given translations belong together.",
    "shortlist": "Learn which few pieces each sentence is likely to need, for faster translation.",
    "evaluate": "Score a model on a test set, each score with its signature.",
    "inspect": "Look inside a model while it reads a sentence: every head of every layer.",
    "export": "Write a model as another toolkit reads it.",
    "serve": "Serve models over HTTP, with a page that opens them up.",
    "study": "Measure a claim about Transformers, with a rule, a table and pictures.",
    "info": "Show what is in a model folder.",
    "runs": "List trainings: their state, score and size.",
    "plot": "Draw the curves of a training.",
    "import": "Convert a checkpoint of Hugging Face, fairseq or torch.",
    "data": "Make data: the built-in English-German grammar, or handwritten digits.",
    "doctor": "Report what is installed, which engine runs models, and what is missing.",
    "demo": "Train a translator on the built-in grammar and show what it can do.",
}

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FILES = {"import": "import_checkpoint"}  # verbs that are words of Python's own


class _LazyVerbs(TyperGroup):
    """Knows the verbs by name, and imports one when it is wanted."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        return typer.main.get_command(importlib.import_module(f"clearhead.cli.{_FILES.get(cmd_name, cmd_name)}").app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(cls=_LazyVerbs, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    """Train, run and open up Transformers on your own text, on the machine you have.

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
    """The command, with errors turned into one line and an exit code."""
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))


def main(arguments: Sequence[str]) -> int:
    """Runs one command and gives its exit code."""
    try:
        code = _invoke(_spread_valid(arguments))
        sys.stdout.flush()
        return code
    except ClearheadError as error:
        return _fail(f"clearhead: {error}")
    except ModuleNotFoundError as error:
        return _fail_without_package(error, arguments)
    except typer.Abort:
        return 128 + signal.SIGINT
    except typer.TyperException as error:  # the command line itself is wrong
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "clearhead"
        message = getattr(error, "format_message", error.__str__)()
        return _fail(f"{path}: {' '.join(message.split())} See {path} --help.")
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
    """Print which extra installs the package that a command needs. Raises `error` if no extra does."""
    from clearhead.extras import missing_package

    verb = next((word for word in arguments if word in VERBS), "")
    failure = missing_package(error, f"clearhead {verb}".strip())
    if failure is error:
        raise error
    return _fail(f"clearhead: {failure}")


def _spread_valid(arguments: Sequence[str]) -> list[str]:
    """`--valid a.en a.de` as `--valid a.en --valid a.de`; so too for --old-valid and --replay."""
    spread: list[str] = []
    rest = list(arguments)
    while rest:
        spread.append(rest.pop(0))
        option = spread[-1]
        if option in ("--valid", "--old-valid", "--replay") and rest:
            first = rest.pop(0)
            spread.append(first)
            if rest and _are_two_sides(first, rest[0]):
                spread += [option, rest.pop(0)]
    return spread


def _are_two_sides(first: str, second: str) -> bool:
    """Whether two names are those of one text in two languages: the same up to their last part, as a.en and a.de."""
    stems, suffixes = zip(*(Path(name.removesuffix(".gz")).name.rpartition(".")[::2] for name in (first, second)),
                          strict=True)  # fmt: skip
    return not second.startswith("-") and stems[0] == stems[1] and suffixes[0] != suffixes[1]
