"""A study that measures nothing but its seed, and may be told to die in the middle."""

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
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement
from clearhead.training.loop.callbacks import NullCallback, Progress
from clearhead.training.loop.process_environment import GracefulStop

RULE = DecisionRule(
    (Requirement("near lies above far", lambda seen: seen["near"]["x"] - seen["far"]["x"], 1.0, 0.0, "so"),)
)
ABOUT = StudyInfo("toy", "C0", "near is more than far", RULE, "only a toy", is_timed=True)
ABOUT_BESIDE = replace(ABOUT, is_timed=False)


@dataclass(frozen=True)
class Toy:
    about: StudyInfo = ABOUT
    minutes: float = 2.0
    seeds: int = 2
    conditions: tuple[str, ...] = ("near", "far")
    gap: float = 3.0
    dies_at: str = ""

    @property
    def columns(self) -> Mapping[str, str]:
        return {"x": "the x"}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        assert not [*bench.folder.iterdir()], "a cell begins with an empty folder"
        (bench.folder / "left.txt").write_text("half done")
        if f"{condition} {seed}" == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": seed + (self.gap if condition == "near" else 0.0)}

    def charts(self, found: Findings) -> list[Chart]:
        series = [Series(name, [(0, found.values(name, "x")), (1, [2.0])]) for name in self.conditions]
        return [Chart("toy", "A toy", "where", "x", series, ticks=("here", "there"))]


@dataclass(frozen=True)
class Beside(Toy):
    """The same, measured side by side: a cell waits until the other one of its seed is at work too."""

    about: StudyInfo = ABOUT_BESIDE
    meeting: str = ""
    wrong: str = ""
    trains: str = ""
    is_stillborn: bool = False

    def __post_init__(self) -> None:
        if self.is_stillborn and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """Fails if nobody else comes."""
        bench.watcher.progress(Progress(1, 3, 0, 1.0, 0.1, 10.0, "tok", 1.0, 500.0, None))
        if f"{condition} {seed}" == self.wrong:
            raise DataError("nothing to read")
        if f"{condition} {seed}" == self.trains:  # a training only notes the first signal
            with GracefulStop().listening(NullCallback()):
                time.sleep(600)
        if self.meeting:
            (Path(self.meeting) / f"{condition} {seed} {bench.threads} {torch.get_num_threads()}").touch()
            until = time.monotonic() + 60
            while len([*Path(self.meeting).glob(f"* {seed} *")]) < len(self.conditions):
                assert time.monotonic() < until, "nobody else came"
                time.sleep(0.01)
        return super().measure(condition, seed, bench)
