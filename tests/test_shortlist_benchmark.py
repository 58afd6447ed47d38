"""The benchmark of shortlists, in miniature: every way is measured as often, and the table compares within rounds."""

import json
from pathlib import Path

import pytest
from benchmarks import shortlist
from benchmarks.shortlist import Way, render

from tests.trained_model import Trained


def test_a_list_of_few_pieces_is_measured_beside_the_whole(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "numbers.json"
    shortlist.main([str(trained.folder), "--pairs", str(trained.train), "--test", str(trained.test), "--best", "10",
                    "--beams", "1", "--rounds", "2", "--every", "20", "--cores", "1", "--out", str(out)])  # fmt: skip
    record = json.loads(out.read_text())
    plain, listed = (Way(**way) for way in record["ways"])
    assert (plain.name, listed.name) == ("whole vocabulary", "best 10") and record["sentences"] == 40
    assert plain.listed > 600 > 300 > listed.listed > 10
    assert [len(way.seconds) + len(way.seconds_one_by_one) for way in (plain, listed)] == [4, 4]
    assert plain.differing == 0 and 0 <= listed.differing <= 40
    assert capsys.readouterr().out.count("\n") == 4


def test_ratios_are_taken_within_a_round() -> None:
    """The second round was slow for both: that says nothing about either."""
    plain = Way("whole", 4, 6000.0, [2.0, 20.0, 3.0], [4.0, 4.0, 4.0], 40.0, 0)
    listed = Way("best", 4, 300.0, [1.0, 10.0, 1.0], [2.0, 8.0, 4.0], 39.5, 7)
    *_, last = render([plain, listed]).splitlines()
    assert [cell.strip() for cell in last.strip("| ").split("|")] == [
        "4", "best", "300", "2.00", "1.00", "39.50", "0.50", "7",
    ]  # fmt: skip
