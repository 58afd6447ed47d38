"""Cells side by side, in processes of their own."""

import json
import multiprocessing
import time
from pathlib import Path

import pytest

from clearhead.errors import DataError, StudyError
from clearhead.study.harness import runner
from clearhead.study.harness.results import RESULT_FILE, Results
from tests.study.test_harness import Heard
from tests.study.toy import Beside


def run(toy: Beside, folder: Path, watcher: runner.NullStudyCallback | None = None) -> Results:
    return runner.run(toy, folder, runner.make_plan(toy, "default"), watcher, threads=2)


def test_two_cells_are_at_work_at_a_time_with_one_thread_each(tmp_path: Path) -> None:
    meeting, heard = tmp_path / "meeting", Heard()
    meeting.mkdir()
    results = run(Beside(meeting=str(meeting)), tmp_path / "toy", heard)
    assert results.findings.values("near", "x") == [4.0, 5.0] and results.judge().verdict == "holds"
    assert [str(cell) for cell in results.cells] == [str(cell) for cell in results.all_cells()]
    assert all(one.name.endswith(" 1 1") for one in meeting.iterdir())
    assert not (tmp_path / "toy" / runner.WORK_FOLDER).exists()
    assert [done for _, done, _, _ in heard.cells] == [0, 1, 2, 3]
    assert heard.cells[0][3] == pytest.approx(120, abs=1)  # four cells of a minute for two
    assert heard.parts and all(left >= 499 for _, left in heard.parts[:1]), "as long as its training says"


def test_a_cell_that_was_killed_leaves_the_others_and_can_be_made_up_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"far, seed 1 was killed.*same command"):
        run(Beside(dies_at="far 1"), tmp_path)
    record = json.loads((tmp_path / RESULT_FILE).read_text())
    assert ("far", 1) not in [(one["condition"], one["seed"]) for one in record["cells"]]
    assert not run(Beside(), tmp_path).missing()


def test_what_a_user_can_cause_keeps_its_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to read"):
        run(Beside(wrong="near 2"), tmp_path)


def test_a_training_does_not_outlive_the_study(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DataError, match="nothing to read"):
        run(Beside(wrong="far 1", trains="near 1"), tmp_path)
    assert time.monotonic() - began < 300, "the other cell sleeps for 600 seconds"
    assert not multiprocessing.active_children()


def test_a_process_that_dies_before_it_works_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="was killed"):
        run(Beside(is_stillborn=True), tmp_path)


def test_more_seeds_take_more_time_not_less_each(tmp_path: Path) -> None:
    plan = runner.make_plan(Beside(), "default", seeds=4)
    heard = Heard()
    runner.run(Beside(), tmp_path, plan, heard, threads=2)
    assert heard.cells[0][3] == pytest.approx(240, abs=1)
