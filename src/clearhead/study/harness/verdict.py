"""From numbers to a verdict, by a rule that is stated before anything is measured. Knows no model and no file.

A rule is a list of requirements. Each turns the numbers of one seed into one quantity and has two bounds: on one side
of them it is met, on the other it failed, between them it is open. All seeds must agree: met or failed in some of them
only is open too. Nothing is averaged, so that one lucky seed decides nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["holds", "does not hold here", "not decided"]
Standing = Literal["met", "failed", "open"]
Numbers = Mapping[str, float]
"""What was measured in one cell, by name; `accuracy@100` where a name stands for a row of numbers."""
Seen = Mapping[str, Numbers]
"""All of one seed: condition -> numbers."""
Quantity = Callable[[Seen], float]


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

    def standing(self, value: float) -> Standing:
        """Of one seed."""
        sign = 1 if self.met >= self.failed else -1
        if sign * value >= sign * self.met:
            return "met"
        return "failed" if sign * value <= sign * self.failed else "open"

    def value(self, seen: Seen) -> float | None:
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
    standing: Standing

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

    def judge(self, by_seed: Mapping[int, Seen]) -> StudyVerdict:
        """A pure function of the numbers; what was not measured yet is open."""
        outcomes = tuple(_outcome(one, by_seed) for one in self.requirements)
        standings = [one.standing for one in outcomes]
        if "failed" in standings:
            return StudyVerdict("does not hold here", outcomes)
        return StudyVerdict("holds" if all(one == "met" for one in standings) else "not decided", outcomes)


def _outcome(requirement: Requirement, by_seed: Mapping[int, Seen]) -> RequirementOutcome:
    values = {seed: requirement.value(seen) for seed, seen in by_seed.items()}
    standings = {"open" if value is None else requirement.standing(value) for value in values.values()}
    agreed: Standing = next(iter(standings)) if len(standings) == 1 else "open"
    return RequirementOutcome(requirement, values, agreed)
