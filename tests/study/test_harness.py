"""Decision rules, result files, resuming and charts, with a study that takes no time."""

import json
import multiprocessing
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from clearhead.cli.main import main
from clearhead.errors import StudyError
from clearhead.study import registry
from clearhead.study.harness import runner
from clearhead.study.harness.charts import Chart, Series, _draw_chart, draw
from clearhead.study.harness.protocol import (
    CORES,
    LIGHT_MINUTES,
    Cell,
    DecisionRule,
    Numbers,
    Requirement,
    StudyContext,
    cell_minutes,
)
from clearhead.study.harness.results import (
    RESULT_FILE,
    Results,
    fit_width,
    format_mean,
    open_results,
    table_rows,
    verdict_lines,
)
from clearhead.training.loop.callbacks import Progress
from tests.study.toy import INFO, ParallelToyStudy, ToyStudy

pytestmark = pytest.mark.forks

HIGH = Requirement("high", lambda runs: runs["a"]["x"], 2.0, 1.0, "")
LOW = Requirement("low", lambda runs: runs["a"]["x"], 1.0, 2.0, "")


@pytest.mark.parametrize(
    ("requirement", "values", "status"),
    [
        (HIGH, (2.0, 3.0), "passed"), (HIGH, (1.0, 0.0), "failed"), (HIGH, (1.5, 1.5), "inconclusive"),
        (HIGH, (2.0, 1.0), "inconclusive"), (HIGH, (2.0, 1.5), "inconclusive"), (HIGH, (2.0, None), "inconclusive"),
        (HIGH, (1.0, None), "inconclusive"), (HIGH, (), "inconclusive"),
        (LOW, (1.0, 0.0), "passed"), (LOW, (2.0, 3.0), "failed"), (LOW, (1.5,), "inconclusive"),
        (LOW, (1.0, 2.0), "inconclusive"),
    ],
)  # fmt: skip
def test_seeds_must_agree(requirement: Requirement, values: tuple[float | None, ...], status: str) -> None:
    by_seed = {seed: {} if x is None else {"a": {"x": x}} for seed, x in enumerate(values, 1)}
    assert DecisionRule((requirement,)).judge(by_seed).outcomes[0].status == status


@pytest.mark.parametrize(
    ("x", "y", "verdict"),
    [(2, 2, "holds"), (2, 1, "does not hold here"), (1.5, 1, "does not hold here"), (2, 1.5, "not decided")],
)
def test_one_failed_requirement_is_enough(x: float, y: float, verdict: str) -> None:
    other = Requirement("also", lambda runs: runs["a"]["y"], 2.0, 1.0, "")
    assert DecisionRule((HIGH, other)).judge({1: {"a": {"x": x, "y": y}}}).verdict == verdict


def run(toy: ToyStudy, folder: Path, seeds: int = 2) -> Results:
    return runner.run(toy, folder, runner.make_plan(toy, "default", seeds=seeds), threads=1)


def test_a_killed_run_resumes_at_the_next_cell(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    child = multiprocessing.get_context("fork").Process(target=run, args=(ToyStudy(dies_at="near 2"), folder))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    record = json.loads((folder / RESULT_FILE).read_text())
    assert [(cell["condition"], cell["seed"]) for cell in record["cells"]] == [("near", 1), ("far", 1)]
    assert (record["is_finished"], record["verdict"]) == (False, "not decided")
    resumed = run(ToyStudy(gap=5.0), folder)  # cells that were measured keep their numbers
    assert resumed.findings.values("near", "x") == [4.0, 7.0]
    assert not resumed.missing_cells() and not (folder / runner.WORK_FOLDER).exists()


def test_seeds_can_be_added(tmp_path: Path) -> None:
    run(ToyStudy(), tmp_path, seeds=1)
    more = run(ToyStudy(gap=9.0), tmp_path, seeds=3)
    assert more.findings.values("near", "x") == [4.0, 11.0, 12.0]
    assert run(ToyStudy(dies_at="near 1"), tmp_path, seeds=3).cells == more.cells


def test_content_of_the_result_file(tmp_path: Path) -> None:
    run(ToyStudy(), tmp_path)
    record: dict[str, Any] = json.loads((tmp_path / RESULT_FILE).read_text())
    assert {name: type(value) for name, value in record.items()} == {
        "format": int, "study": str, "claim_id": str, "claim": str, "caveat": str, "plan": dict, "is_finished": bool,
        "verdict": str, "rule": list, "cells": list,
    }  # fmt: skip
    assert record["plan"] == {"minutes": 2.0, "seeds": 2, "size": "default"}
    assert record["verdict"] == "holds" and record["is_finished"]
    assert record["rule"] == [{"statement": "near is above far", "pass_bound": 1.0, "fail_bound": 0.0,
                               "reason": "some reason", "values": {"1": 3.0, "2": 3.0},
                               "status": "passed"}]  # fmt: skip
    assert record["cells"][1]["numbers"] == {"x": 1.0} and record["cells"][1]["seconds"] >= 0


def test_other_settings_and_broken_files_are_refused(tmp_path: Path) -> None:
    toy = ToyStudy()
    run(toy, tmp_path)
    with pytest.raises(StudyError, match="2 minutes at size default, but 3 minutes at size default are requested"):
        open_results(tmp_path, toy, runner.make_plan(toy, "default", minutes=3))
    with pytest.raises(StudyError, match=r"expected results of the study order in .*, found toy"):
        order = registry.get_study("order")
        open_results(tmp_path, order, runner.make_plan(order, "default"))
    for text in ("", "{}", '{"format": 9}', '{"format": 2, "study": "toy", "plan": {}, "cells": []}'):
        (tmp_path / RESULT_FILE).write_text(text)
        with pytest.raises(StudyError, match="choose another folder with --out"):
            open_results(tmp_path, toy, runner.make_plan(toy, "default"))


@pytest.mark.parametrize(("minutes", "seeds"), [(0, None), (-1, None), (None, 0)])
def test_invalid_plans(minutes: float | None, seeds: int | None) -> None:
    with pytest.raises(StudyError, match="leave --"):
        runner.make_plan(ToyStudy(), "default", minutes, seeds)


def test_charts_are_saved_as_images(tmp_path: Path) -> None:
    run(ToyStudy(), tmp_path)
    with Image.open(tmp_path / "toy.png") as image:
        assert image.size == (1050, 660)
        grays = image.convert("L").getcolors(1 << 20)
    assert grays is not None and len(grays) > 20
    svg = (tmp_path / "toy.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg.count("stroke-dasharray") >= 1, "lines differ in style as well as in color"


def test_table_and_verdict_as_text(tmp_path: Path) -> None:
    results = run(ToyStudy(), tmp_path)
    assert table_rows(results) == [["", "the x"], ["near", "4.5 ±0.7"], ["far", "1.5 ±0.7"]]
    assert format_mean([]) == "" and format_mean([0.1234]) == "0.123"
    assert format_mean([51234.0, 51234.0]) == "51,234" and format_mean([1.75e11]) == "1.75e+11"
    assert format_mean([50.0, 80.0]) == "65 ±21"
    text = "\n".join(verdict_lines(results))
    assert "verdict: holds" in text and "pass if >= 1, fail if <= 0" in text and "only a toy" in text


def test_categories_are_not_joined() -> None:
    points = [(0, [1.0, 1.0]), (1, [3.0, 5.0]), (2, [2.0, 2.5])]
    joined = Chart("c", "c", "", "", [Series("one", points)], ticks=("a", "b", "c"))
    apart = draw(replace(joined, is_joined=False), "svg").decode()
    line, dots = draw(joined, "svg").decode(), apart
    assert line.count("FillBetweenPolyCollection") == 1 and "FillBetweenPolyCollection" not in dots
    assert "LineCollection" in dots, "bars from the lowest to the highest seed"


def test_ticks_of_integers_are_integers() -> None:
    chart = Chart("c", "c", "layer", "", [Series("one", [(0, [1.0]), (1, [2.0]), (2, [1.0])])])
    figure = Figure()
    axes = figure.subplots()
    _draw_chart(axes, chart)
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_wide_tables_are_transposed() -> None:
    wide = [["", "first", "second", "third"], ["near", "1", "2", "3"]]
    assert fit_width(wide, 80) == wide
    assert fit_width(wide, 20) == [["", "near"], ["first", "1"], ["second", "2"], ["third", "3"]]
    tall = [list(column) for column in zip(*wide, strict=True)]
    assert fit_width(tall, 5) == tall, "transposing would make it wider"


class RecordingCallback(runner.NullStudyCallback):
    def __init__(self) -> None:
        self.cells: list[tuple[Cell, int, int, float]] = []

        self.parts: list[tuple[float, float]] = []

    def cell_started(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        self.cells.append((cell, done, total, seconds_left))

    def progress(self, done: float, seconds_left: float) -> None:
        self.parts.append((done, seconds_left))


def test_the_time_left_is_the_budget_at_first_and_measured_later(tmp_path: Path) -> None:
    callback = RecordingCallback()
    runner.run(ToyStudy(), tmp_path, runner.make_plan(ToyStudy(), "default"), callback, 1)
    assert [(done, total) for _, done, total, _ in callback.cells] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert callback.cells[0][3] == pytest.approx(120.0)
    assert callback.cells[3][3] < 10


class TwoTrainingsToyStudy(ToyStudy):
    """Two trainings of three updates each in every cell."""

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        for step in (1, 2, 3, 1, 2, 3):
            time.sleep(0.002)
            context.callback.progress(Progress(step, 3, 0, 1.0, 0.1, 10.0, "tok", 1.0, 1.0 * (3 - step), None))
        return super().measure(condition, seed, context)


def test_progress_increases_over_several_trainings(tmp_path: Path) -> None:
    callback = RecordingCallback()
    runner.run(TwoTrainingsToyStudy(), tmp_path, runner.make_plan(TwoTrainingsToyStudy(), "default"), callback, 1)
    assert len(callback.parts) == 24
    first = callback.parts[:6]  # the cell has a budget of 30 seconds and three more cells follow
    assert all(0 < done < 0.01 for done, _ in first) and [done for done, _ in first] == sorted(d for d, _ in first)
    assert all(119 < left < 120 for _, left in first)
    assert callback.parts[-1][0] > callback.parts[-7][0] >= 2


def test_light_conditions_leave_their_time_to_the_others() -> None:
    assert cell_minutes(ToyStudy(), "near", minutes=2.0) == 0.5
    light = ToyStudy(info=replace(INFO, light_conditions=("far",)))
    assert cell_minutes(light, "near", 2.0) == 1.0
    assert cell_minutes(light, "far", 2.0) == LIGHT_MINUTES


def test_parallel_cells_have_one_core_each() -> None:
    assert cell_minutes(ParallelToyStudy(), "near", minutes=2.0) == 0.5 * CORES


def test_the_command_lists_studies_and_reports_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["study"]) == 0
    listed = capsys.readouterr()
    assert all(name in listed.out for name in registry.STUDIES)
    total = sum(sizes["default"].minutes for sizes in registry.STUDIES.values())
    assert f"all 15: at most {total:.0f} minutes" in listed.err
    assert main(["study", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == [*registry.STUDIES]
    assert main(["study", "ordre"]) == 2
    assert "did you mean order?" in capsys.readouterr().err
    assert main(["study", "order", "--seeds", "0", "--out", str(tmp_path)]) == 2


def test_every_study_fits_its_budget_and_has_a_description() -> None:
    claims = [sizes["default"].info.claim_id for sizes in registry.STUDIES.values()]
    assert len(set(claims)) == len(claims)
    for name, sizes in registry.STUDIES.items():
        default = sizes["default"]
        assert default.info.name == name
        assert default.minutes <= 15 < 16 and default.minutes <= sizes["full"].minutes
        assert default.info.rule.requirements and all(
            requirement.reason for requirement in default.info.rule.requirements
        )
        assert len(set(default.conditions)) == len(default.conditions)
        assert set(default.info.light_conditions) < set(default.conditions)
