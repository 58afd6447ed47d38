"""Benchmark of the start-up time: imports are summed by package, and budgets are checked."""

from collections import Counter

from benchmarks.startup import BUDGETS, Startup, exceeded, render, sum_imports

REPORT = """import time: self [us] | cumulative | imported package
import time:       100 |        100 |   numpy._core
import time:      2000 |       2100 | numpy
warning: something else
import time:        30 |         30 |     _json
import time:        50 |         80 |   json
"""


def test_imports_are_added_up_by_package() -> None:
    assert sum_imports(REPORT) == Counter(numpy=2100, json=80)


def test_budgets_are_checked_one_by_one() -> None:
    assert exceeded(Startup([0.3, 9.0, 0.4], sum_imports(REPORT))) == []
    slow = Startup([1.2, 1.1, 1.3], Counter(numpy=1000 * BUDGETS["numpy"] + 1, torch=5, rich=1, json=900_000))
    problems = exceeded(slow)
    assert problems[:2] == ["1.20 s of CPU time; the budget is 1.00 s", "torch is imported"]
    assert [problem.partition(":")[0] for problem in problems[2:]] == ["numpy", "rich", "other packages"]
    assert "1.20 s of CPU time (1.10, 1.20, 1.30)" in render(slow) and "900.0" in render(slow)
