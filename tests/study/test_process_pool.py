"""Cells measured in parallel by separate processes."""

import json
import multiprocessing
import time
from pathlib import Path

import pytest

from clearhead.errors import DataError, StudyError
from clearhead.study.harness import runner
from clearhead.study.harness.results import RESULT_FILE, Results
from tests.study.test_harness import RecordingCallback
from tests.study.toy import ParallelToyStudy


def run(toy: ParallelToyStudy, folder: Path, callback: runner.NullStudyCallback | None = None) -> Results:
    return runner.run(toy, folder, runner.make_plan(toy, "default"), callback, threads=2)


def test_two_cells_run_at_a_time_with_one_thread_each(tmp_path: Path) -> None:
    meeting, callback = tmp_path / "meeting", RecordingCallback()
    meeting.mkdir()
    results = run(ParallelToyStudy(meeting=str(meeting)), tmp_path / "toy", callback)
    assert results.findings.values("near", "x") == [4.0, 5.0] and results.judge().verdict == "holds"
    assert [str(cell) for cell in results.cells] == [str(cell) for cell in results.all_cells()]
    assert all(path.name.endswith(" 1 1") for path in meeting.iterdir())
    assert not (tmp_path / "toy" / runner.WORK_FOLDER).exists()
    assert [done for _, done, _, _ in callback.cells] == [0, 1, 2, 3]
    assert callback.cells[0][3] == pytest.approx(120, abs=1)  # four cells of one minute on two processes
    assert callback.parts and all(left >= 499 for _, left in callback.parts[:1]), "the time reported by the training"


def test_a_killed_cell_does_not_affect_the_others_and_can_be_measured_later(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"far, seed 1 was killed.*same command"):
        run(ParallelToyStudy(dies_at="far 1"), tmp_path)
    record = json.loads((tmp_path / RESULT_FILE).read_text())
    assert ("far", 1) not in [(cell["condition"], cell["seed"]) for cell in record["cells"]]
    assert not run(ParallelToyStudy(), tmp_path).missing_cells()


def test_user_errors_keep_their_type(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to read"):
        run(ParallelToyStudy(fails_at="near 2"), tmp_path)


def test_a_training_does_not_outlive_the_study(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match="nothing to read"):
        run(ParallelToyStudy(fails_at="far 1", trains_at="near 1"), tmp_path)
    assert time.monotonic() - start < 300, "the other cell sleeps for 600 seconds"
    assert not multiprocessing.active_children()


def test_a_process_that_dies_before_its_first_message_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="was killed"):
        run(ParallelToyStudy(dies_at_start=True), tmp_path)


def test_more_seeds_take_more_time_and_do_not_shorten_each(tmp_path: Path) -> None:
    plan = runner.make_plan(ParallelToyStudy(), "default", seeds=4)
    callback = RecordingCallback()
    runner.run(ParallelToyStudy(), tmp_path, plan, callback, threads=2)
    assert callback.cells[0][3] == pytest.approx(240, abs=1)
