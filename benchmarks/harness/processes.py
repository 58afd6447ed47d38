"""Runner side of the protocol: start, command and end the processes of one contestant."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks.harness.protocol import Setting, Task

ROOT = Path(__file__).resolve().parents[2]


class Processes:
    """Processes of one contestant in one setting; a context manager that ends them."""

    def __init__(
        self,
        module: str,
        setting: Setting,
        environment: Mapping[str, str | None] | None = None,
        root: Path = ROOT,
    ) -> None:
        """Start the processes with the code of the checkout `root`."""
        self.module, self.setting, self.root = module, setting, root
        self.environment = dict(environment or {})
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._log = (Path(self._folder.name) / "log").open("w+")
        self._members = [self._launch() for _ in range(setting.processes)]

    def _launch(self) -> "subprocess.Popen[str]":
        threads = str(self.setting.threads)
        paths = [str(self.root / "src"), os.environ.get("PYTHONPATH", "")]
        environment: dict[str, str | None] = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "GLOO_SOCKET_IFNAME": "lo",
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "agg",
            **self.environment,
        }
        return subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.contestants.{self.module}"],
            cwd=self.root, env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            if member.stdin and not member.stdin.closed:
                try:
                    member.stdin.write('{"command": "quit"}\n')
                    member.stdin.close()
                except BrokenPipeError:
                    pass
        for member in self._members:
            try:
                member.wait(timeout=20)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
            if member.stdout:
                member.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def ask(self, command: str, **fields: Any) -> list[dict[str, Any]]:
        """Send one command to all processes and return all answers."""
        line = json.dumps({"command": command, **fields}) + "\n"
        return self._exchange([line] * len(self._members), command)

    def ask_each(self, command: str, **fields: Any) -> list[dict[str, Any]]:
        """Send one command with the rank of each process and return all answers."""
        common = {"command": command, "setting": dataclasses.asdict(self.setting), **fields}
        lines = [json.dumps({**common, "rank": rank}) + "\n" for rank in range(len(self._members))]
        return self._exchange(lines, command)

    def start(self, task: Task, data: Path) -> dict[str, Any]:
        """Build the model in each process and return the answer of the first."""
        meeting = str(Path(self._folder.name) / "meeting")
        return self.ask_each("start", task=dataclasses.asdict(task), data=str(data), meeting=meeting)[0]

    def timed(self, command: str, **fields: Any) -> tuple[float, list[dict[str, Any]]]:
        """Return the seconds from sending a command to the last answer, and the answers."""
        began = time.perf_counter()
        answers = self.ask(command, **fields)
        return time.perf_counter() - began, answers

    def _exchange(self, lines: list[str], command: str) -> list[dict[str, Any]]:
        answers = []
        try:
            for member, line in zip(self._members, lines, strict=True):
                assert member.stdin
                member.stdin.write(line)
                member.stdin.flush()
            for member in self._members:
                assert member.stdout
                answers.append(json.loads(member.stdout.readline() or self._log_tail()))
        except BrokenPipeError:
            answers = [json.loads(self._log_tail())]
        for answer in answers:
            if "error" in answer:
                raise SystemExit(f"{self.module} failed at {command!r} ({self.setting}):\n{answer['error']}")
        return answers

    def _log_tail(self) -> str:
        """Return the end of the log as an error message, for a process that ended without an answer."""
        self._log.flush()
        self._log.seek(0)
        return json.dumps({"error": self._log.read()[-4000:] or "the process ended without output"})
