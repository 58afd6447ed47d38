"""Training speed relative to another commit: intervals, order of measurements, and a complete quick run."""

import math
from pathlib import Path

import pytest
import torch
from benchmarks import against
from benchmarks.harness.processes import ROOT
from benchmarks.report import render_record
from scipy.stats import ttest_1samp  # type: ignore[import-untyped]

from clearhead.grammar import generate


def test_confidence_interval_equals_students_t() -> None:
    ratios = [0.97, 1.02, 0.99, 1.05, 0.96]
    expected = ttest_1samp([math.log(each) for each in ratios], 0.0).confidence_interval(0.95)
    mean, low, high = against.confidence_interval(ratios)
    assert (low, high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert mean == pytest.approx(math.prod(ratios) ** 0.2)
    assert against.confidence_interval([1.5]) == (1.5, 0.0, math.inf), "one pair has no spread"


def test_the_side_that_is_measured_first_alternates() -> None:
    calls: list[str] = []

    def measure(side: str) -> float:
        calls.append(side)
        return float(len(calls))

    pairs = against.alternate(3, lambda: measure("new"), lambda: measure("old"))
    assert calls == ["new", "old", "old", "new", "new", "old"]
    assert pairs == [(1.0, 2.0), (4.0, 3.0), (5.0, 6.0)]


def test_the_table_has_ratio_and_interval() -> None:
    host = {"cores": 2, "processor": "p", "instructions": "i", "torch": "t", "python": "3"}
    shown = render_record(
        {
            "benchmark": "against", "date": "today", "machine": host, "is_quick": False, "commits": ["abc", "def"],
            "pairs": {"tiny": [[200.0, 100.0], [100.0, 100.0]], "tag": [[3.0, 4.0]]},
        }
    )  # fmt: skip
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if "/" not in line]
    assert "new abc, old def" in shown and "meaningless" not in shown
    assert ["tiny", "target tokens", "150", "100", "2", "1.414"] in [row[:6] for row in rows]
    assert ["tag", "updates", "3", "4", "1", "0.750", "0.000..inf"] in rows


@pytest.mark.slow
def test_a_quick_run_against_the_same_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [*generate(400, 1, "train")]
    for name in ("train.en", "train.de", "val.en", "val.de"):
        side = "source" if name.endswith("en") else "target"
        (tmp_path / name).write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    threads = torch.get_num_threads()
    against.main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--baseline", str(ROOT), "--quick",
                  "--shapes", "tiny", "--tasks", f"mlm={tmp_path / 'train.en'}", "--cores", "2"])  # fmt: skip
    torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "| tiny " in out and "| mlm " in out and "the numbers are meaningless" in out
