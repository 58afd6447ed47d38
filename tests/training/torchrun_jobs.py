"""Trainings in several processes, started by torchrun: a JSON file lists them, and they run one after the other.

Each writes the loss of every update into `losses.json` in its run folder.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.training import run as training
from clearhead.training.distributed.process_group import ProcessGroup, init_distributed, is_first_process, was_restarted
from clearhead.training.loop.trainer import Trainer
from clearhead.training.setup import auto_config
from tests.training.runs import Settings, run

LOSSES = "losses.json"


@dataclass(frozen=True)
class Job:
    """One training. `send` is (rank, update, signal): the process gets the signal after the update if not restarted."""

    task: str
    data: str
    out: str
    more: Settings = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    send: tuple[int, int, int] | None = None


def record_losses() -> list[float]:
    """Return a list to which the loss of each later update is appended, summed over the processes."""
    losses: list[float] = []
    update = Trainer._update

    def recording_update(self: Trainer, gradients: Any, batches: Any) -> None:
        add = gradients.add

        def recording_add(*arguments: Any) -> float:
            share: float = add(*arguments)
            losses.append(self.group.sum(share)[0])
            return share

        gradients.add = recording_add
        update(self, gradients, batches)
        gradients.add = add

    Trainer._update = recording_update  # type: ignore[method-assign]
    return losses


def run_job(job: Job, losses: list[float]) -> None:
    """Run a training and write its losses."""
    losses.clear()
    run(job.task, Path(job.data), Path(job.out), more=job.more, **job.options)
    if is_first_process():
        (Path(job.out) / LOSSES).write_text(json.dumps(losses))


@contextmanager
def sending(rank: int, step: int, number: int) -> Iterator[None]:
    """Send this process a signal after an update."""
    report = Trainer._report

    def reporting(self: Trainer) -> None:
        report(self)
        if self.group.rank == rank and self.state.step == step:
            os.kill(os.getpid(), number)

    Trainer._report = reporting  # type: ignore[method-assign]
    yield
    Trainer._report = report  # type: ignore[method-assign]


def threads_of_gloo() -> list[str]:
    """Return the gloo threads of this process; threads that outlive the group can abort the process."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def main(path: Path) -> None:
    """Run all jobs within one process group."""
    auto_config.BENCHMARK_SECONDS = 0.0
    losses = record_losses()
    jobs = [Job(**each) for each in json.loads(path.read_text())]
    with init_distributed() as processes:
        assert processes.world_size == int(os.environ["WORLD_SIZE"]) and isinstance(processes, ProcessGroup)
        setattr(training, "init_distributed", lambda _: nullcontext(processes))  # noqa: B010
        for job in jobs:
            with sending(*job.send) if job.send and not was_restarted() else nullcontext():
                run_job(job, losses)
        assert threads_of_gloo() or not Path("/proc").is_dir()
    assert not threads_of_gloo(), f"threads outlive the process group: {threads_of_gloo()}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
