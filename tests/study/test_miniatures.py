"""Every study in miniature, from the first cell to the charts, including requirements that pass at any size."""

from pathlib import Path

import pytest

from clearhead.study import registry
from clearhead.study.harness import runner
from clearhead.study.harness.results import table_rows

QUICK = ("order", "mask", "parallel", "scale", "bottleneck")  # the other studies train several models


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in registry.STUDIES]
)
def test_runs_in_miniature(name: str, tmp_path: Path) -> None:
    study = registry.get_study(name, "miniature")
    results = runner.run(study, tmp_path, runner.make_plan(study, "miniature"), threads=1)
    assert not results.missing_cells()
    table = table_rows(results)
    assert len(table) == len(study.conditions) + 1 and all(len(row) == len(table[0]) for row in table)
    assert [path.suffix for path in runner.save_charts(results)][:2] == [".png", ".svg"]
    judged = results.judge()
    for outcome in judged.outcomes:
        assert None not in outcome.values.values(), f"{outcome.requirement.statement}: not measured"
    always_passed = {"order": 3, "mask": 3, "positions": 2, "scaling": 2, "scale": 1}  # number of leading requirements
    assert all(outcome.status == "passed" for outcome in judged.outcomes[: always_passed.get(name, 0)]), judged
