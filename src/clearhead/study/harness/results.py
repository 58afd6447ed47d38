"""The result file of a study, rewritten after every cell so that an interrupted run can resume, and its text tables.

Tables contain the mean over the seeds with its standard deviation.
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
FORMAT = 2


@dataclass(frozen=True)
class StudyPlan:
    """Time, seeds and size of a run. A folder has one plan, of which only the number of seeds may increase."""

    minutes: float
    seeds: int
    size: str


@dataclass(frozen=True)
class CellResult:
    """Numbers of one cell and the time it took."""

    numbers: Numbers
    seconds: float


@dataclass
class Results:
    """Results of one study in one folder."""

    folder: Path
    study: Study
    plan: StudyPlan
    cells: dict[Cell, CellResult] = field(default_factory=dict)

    @property
    def findings(self) -> Findings:
        """The numbers without the times."""
        return Findings({cell: result.numbers for cell, result in self.cells.items()})

    def all_cells(self) -> list[Cell]:
        """Return the planned cells, ordered by seed so that an interrupted run has complete seeds."""
        return [Cell(name, seed) for seed in range(1, self.plan.seeds + 1) for name in self.study.conditions]

    def missing_cells(self) -> list[Cell]:
        """Return the planned cells that have not been measured."""
        return [cell for cell in self.all_cells() if cell not in self.cells]

    def judge(self) -> StudyVerdict:
        """Apply the decision rule to the complete seeds."""
        by_seed = self.findings.by_seed(self.plan.seeds, self.study.conditions)
        return self.study.info.rule.judge(by_seed)

    def add(self, cell: Cell, numbers: Numbers, seconds: float) -> None:
        """Add the result of a cell and save the file."""
        for name, value in numbers.items():
            assert math.isfinite(value), f"{self.study.info.name}: {name} of {cell} is {value}"
        self.cells[cell] = CellResult(numbers, seconds)
        order = {name: index for index, name in enumerate(self.study.conditions)}
        self.cells = dict(
            sorted(self.cells.items(), key=lambda item: (item[0].seed, order.get(item[0].condition, len(order))))
        )
        self.save()

    def save(self) -> None:
        """Write the complete file atomically."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        path = self.folder / RESULT_FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            raise StudyError(f"cannot write {path}: {error.strerror}; choose another folder with --out") from error

    def to_json(self) -> dict[str, Any]:
        """Return plan, rule, numbers and the current verdict as a JSON object."""
        info = self.study.info
        judged = self.judge()
        return {
            "format": FORMAT,
            "study": info.name,
            "claim_id": info.claim_id,
            "claim": info.claim,
            "caveat": info.caveat,
            "plan": asdict(self.plan),
            "is_finished": not self.missing_cells(),
            "verdict": judged.verdict,
            "rule": [outcome.to_json() for outcome in judged.outcomes],
            "cells": [
                {**asdict(cell), "seconds": result.seconds, "numbers": dict(result.numbers)}
                for cell, result in self.cells.items()
            ],
        }


def open_results(folder: Path, study: Study, plan: StudyPlan) -> Results:
    """Return the results in a folder, empty if it is new; raise StudyError if they belong to another study or plan."""
    results = Results(folder, study, plan)
    path = folder / RESULT_FILE
    if not path.exists():
        return results
    record = _read(path)
    name, stored_plan = record["study"], record["plan"]
    if name != study.info.name:
        raise StudyError(
            f"expected results of the study {study.info.name} in {path}, found {name}; choose another folder with --out"
        )
    if (stored_plan["minutes"], stored_plan["size"]) != (plan.minutes, plan.size):
        raise StudyError(
            f"{path} was started with {stored_plan['minutes']:g} minutes at size {stored_plan['size']}, but "
            f"{plan.minutes:g} minutes at size {plan.size} are requested, and the results are not comparable; choose "
            f"another folder with --out, or use the same options"
        )
    results.cells = parse_cells(record)
    return results


def parse_cells(record: Mapping[str, Any]) -> dict[Cell, CellResult]:
    """Return the measured cells of a record written by `Results.to_json`."""
    return {
        Cell(entry["condition"], entry["seed"]): CellResult(entry["numbers"], entry["seconds"])
        for entry in record["cells"]
    }


def _read(path: Path) -> Mapping[str, Any]:
    try:
        record: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise StudyError(
                f"{path}: expected format {FORMAT}, found {record['format']}; choose another folder with --out"
            )
        _ = record["study"], record["plan"]["minutes"], record["plan"]["size"]
        for entry in record["cells"]:
            _ = entry["condition"], int(entry["seed"]), float(entry["seconds"]), dict(entry["numbers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: expected the results of a study, found {error!r}; choose another folder with --out"
        ) from error
    return record


def table_rows(results: Results) -> list[list[str]]:
    """Return a header and one row per condition that has any of the numbers."""
    columns, findings = results.study.columns, results.findings
    table = [["", *columns.values()]]
    for condition in results.study.conditions:
        cells = [format_mean(findings.values(condition, name)) for name in columns]
        if any(cells):
            table.append([condition, *cells])
    return table


def fit_width(table: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the table, or the transposed table if the table exceeds `width` characters and transposing narrows it."""
    transposed = [list(column) for column in zip(*table, strict=True)]
    rows = [list(row) for row in table]
    return rows if _width(rows) <= width or _width(transposed) >= _width(rows) else transposed


def _width(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))


def format_mean(values: Sequence[float]) -> str:
    """Return `0.52 ±0.03`: the mean, with the standard deviation if the values differ; empty without values."""
    if not values:
        return ""
    mean = math.fsum(values) / len(values)
    shown = f"{mean:,.0f}" if 1000 <= abs(mean) < 1e6 else f"{mean:.3g}"
    if len(set(values)) == 1:
        return shown
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{shown} ±{deviation:,.0f}" if 1 <= deviation < 1e6 else f"{shown} ±{deviation:.1g}"


def format_by_seed(outcome: RequirementOutcome) -> str:
    """Return the value of a requirement in each seed."""
    return ", ".join("not measured" if value is None else f"{value + 0.0:.3g}" for value in outcome.values.values())


def verdict_lines(results: Results) -> list[str]:
    """Return the verdict and the outcome of each requirement as lines of text."""
    info = results.study.info
    judged = results.judge()
    lines = [f"{info.claim_id}: {info.claim}", f"verdict: {judged.verdict}", "", "requirements, fixed in advance:"]
    for outcome in judged.outcomes:
        requirement = outcome.requirement
        lines += [
            f"  {outcome.status}: {requirement.statement}",
            f"    by seed: {format_by_seed(outcome)}; {requirement.bounds} ({requirement.reason})",
        ]
    return [*lines, *([f"  {info.caveat}"] if info.caveat else [])]
