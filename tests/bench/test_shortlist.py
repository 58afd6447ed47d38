"""Benchmark of shortlists on a small model: all variants are measured equally often and compared within rounds."""

import json
from pathlib import Path

import pytest
from benchmarks import shortlist
from benchmarks.shortlist import Variant, render

from tests.trained_model import Trained


def test_shortlist_and_whole_vocabulary_are_measured(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "numbers.json"
    shortlist.main([str(trained.folder), "--pairs", str(trained.train), "--test", str(trained.test), "--best", "10",
                    "--beams", "1", "--rounds", "2", "--every", "20", "--cores", "1", "--out", str(out)])  # fmt: skip
    record = json.loads(out.read_text())
    plain, listed = (Variant(**variant) for variant in record["variants"])
    assert (plain.name, listed.name) == ("whole vocabulary", "best 10") and record["sentences"] == 40
    assert plain.list_size > 600 > 300 > listed.list_size > 10
    assert [len(variant.seconds) + len(variant.seconds_one_by_one) for variant in (plain, listed)] == [4, 4]
    assert plain.differing == 0 and 0 <= listed.differing <= 40
    assert capsys.readouterr().out.count("\n") == 4


def test_ratios_are_taken_within_a_round() -> None:
    """A round that is slow for both variants does not change the ratio."""
    plain = Variant("whole", 4, 6000.0, [2.0, 20.0, 3.0], [4.0, 4.0, 4.0], 40.0, 0)
    listed = Variant("best", 4, 300.0, [1.0, 10.0, 1.0], [2.0, 8.0, 4.0], 39.5, 7)
    *_, last = render([plain, listed]).splitlines()
    assert [cell.strip() for cell in last.strip("| ").split("|")] == [
        "4", "best", "300", "2.00", "1.00", "39.50", "0.50", "7",
    ]  # fmt: skip
