"""What a study is: a claim, a rule, and cells (a condition and a seed) that can be measured one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clearhead.study.harness.charts import Chart
from clearhead.study.harness.verdict import DecisionRule, Numbers
from clearhead.training.loop.callbacks import Callback

CORES = 2  # on which a study takes about the minutes that it says; cells run side by side, one a core
LIGHT = 0.1  # minutes of a cell that takes next to no time


@dataclass(frozen=True)
class Cell:
    """What is measured in one go, and after which the result is on disk."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}, seed {self.seed}"


@dataclass(frozen=True)
class StudyTable:
    """What follows from the numbers, or was assumed, beside the table of the conditions. The first row is a heading."""

    title: str
    rows: Sequence[Sequence[str]]


def no_tables(_found: "Findings") -> list[StudyTable]:
    """Of a study whose numbers say everything."""
    return []


@dataclass(frozen=True)
class StudyInfo:
    """What is known of a study before it runs."""

    name: str
    claim_id: str
    claim: str
    rule: DecisionRule
    caveat: str = ""
    """What the study does not show, to be read with the verdict."""
    light: tuple[str, ...] = ()
    """Conditions that take next to no time: baselines, and models that are not trained."""
    is_timed: bool = False
    """Its numbers are times: its cells run one after the other, each on all cores."""
    tables: Callable[["Findings"], list[StudyTable]] = no_tables
    """More tables, made from what was measured so far."""


@dataclass(frozen=True)
class StudyContext:
    """Where a cell works: a folder that is empty at first, its share of the time, cores, and who watches trainings."""

    folder: Path
    minutes: float
    threads: int
    watcher: Callback


class Study(Protocol):
    """One claim at one size."""

    @property
    def about(self) -> StudyInfo: ...

    @property
    def minutes(self) -> float:
        """What all cells of all seeds may take together."""

    @property
    def seeds(self) -> int:
        """How often everything is repeated."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """What is compared."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The numbers that the table shows: name -> heading."""

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One cell; every number is finite."""

    def charts(self, found: "Findings") -> list[Chart]:
        """What the pictures show."""


def cell_minutes(study: Study, condition: str, minutes: float) -> float:
    """The time of one cell: the same for all that take time, however many cores there are; more seeds take longer."""
    if condition in study.about.light:
        return LIGHT
    heavy = [name for name in study.conditions if name not in study.about.light]
    return minutes * (1 if study.about.is_timed else CORES) / study.seeds / len(heavy)


@dataclass(frozen=True)
class Findings:
    """The numbers of all cells measured so far."""

    cells: Mapping[Cell, Numbers]

    def by_seed(self, seeds: int, conditions: Sequence[str]) -> dict[int, dict[str, Numbers]]:
        """For the rule: seed -> condition -> numbers, of seeds 1 and up; nothing of a seed that is not whole."""
        found: dict[int, dict[str, Numbers]] = {}
        for seed in range(1, seeds + 1):
            here = {cell.condition: numbers for cell, numbers in self.cells.items() if cell.seed == seed}
            found[seed] = here if all(condition in here for condition in conditions) else {}
        return found

    @property
    def conditions(self) -> list[str]:
        """Those of which something was measured, in the order in which that happened."""
        return list(dict.fromkeys(cell.condition for cell in self.cells))

    def values(self, condition: str, name: str) -> list[float]:
        """One number a seed, of those that have it."""
        return [
            numbers[name] for cell, numbers in self.cells.items() if cell.condition == condition and name in numbers
        ]
