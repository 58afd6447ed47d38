"""A study that returns numbers computed from the seed, and can be configured to fail in a cell."""

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from clearhead.errors import DataError
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    StudyContext,
    StudyInfo,
)
from clearhead.training.loop.callbacks import NullCallback, Progress
from clearhead.training.loop.process_environment import GracefulStop

RULE = DecisionRule(
    (Requirement("near is above far", lambda runs: runs["near"]["x"] - runs["far"]["x"], 1.0, 0.0, "some reason"),)
)
INFO = StudyInfo("toy", "C0", "near is more than far", RULE, "only a toy", is_timed=True)
PARALLEL_INFO = replace(INFO, is_timed=False)


@dataclass(frozen=True)
class ToyStudy:
    """Cells are measured one after another; the cell `dies_at` kills its process."""

    info: StudyInfo = INFO
    minutes: float = 2.0
    seeds: int = 2
    conditions: tuple[str, ...] = ("near", "far")
    gap: float = 3.0
    dies_at: str = ""

    @property
    def columns(self) -> Mapping[str, str]:
        return {"x": "the x"}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        assert not [*context.folder.iterdir()], "the folder of a cell is empty at first"
        (context.folder / "left.txt").write_text("half done")
        if f"{condition} {seed}" == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": seed + (self.gap if condition == "near" else 0.0)}

    def charts(self, findings: Findings) -> list[Chart]:
        series = [Series(name, [(0, findings.values(name, "x")), (1, [2.0])]) for name in self.conditions]
        return [Chart("toy", "A toy", "where", "x", series, ticks=("here", "there"))]


@dataclass(frozen=True)
class ParallelToyStudy(ToyStudy):
    """Cells are measured in parallel: with a `meeting` folder, each cell waits until all cells of its seed run."""

    info: StudyInfo = PARALLEL_INFO
    meeting: str = ""
    fails_at: str = ""
    trains_at: str = ""
    dies_at_start: bool = False

    def __post_init__(self) -> None:
        if self.dies_at_start and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Fail if the other cells of the seed do not start within a minute."""
        context.callback.progress(Progress(1, 3, 0, 1.0, 0.1, 10.0, "tok", 1.0, 500.0, None))
        if f"{condition} {seed}" == self.fails_at:
            raise DataError("nothing to read")
        if f"{condition} {seed}" == self.trains_at:  # a training handles the first signal by stopping later
            with GracefulStop().listening(NullCallback()):
                time.sleep(600)
        if self.meeting:
            (Path(self.meeting) / f"{condition} {seed} {context.threads} {torch.get_num_threads()}").touch()
            deadline = time.monotonic() + 60
            while len([*Path(self.meeting).glob(f"* {seed} *")]) < len(self.conditions):
                assert time.monotonic() < deadline, "the other cells did not start"
                time.sleep(0.01)
        return super().measure(condition, seed, context)
