"""The protocol of a study: a claim, a decision rule, and cells (one condition, one seed) that are measured separately.

A decision rule is a list of requirements that is fixed before anything is measured. Each requirement derives one
quantity from the numbers of a seed, and its two bounds classify this quantity as passed, failed or inconclusive. If the
seeds disagree, the requirement is inconclusive. Results are not averaged over the seeds, so a single lucky seed
cannot decide a claim.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from clearhead.study.harness.charts import Chart, Series
from clearhead.training.loop.callbacks import Callback

CORES = 2  # of the machine to which `Study.minutes` refers; cells run in parallel, one per core
LIGHT_MINUTES = 0.1  # time budget of a cell whose condition is listed in `light_conditions`

Verdict = Literal["holds", "does not hold here", "not decided"]
Status = Literal["passed", "failed", "inconclusive"]
Numbers = Mapping[str, float]
"""Name -> result of a cell; `accuracy@100` is one point of a sweep."""
SeedNumbers = Mapping[str, Numbers]
"""Condition -> numbers, for one seed."""
Quantity = Callable[[SeedNumbers], float]


def sweep(numbers: Numbers, name: str) -> dict[int, float]:
    """Return the values of `name@16`, `name@64`, ... by the number after the @; raise KeyError if there are none."""
    values = {int(key.partition("@")[2]): value for key, value in numbers.items() if key.startswith(f"{name}@")}
    if not values:
        raise KeyError(name)
    return dict(sorted(values.items()))


def first_and_last(numbers: Numbers, name: str) -> tuple[float, float]:
    """Return the values of a sweep at its smallest and its largest point."""
    values = [*sweep(numbers, name).values()]
    return values[0], values[-1]


@dataclass(frozen=True)
class Requirement:
    """One condition of a claim. Larger quantities are better if `pass_bound` is at least `fail_bound`."""

    statement: str
    quantity: Quantity
    pass_bound: float
    fail_bound: float
    reason: str
    """Justification of the bounds."""

    @property
    def is_larger_better(self) -> bool:
        """Whether larger quantities pass."""
        return self.pass_bound >= self.fail_bound

    @property
    def bounds(self) -> str:
        """Both bounds as text."""
        passes, fails = (">=", "<=") if self.is_larger_better else ("<=", ">=")
        return f"pass if {passes} {self.pass_bound:g}, fail if {fails} {self.fail_bound:g}, otherwise inconclusive"

    def status(self, value: float) -> Status:
        """Classify the quantity of one seed."""
        sign = 1 if self.is_larger_better else -1
        if sign * value >= sign * self.pass_bound:
            return "passed"
        return "failed" if sign * value <= sign * self.fail_bound else "inconclusive"

    def value(self, runs: SeedNumbers) -> float | None:
        """Return the quantity of one seed, or None if one of the numbers that it depends on has not been measured."""
        if not runs:
            return None
        try:
            return self.quantity(runs)
        except KeyError:
            return None


@dataclass(frozen=True)
class RequirementOutcome:
    """Values of one requirement by seed, and its status over all seeds."""

    requirement: Requirement
    values: Mapping[int, float | None]
    status: Status

    def to_json(self) -> dict[str, Any]:
        """Return the requirement, its values and its status as a JSON object."""
        requirement = self.requirement
        return {
            "statement": requirement.statement,
            "pass_bound": requirement.pass_bound,
            "fail_bound": requirement.fail_bound,
            "reason": requirement.reason,
            "values": {str(seed): value for seed, value in self.values.items()},
            "status": self.status,
        }


@dataclass(frozen=True)
class StudyVerdict:
    """The verdict with the outcomes of all requirements."""

    verdict: Verdict
    outcomes: tuple[RequirementOutcome, ...]


@dataclass(frozen=True)
class DecisionRule:
    """Requirements of a claim: the claim holds if all passed, does not hold here if one failed, else is not decided."""

    requirements: tuple[Requirement, ...]

    def judge(self, by_seed: Mapping[int, SeedNumbers]) -> StudyVerdict:
        """Return the verdict; requirements whose numbers are missing are inconclusive."""
        outcomes = tuple(_outcome(requirement, by_seed) for requirement in self.requirements)
        statuses = [outcome.status for outcome in outcomes]
        if "failed" in statuses:
            return StudyVerdict("does not hold here", outcomes)
        return StudyVerdict("holds" if all(status == "passed" for status in statuses) else "not decided", outcomes)


def _outcome(requirement: Requirement, by_seed: Mapping[int, SeedNumbers]) -> RequirementOutcome:
    values = {seed: requirement.value(runs) for seed, runs in by_seed.items()}
    statuses = {"inconclusive" if value is None else requirement.status(value) for value in values.values()}
    agreed: Status = next(iter(statuses)) if len(statuses) == 1 else "inconclusive"
    return RequirementOutcome(requirement, values, agreed)


@dataclass(frozen=True)
class Cell:
    """The unit of measurement: one condition with one seed. Results are saved after every cell."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}, seed {self.seed}"


@dataclass(frozen=True)
class StudyTable:
    """An additional table of derived numbers or assumptions; the first row is the header."""

    title: str
    rows: Sequence[Sequence[str]]


def no_derived_tables(_findings: "Findings") -> list[StudyTable]:
    """Return no additional tables."""
    return []


@dataclass(frozen=True)
class StudyInfo:
    """Static description of a study."""

    name: str
    claim_id: str
    claim: str
    rule: DecisionRule
    caveat: str = ""
    """Limits of the study, printed with the verdict."""
    light_conditions: tuple[str, ...] = ()
    """Conditions that need almost no time: baselines and untrained models."""
    is_timed: bool = False
    """Whether the numbers are times: cells then run one after another, each on all cores."""
    tables: Callable[["Findings"], list[StudyTable]] = no_derived_tables
    """Function that derives additional tables from the cells measured so far."""


@dataclass(frozen=True)
class StudyContext:
    """Resources of one cell: an initially empty folder, its time budget, its threads and the training callback."""

    folder: Path
    minutes: float
    threads: int
    callback: Callback


class Study(Protocol):
    """Interface of a study: one claim at one size."""

    @property
    def info(self) -> StudyInfo: ...

    @property
    def minutes(self) -> float:
        """Time budget of all cells of all seeds together."""

    @property
    def seeds(self) -> int:
        """Default number of seeds."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The compared conditions."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Columns of the table: name of a number -> header."""

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure one cell; every number must be finite."""

    def charts(self, findings: "Findings") -> list[Chart]:
        """Return the charts of the cells measured so far."""


def cell_minutes(study: Study, condition: str, minutes: float) -> float:
    """Return the time budget of one cell.

    All conditions that are not light have the same budget, which depends neither on the number of cores nor on
    additional seeds.
    """
    light = study.info.light_conditions
    if condition in light:
        return LIGHT_MINUTES
    num_others = sum(name not in light for name in study.conditions)
    return minutes * (1 if study.info.is_timed else CORES) / study.seeds / num_others


@dataclass(frozen=True)
class Findings:
    """Numbers of all cells measured so far."""

    cells: Mapping[Cell, Numbers]

    def by_seed(self, seeds: int, conditions: Sequence[str]) -> dict[int, dict[str, Numbers]]:
        """Return seed -> condition -> numbers for seeds 1 to `seeds`; a seed with missing conditions has no numbers."""
        result: dict[int, dict[str, Numbers]] = {}
        for seed in range(1, seeds + 1):
            runs = {cell.condition: numbers for cell, numbers in self.cells.items() if cell.seed == seed}
            result[seed] = runs if all(condition in runs for condition in conditions) else {}
        return result

    @property
    def conditions(self) -> list[str]:
        """Measured conditions in the order of their first measurement."""
        return list(dict.fromkeys(cell.condition for cell in self.cells))

    def values(self, condition: str, name: str) -> list[float]:
        """Return the number `name` of each seed in which it was measured."""
        return [
            numbers[name] for cell, numbers in self.cells.items() if cell.condition == condition and name in numbers
        ]

    def sweep_series(self, condition: str, name: str, points: Sequence[int], label: str = "") -> Series:
        """Return a series over the points of a sweep; the default label is the condition."""
        return Series(label or condition, [(point, self.values(condition, f"{name}@{point}")) for point in points])

    def bin_series(self, condition: str, name: str, bins: Sequence[tuple[int, int]], label: str = "") -> Series:
        """Return a series over bins (low, high); x is the index of the bin, and `name@low` the name of its number."""
        values = [self.values(condition, f"{name}@{low}") for low, _ in bins]
        return Series(label or condition, list(enumerate(values)))

    def condition_series(self, name: str, conditions: Sequence[str], label: str) -> Series:
        """Return a series of one number over several conditions; x is the index of the condition."""
        return Series(label, [(x, self.values(condition, name)) for x, condition in enumerate(conditions)])


def bin_ticks(bins: Sequence[tuple[int, int]]) -> list[str]:
    """Return the tick labels of bins."""
    return [f"{low} to {high}" for low, high in bins]
