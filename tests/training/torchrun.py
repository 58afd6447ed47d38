"""Trainings under torchrun, which is started as a module to ensure that it belongs to this Python."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import clearhead
from tests.training.torchrun_jobs import LOSSES, Job

ROOT = Path(__file__).parents[2]
TIMEOUT = 900  # seconds after which a process that hangs is stopped; enough for a busy machine
Ended = subprocess.CompletedProcess[str]


def command(count: int, arguments: Sequence[str], restarts: int = 0) -> list[str]:
    """Return the command line of torchrun with `count` processes."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [*run, "--max-restarts", str(restarts), *arguments]


def environment() -> dict[str, str]:
    """Return an environment with the package and the tests on the path, and one thread per process."""
    paths = [str(Path(clearhead.__file__).parents[1]), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def torchrun(count: int, arguments: Sequence[str], restarts: int = 0) -> Ended:
    """Run torchrun to its end."""
    return subprocess.run(
        command(count, arguments, restarts),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )


def train_together(jobs: Sequence[Job], folder: Path, count: int = 2, restarts: int = 0) -> Ended:
    """Run trainings in `count` processes."""
    path = folder / "jobs.json"
    path.write_text(json.dumps([asdict(job) for job in jobs]))
    process = torchrun(count, [str(Path(__file__).with_name("torchrun_jobs.py")), str(path)], restarts)
    assert process.returncode == 0, process.stderr
    return process


def losses_of(folder: Path | str) -> list[float]:
    """Return the loss of each update of a training."""
    losses: list[float] = json.loads((Path(folder) / LOSSES).read_text())
    return losses
