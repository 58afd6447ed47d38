"""Real commands with stdin, stdout and stderr each a terminal, a file or a pipe.

`Commands` starts one process that has imported clearhead and torch; each command runs in a fork of it, which saves the
3 s of importing torch per command. `run_process` starts a new process per command.
"""

import errno
import itertools
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

STREAMS = ("stdin", "stdout", "stderr")
COMBINATIONS = [
    frozenset(name for name, chosen in zip(STREAMS, flags, strict=True) if chosen)
    for flags in itertools.product((False, True), repeat=3)
]
TIMEOUT = 300  # seconds; longer than any command that does not hang

_SERVER = """
import os, socket, sys
import torch
import clearhead.api, clearhead.cli.translate, clearhead.cli.progress_display
from clearhead.cli.main import main

torch.set_num_threads(1)
line = sys.stdin.readline
while request := line():
    paths = request.rstrip("\\n").split("\\t")
    if (child := os.fork()) == 0:
        for number, path in enumerate(paths[:3]):
            os.dup2(os.open(path, os.O_RDWR | os.O_NOCTTY), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        code = main(paths[3:])
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Finished:
    """Exit code and output of a command; terminals' CRLF line ends are LF here."""

    code: int
    stdout: bytes
    stderr: bytes


class _Terminal:
    """A pseudo-terminal without echo; collects the output of the command's side."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.path = os.ttyname(slave)
        self.slave = slave
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: bytes) -> None:
        """Type the text and Ctrl-D."""
        os.write(self.master, text + b"\x04")

    def close(self) -> bytes:
        """Close the command's side and return its output."""
        os.close(self.slave)
        self._reader.join(TIMEOUT)
        os.close(self.master)
        return bytes(self._output).replace(b"\r\n", b"\n")

    def _read(self) -> None:
        try:
            while block := os.read(self.master, 65536):
                self._output += block
        except OSError as error:
            if error.errno != errno.EIO:  # how Linux reports that the other side is closed
                raise


class _Streams:
    """The three standard streams of one command: those named in `terminals` are terminals, the others files."""

    def __init__(self, folder: Path, text: bytes, terminals: frozenset[str], stdout: Path | None = None) -> None:
        self.files = {name: folder / name for name in STREAMS}
        for path in self.files.values():
            path.write_bytes(b"")
        if stdout is not None:
            self.files["stdout"] = stdout
        self.files["stdin"].write_bytes(text)
        self.terminals = {name: _Terminal() for name in STREAMS if name in terminals}
        if "stdin" in self.terminals:
            self.terminals["stdin"].type(text)

    def path(self, name: str) -> str:
        return self.terminals[name].path if name in self.terminals else str(self.files[name])

    def finished(self, code: int) -> Finished:
        outputs = {name: terminal.close() for name, terminal in self.terminals.items()}
        read = {name: outputs[name] if name in outputs else self._content(self.files[name]) for name in STREAMS}
        return Finished(code, read["stdout"], read["stderr"])

    @staticmethod
    def _content(path: Path) -> bytes:
        return path.read_bytes() if path.is_file() else b""


class Commands:
    """Runs clearhead commands in forks of one prepared process."""

    def __init__(self, server: "subprocess.Popen[str]", folder: Path) -> None:
        self._server, self._folder = server, folder

    def run(
        self,
        arguments: Sequence[object],
        text: str = "",
        terminals: frozenset[str] = frozenset(),
        stdout: Path | None = None,
    ) -> Finished:
        """Run `clearhead ARGUMENTS` with `text` on stdin and these streams connected to terminals."""
        streams = _Streams(self._folder, text.encode(), terminals, stdout)
        assert self._server.stdin is not None and self._server.stdout is not None
        words = [*map(streams.path, STREAMS), *map(str, arguments)]
        print("\t".join(words), file=self._server.stdin, flush=True)
        return streams.finished(int(self._server.stdout.readline()))


@contextmanager
def command_server() -> Iterator[Commands]:
    """Start the process in which commands are forked, and end it on exit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=_environment(),
            )
        )
        yield Commands(server, folder)
        assert server.stdin is not None
        server.stdin.close()
        server.wait(TIMEOUT)


def run_process(
    arguments: Sequence[object],
    text: str = "",
    terminals: frozenset[str] = frozenset(),
    threads: int = 1,
    timeout: float = TIMEOUT,
    while_running: Callable[["subprocess.Popen[bytes]"], None] | None = None,
    program: Sequence[str] = ("-m", "clearhead"),
) -> Finished:
    """Run `clearhead ARGUMENTS` in a new process with `text` on stdin and these streams connected to terminals.

    `while_running` is called with the running process. `program` are the options of the Python interpreter.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        streams = _Streams(Path(folder), text.encode(), terminals)
        files = []
        for name in STREAMS:
            handle = os.open(streams.path(name), os.O_RDWR | os.O_NOCTTY)
            stack.callback(os.close, handle)
            files.append(handle)
        process = subprocess.Popen(
            [sys.executable, *program, *map(str, arguments)],
            stdin=files[0], stdout=files[1], stderr=files[2], env=_environment(threads), start_new_session=True,
        )  # fmt: skip
        try:
            if while_running:
                while_running(process)
            code = process.wait(timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        stack.close()
        return streams.finished(code)


def _environment(threads: int = 1) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "TERM": "xterm-256color", "TOKENIZERS_PARALLELISM": "false"}
