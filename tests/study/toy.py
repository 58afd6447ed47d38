"""A study that measures nothing but its seed, and may be told to die in the middle."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from clearhead.study.charts import Chart, Series
from clearhead.study.protocol import About, Bench, Findings
from clearhead.study.verdict import Numbers, Requirement, Rule

RULE = Rule((Requirement("near lies above far", lambda seen: seen["near"]["x"] - seen["far"]["x"], 1.0, 0.0, "so"),))
ABOUT = About("toy", "C0", "near is more than far", RULE, "only a toy")


@dataclass(frozen=True)
class Toy:
    about: About = ABOUT
    minutes: float = 2.0
    seeds: int = 2
    conditions: tuple[str, ...] = ("near", "far")
    gap: float = 3.0
    dies_at: str = ""

    @property
    def columns(self) -> Mapping[str, str]:
        return {"x": "the x"}

    def measure(self, condition: str, seed: int, bench: Bench) -> Numbers:
        assert not [*bench.folder.iterdir()], "a cell begins with an empty folder"
        (bench.folder / "left.txt").write_text("half done")
        if f"{condition} {seed}" == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": seed + (self.gap if condition == "near" else 0.0)}

    def charts(self, found: Findings) -> list[Chart]:
        series = [Series(name, [(0, found.values(name, "x")), (1, [2.0])]) for name in self.conditions]
        return [Chart("toy", "A toy", "where", "x", series, ticks=("here", "there"))]
