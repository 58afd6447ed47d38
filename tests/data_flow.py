"""Files of the package that a command executes, found with `sys.setprofile`.

The command runs in a separate process, so that no cache of an earlier test hides a call:

    python -m tests.data_flow answer_lines translate runs/de < in.txt    prints the files as JSON

The first argument is the qualified name of a function: only calls during its calls are recorded, in all threads.
"""

import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import clearhead

SOURCE = Path(clearhead.__file__).parent


class ExecutedFiles:
    """Files below `src/clearhead` whose functions were called, in the order of their first call.

    Module bodies and class bodies do not count, because importing a file does not execute its functions.
    """

    def __init__(self, within: str = "") -> None:
        """Count only calls during the calls of the function `within` (a qualified name); if it is empty, all calls."""
        self.functions: dict[str, list[str]] = {}
        self._within = within
        self._depth = 0
        self._paths: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record one call; to be passed to `sys.setprofile`."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        path = self._paths.get(code)
        if path is None:
            path = self._paths[code] = _path_in_package(code)
        if not path:
            return
        if code.co_qualname == self._within:
            self._depth += 1 if event == "call" else -1
        if event == "call" and (self._depth or not self._within):
            functions = self.functions.setdefault(path, [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)


def _path_in_package(code: CodeType) -> str:
    """Return the file of a function, relative to the package; empty for other code."""
    path = Path(code.co_filename)
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(SOURCE):
        return ""
    return path.relative_to(SOURCE).as_posix()


@contextmanager
def recording(within: str = "") -> Iterator[ExecutedFiles]:
    """Record the calls of this thread and of all threads that are started inside."""
    recorder = ExecutedFiles(within)
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def executed_files(command: Sequence[str], within: str = "", stdin: str = "") -> dict[str, list[str]]:
    """Return the executed files of a clearhead command with their functions, in the order of their first call."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.data_flow", within, *command],
        input=stdin, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return files


def main() -> None:
    """Run a command and print its executed files on the last line."""
    within, *command = sys.argv[1:]
    with recording(within) as recorder:
        from clearhead.cli.main import main as run_command

        status = run_command(command)
    print(json.dumps(recorder.functions))
    sys.exit(status)


if __name__ == "__main__":
    main()
