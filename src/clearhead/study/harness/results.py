"""The file of a study: written whole after every cell, so that a run that was cut off goes on where it stopped.

The numbers of a study as rows of text: each the mean over the seeds, and how far the seeds are from each other.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clearhead.errors import StudyError
from clearhead.files import write_atomically
from clearhead.study.harness.protocol import Cell, Findings, Numbers, RequirementOutcome, Study, StudyVerdict

RESULT_FILE = "result.json"
FORMAT = 1


@dataclass(frozen=True)
class StudyPlan:
    """At what size a study runs. A folder holds one plan; only the number of seeds may grow."""

    minutes: float
    seeds: int
    size: str


@dataclass(frozen=True)
class CellResult:
    """One cell's numbers, and how long they took."""

    numbers: Numbers
    seconds: float


@dataclass
class Results:
    """What a folder holds of one study."""

    folder: Path
    study: Study
    plan: StudyPlan
    cells: dict[Cell, CellResult] = field(default_factory=dict)

    @property
    def findings(self) -> Findings:
        """The numbers alone."""
        return Findings({cell: one.numbers for cell, one in self.cells.items()})

    def all_cells(self) -> list[Cell]:
        """Seed by seed, so that a run that is cut off has whole seeds."""
        return [Cell(name, seed) for seed in range(1, self.plan.seeds + 1) for name in self.study.conditions]

    def missing(self) -> list[Cell]:
        """What is still to be measured."""
        return [cell for cell in self.all_cells() if cell not in self.cells]

    def judge(self) -> StudyVerdict:
        """By the study's rule, over whole seeds."""
        by_seed = self.findings.by_seed(self.plan.seeds, self.study.conditions)
        return self.study.about.rule.judge(by_seed)

    def add(self, cell: Cell, numbers: Numbers, seconds: float) -> None:
        """Keeps a cell, on disk at once."""
        for name, value in numbers.items():
            assert math.isfinite(value), f"{self.study.about.name}: {name} of {cell} is {value}"
        self.cells[cell] = CellResult(numbers, seconds)
        places = {name: place for place, name in enumerate(self.study.conditions)}
        self.cells = dict(
            sorted(self.cells.items(), key=lambda one: (one[0].seed, places.get(one[0].condition, len(places))))
        )
        self.save()

    def save(self) -> None:
        """Writes the whole file, or leaves the old one."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / RESULT_FILE, text)
        except OSError as error:
            raise StudyError(f"cannot write {self.folder / RESULT_FILE}: {error.strerror}; choose another --out") from error

    def to_json(self) -> dict[str, Any]:
        """Everything: what was asked, the rule, the raw numbers, the verdict so far."""
        about = self.study.about
        judged = self.judge()
        return {
            "format": FORMAT,
            "study": about.name,
            "claim_id": about.claim_id,
            "claim": about.claim,
            "caveat": about.caveat,
            "plan": asdict(self.plan),
            "is_finished": not self.missing(),
            "verdict": judged.verdict,
            "rule": [one.to_json() for one in judged.outcomes],
            "cells": [
                {**asdict(cell), "seconds": one.seconds, "numbers": dict(one.numbers)}
                for cell, one in self.cells.items()
            ],
        }


def open_results(folder: Path, study: Study, plan: StudyPlan) -> Results:
    """What a folder holds so far, nothing where it is new. Refuses another study's folder, or another plan's."""
    results = Results(folder, study, plan)
    path = folder / RESULT_FILE
    if not path.exists():
        return results
    record = _read(path)
    name, held = record["study"], record["plan"]
    if name != study.about.name:
        raise StudyError(f"{path} holds the study {name}, not {study.about.name}; choose another --out")
    if (held["minutes"], held["size"]) != (plan.minutes, plan.size):
        raise StudyError(
            f"{path} was begun with {held['minutes']:g} minutes at size {held['size']}, now it is {plan.minutes:g} at "
            f"{plan.size}; numbers of both do not compare: choose another --out, or the same settings"
        )
    results.cells = parse_cells(record)
    return results


def parse_cells(record: Mapping[str, Any]) -> dict[Cell, CellResult]:
    """What was measured, of a record as `to_json` gives it."""
    return {Cell(one["condition"], one["seed"]): CellResult(one["numbers"], one["seconds"]) for one in record["cells"]}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise StudyError(f"{path} is of format {record['format']}, expected {FORMAT}; choose another --out")
        _ = record["study"], record["plan"]["minutes"], record["plan"]["size"]
        for one in record["cells"]:
            _ = one["condition"], int(one["seed"]), float(one["seconds"]), dict(one["numbers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path}: expected the result of a study, got {error!r}; choose another --out") from error
    found: Mapping[str, Any] = record
    return found


def table_rows(results: Results) -> list[list[str]]:
    """A heading, then a row a condition; a condition that has none of the numbers is left out."""
    columns, found = results.study.columns, results.findings
    table = [["", *columns.values()]]
    for condition in results.study.conditions:
        cells = [format_mean(found.values(condition, name)) for name in columns]
        if any(cells):
            table.append([condition, *cells])
    return table


def fit_width(table: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """A table as it is; or turned, its columns as rows, where it is wider than so many characters and gets narrower."""
    turned = [list(column) for column in zip(*table, strict=True)]
    here = [list(row) for row in table]
    return here if _width(here) <= width or _width(turned) >= _width(here) else turned


def _width(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))


def format_mean(values: Sequence[float]) -> str:
    """`0.52 ±0.03`: the mean and the standard deviation, if seeds differ; nothing where there is no value."""
    if not values:
        return ""
    mean = math.fsum(values) / len(values)
    shown = f"{mean:,.0f}" if 1000 <= abs(mean) < 1e6 else f"{mean:.3g}"
    if len(set(values)) == 1:
        return shown
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{shown} ±{deviation:,.0f}" if 1 <= deviation < 1e6 else f"{shown} ±{deviation:.1g}"


def format_by_seed(outcome: RequirementOutcome) -> str:
    """What a requirement came to in each seed."""
    return ", ".join("not measured" if value is None else f"{value + 0.0:.3g}" for value in outcome.values.values())


def verdict_lines(results: Results) -> list[str]:
    """The verdict, the rule and how each requirement stands."""
    about = results.study.about
    judged = results.judge()
    lines = [f"{about.claim_id}: {about.claim}", f"verdict: {judged.verdict}", "", "the rule, stated beforehand:"]
    for one in judged.outcomes:
        lines += [
            f"  {one.standing}: {one.requirement.says}",
            f"    by seed: {format_by_seed(one)}; {one.requirement.bounds} ({one.requirement.because})",
        ]
    return [*lines, *([f"  {about.caveat}"] if about.caveat else [])]
