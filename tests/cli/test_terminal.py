"""Line-based commands with stdin, stdout and stderr each a terminal or a file: the results are the same bytes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks.all_tasks import Models
from tests.terminal import COMBINATIONS, Commands, command_server, run_process
from tests.trained_model import Trained

TEXT = "The dog sees the cat.\n\nThe old king sleeps.\nÄ child laughs.\n"


def describe(terminals: frozenset[str]) -> str:
    """Return the name of a combination for pytest."""
    return "+".join(sorted(terminals)) or "files"


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    """Start a process that runs all commands of this file, so that torch is imported once."""
    with command_server() as server:
        yield server


@pytest.fixture(scope="module")
def expected(trained: Trained, commands: Commands) -> bytes:
    """Return the output of `translate` without a terminal."""
    done = commands.run(["translate", trained.folder], TEXT)
    assert done.code == 0 and done.stdout.count(b"\n") == 4 and done.stderr == b"", done
    return done.stdout


@pytest.mark.parametrize("terminals", COMBINATIONS, ids=describe)
def test_translate_writes_its_results_to_stdout(
    terminals: frozenset[str], expected: bytes, trained: Trained, commands: Commands
) -> None:
    done = commands.run(["translate", trained.folder], TEXT, terminals)
    assert done.code == 0, done.stderr
    assert done.stdout == expected
    assert (b"> " in done.stderr) == ("stdin" in terminals)


FORMS = {
    "json": ["--json"],
    "n-best": ["--n-best", "3", "--beam", "3"],
    "stream": ["--stream"],
    "stream-json": ["--stream", "--json"],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_translate_fills_the_output_file(form: str, trained: Trained, commands: Commands) -> None:
    arguments = ["translate", trained.folder, *FORMS[form]]
    plain = commands.run(arguments, TEXT)
    shown = commands.run(arguments, TEXT, frozenset({"stderr"}))
    assert plain.code == shown.code == 0 and plain.stdout == shown.stdout
    assert plain.stdout.count(b"\n") >= 4


def test_the_progress_bar_is_on_stderr_only(trained: Trained, commands: Commands) -> None:
    done = commands.run(["translate", trained.folder], TEXT, frozenset({"stderr"}))
    assert b"lines/s" in done.stderr and b"lines/s" not in done.stdout


def test_no_progress_bar_before_a_pipe(expected: bytes, trained: Trained, commands: Commands, tmp_path: Path) -> None:
    """The next program of a pipe may print to the same terminal as stderr."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    done = commands.run(["translate", trained.folder], TEXT, frozenset({"stderr"}), stdout=pipe)
    assert (done.code, done.stderr, os.read(reader, 65536)) == (0, b"", expected)
    os.close(reader)


def test_a_full_disk_is_one_line(trained: Trained, commands: Commands, tmp_path: Path) -> None:
    done = commands.run(["translate", trained.folder], TEXT, stdout=Path("/dev/full"))
    assert done.code == 2
    assert done.stderr.decode().splitlines() == [
        "clearhead: cannot write the output: No space left on device; it is incomplete. Free some disk space."
    ]


SLOW = [
    ("translate", "translate", [], "The dog.\n\nOld 3\n"),
    ("classify", "classify", [], "The dog.\nOld 3\n"),
    ("classify", "classify", ["--json"], "The dog.\nOld 3\n"),
    ("tag", "tag", [], "The dog.\n\nOld 3\n"),
    ("mlm", "fill", [], "The [MASK].\nOld [MASK] 3\n"),
    ("mlm", "embed", [], "The dog.\nOld 3\n"),
    ("lm", "generate", ["--lines", "--json", "--max-tokens", "3"], "The\nOld\n"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=lambda case: "-".join([case[1], *case[2]]))
def test_every_line_based_command_in_real_processes(
    case: tuple[str, str, list[str], str], models: Models, tmp_path: Path
) -> None:
    task, command, options, text = case
    arguments = [command, models[task], "--threads", "1", *options]
    results = {terminals: run_process(arguments, text, terminals) for terminals in COMBINATIONS}
    assert {done.code for done in results.values()} == {0}
    typed, read = ({done.stdout for streams, done in results.items() if ("stdin" in streams) == is_typed}
                   for is_typed in (True, False))  # fmt: skip
    assert len(typed) == len(read) == 1
    assert_equal_but_for_rounding(typed.pop(), read.pop())
    plain = results[frozenset()]
    others = [line for line in plain.stderr.splitlines() if b"has not learned its task" not in line]
    assert plain.stdout and not others  # these models are trained for a few updates only
    if "--json" in options:
        assert all(json.loads(line) for line in results[frozenset()].stdout.splitlines())


def test_a_closed_pipe_is_not_an_error(models: Models, tmp_path: Path) -> None:
    """The command `clearhead translate DIR < in.txt | head -1` ends without an error when its pipe is closed."""
    text = tmp_path / "in.txt"
    text.write_text("The old dog eats the grass.\n" * 10_000, encoding="utf-8")
    command = [sys.executable, "-m", "clearhead", "translate", str(models["translate"]), "--beam", "1"]
    command += ["--threads", "1", "--set", "decoding.max_length=5"]
    with (
        text.open("rb") as lines,
        subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read().decode()
        assert process.wait(timeout=120) == 128 + signal.SIGPIPE
    assert not [line for line in stderr.splitlines() if not line.startswith("warning: ")], stderr


def assert_equal_but_for_rounding(first: bytes, second: bytes) -> None:
    """Compare outputs; batches of different sizes may differ in the last digits of numbers."""
    number = re.compile(rb"-?\d+\.\d+(?:e-?\d+)?")
    assert number.sub(b"#", first) == number.sub(b"#", second)
    assert [*map(float, number.findall(first))] == pytest.approx([*map(float, number.findall(second))], abs=1e-5)
