"""Starting trainings by torchrun, as its module, so that it is the one of this Python."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import clearhead
from tests.training.together import LOSSES, Job

ROOT = Path(__file__).parents[2]
PATIENCE = 900  # seconds: a busy machine is slow, and whoever hangs is stopped in the end
Ended = subprocess.CompletedProcess[str]


def command(count: int, what: Sequence[str], restarts: int = 0) -> list[str]:
    """torchrun with so many processes."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [*run, "--max-restarts", str(restarts), *what]


def surroundings() -> dict[str, str]:
    """The package and the tests are found, and each process computes on one thread."""
    places = [str(Path(clearhead.__file__).parents[1]), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}


def torchrun(count: int, what: Sequence[str], restarts: int = 0) -> Ended:
    """Runs it to its end."""
    return subprocess.run(
        command(count, what, restarts),
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def train_together(jobs: Sequence[Job], folder: Path, count: int = 2, restarts: int = 0) -> Ended:
    """These trainings in so many processes."""
    path = folder / "jobs.json"
    path.write_text(json.dumps([asdict(job) for job in jobs]))
    done = torchrun(count, [str(Path(__file__).with_name("together.py")), str(path)], restarts)
    assert done.returncode == 0, done.stderr
    return done


def losses_of(folder: Path | str) -> list[float]:
    """The loss of each update of a training."""
    found: list[float] = json.loads((Path(folder) / LOSSES).read_text())
    return found
