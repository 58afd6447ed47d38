"""The numbers of a study as rows of text: each the mean over the seeds, and how far the seeds are from each other."""

import math
from collections.abc import Sequence

from clearhead.study.harness.results import Results
from clearhead.study.harness.verdict import RequirementOutcome


def rows(results: Results) -> list[list[str]]:
    """A heading, then a row a condition; a condition that has none of the numbers is left out."""
    columns, found = results.study.columns, results.findings
    table = [["", *columns.values()]]
    for condition in results.study.conditions:
        cells = [spread(found.values(condition, name)) for name in columns]
        if any(cells):
            table.append([condition, *cells])
    return table


def fitting(table: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """A table as it is; or turned, its columns as rows, where it is wider than so many characters and gets narrower."""
    turned = [list(column) for column in zip(*table, strict=True)]
    here = [list(row) for row in table]
    return here if _width(here) <= width or _width(turned) >= _width(here) else turned


def _width(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))


def spread(values: Sequence[float]) -> str:
    """`0.52 ±0.03`: the mean and the standard deviation, if seeds differ; nothing where there is no value."""
    if not values:
        return ""
    mean = math.fsum(values) / len(values)
    shown = f"{mean:,.0f}" if 1000 <= abs(mean) < 1e6 else f"{mean:.3g}"
    if len(set(values)) == 1:
        return shown
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{shown} ±{deviation:,.0f}" if 1 <= deviation < 1e6 else f"{shown} ±{deviation:.1g}"


def by_seed(outcome: RequirementOutcome) -> str:
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
            f"    by seed: {by_seed(one)}; {one.requirement.bounds} ({one.requirement.because})",
        ]
    return [*lines, *([f"  {about.caveat}"] if about.caveat else [])]
