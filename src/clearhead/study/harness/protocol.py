"""What a study is: a claim, a rule, and cells (a condition and a seed) that can be measured one by one.

From numbers to a verdict, by a rule that is stated before anything is measured. Knows no model and no file.

A rule is a list of requirements. Each turns the numbers of one seed into one quantity and has two bounds: on one side
of them it is met, on the other it failed, between them it is open. All seeds must agree: met or failed in some of them
only is open too. Nothing is averaged, so that one lucky seed decides nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from clearhead.study.harness.charts import Chart
from clearhead.training.loop.callbacks import Callback

Verdict = Literal["holds", "does not hold here", "not decided"]
Status = Literal["met", "failed", "open"]
Numbers = Mapping[str, float]
"""What was measured in one cell, by name; `accuracy@100` where a name stands for a row of numbers."""
SeedNumbers = Mapping[str, Numbers]
"""All of one seed: condition -> numbers."""
Quantity = Callable[[SeedNumbers], float]


@dataclass(frozen=True)
class Requirement:
    """One thing that must be so for the claim to hold. A larger quantity is better where `met` lies above `failed`."""

    says: str
    quantity: Quantity
    met: float
    failed: float
    because: str
    """Why the bounds lie where they lie."""

    @property
    def bounds(self) -> str:
        """In words."""
        high = self.met >= self.failed
        return (
            f"met {'from' if high else 'up to'} {self.met:g}, failed {'up to' if high else 'from'} {self.failed:g}, "
            "open between"
        )

    def standing(self, value: float) -> Status:
        """Of one seed."""
        sign = 1 if self.met >= self.failed else -1
        if sign * value >= sign * self.met:
            return "met"
        return "failed" if sign * value <= sign * self.failed else "open"

    def value(self, seen: SeedNumbers) -> float | None:
        """The quantity of one seed; None while some of what it needs was not measured."""
        if not seen:
            return None
        try:
            return self.quantity(seen)
        except KeyError:
            return None


@dataclass(frozen=True)
class RequirementOutcome:
    """How one requirement stands over all seeds."""

    requirement: Requirement
    values: Mapping[int, float | None]
    standing: Status

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        one = self.requirement
        return {
            "says": one.says,
            "met": one.met,
            "failed": one.failed,
            "because": one.because,
            "values": {str(seed): value for seed, value in self.values.items()},
            "standing": self.standing,
        }


@dataclass(frozen=True)
class StudyVerdict:
    """The verdict and what led to it."""

    verdict: Verdict
    outcomes: tuple[RequirementOutcome, ...]


@dataclass(frozen=True)
class DecisionRule:
    """The claim holds where every requirement is met, and does not hold here where one failed."""

    requirements: tuple[Requirement, ...]

    def judge(self, by_seed: Mapping[int, SeedNumbers]) -> StudyVerdict:
        """A pure function of the numbers; what was not measured yet is open."""
        outcomes = tuple(_outcome(one, by_seed) for one in self.requirements)
        standings = [one.standing for one in outcomes]
        if "failed" in standings:
            return StudyVerdict("does not hold here", outcomes)
        return StudyVerdict("holds" if all(one == "met" for one in standings) else "not decided", outcomes)


def _outcome(requirement: Requirement, by_seed: Mapping[int, SeedNumbers]) -> RequirementOutcome:
    values = {seed: requirement.value(seen) for seed, seen in by_seed.items()}
    standings = {"open" if value is None else requirement.standing(value) for value in values.values()}
    agreed: Status = next(iter(standings)) if len(standings) == 1 else "open"
    return RequirementOutcome(requirement, values, agreed)


CORES = 2  # on which a study takes about the minutes that it says; cells run side by side, one a core
LIGHT_MINUTES = 0.1  # minutes of a cell that takes next to no time


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


def no_derived_tables(_found: "Findings") -> list[StudyTable]:
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
    tables: Callable[["Findings"], list[StudyTable]] = no_derived_tables
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
        return LIGHT_MINUTES
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
