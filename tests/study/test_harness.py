"""Rules, files, resuming and pictures, on a study that costs nothing."""

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
from tests.study.toy import ABOUT, Beside, Toy

pytestmark = pytest.mark.forks

HIGH = Requirement("high", lambda seen: seen["a"]["x"], 2.0, 1.0, "")
LOW = Requirement("low", lambda seen: seen["a"]["x"], 1.0, 2.0, "")


@pytest.mark.parametrize(
    ("requirement", "values", "standing"),
    [
        (HIGH, (2.0, 3.0), "met"), (HIGH, (1.0, 0.0), "failed"), (HIGH, (1.5, 1.5), "open"),
        (HIGH, (2.0, 1.0), "open"), (HIGH, (2.0, 1.5), "open"), (HIGH, (2.0, None), "open"),
        (HIGH, (1.0, None), "open"), (HIGH, (), "open"),
        (LOW, (1.0, 0.0), "met"), (LOW, (2.0, 3.0), "failed"), (LOW, (1.5,), "open"), (LOW, (1.0, 2.0), "open"),
    ],
)  # fmt: skip
def test_seeds_must_agree(requirement: Requirement, values: tuple[float | None, ...], standing: str) -> None:
    seen = {seed: {} if x is None else {"a": {"x": x}} for seed, x in enumerate(values, 1)}
    assert DecisionRule((requirement,)).judge(seen).outcomes[0].standing == standing


@pytest.mark.parametrize(
    ("x", "y", "verdict"),
    [(2, 2, "holds"), (2, 1, "does not hold here"), (1.5, 1, "does not hold here"), (2, 1.5, "not decided")],
)
def test_one_failed_requirement_is_enough(x: float, y: float, verdict: str) -> None:
    other = Requirement("also", lambda seen: seen["a"]["y"], 2.0, 1.0, "")
    assert DecisionRule((HIGH, other)).judge({1: {"a": {"x": x, "y": y}}}).verdict == verdict


def run(toy: Toy, folder: Path, seeds: int = 2) -> Results:
    return runner.run(toy, folder, runner.make_plan(toy, "default", seeds=seeds), threads=1)


def test_a_killed_run_goes_on_between_cells(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    child = multiprocessing.get_context("fork").Process(target=run, args=(Toy(dies_at="near 2"), folder))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    record = json.loads((folder / RESULT_FILE).read_text())
    assert [(one["condition"], one["seed"]) for one in record["cells"]] == [("near", 1), ("far", 1)]
    assert (record["is_finished"], record["verdict"]) == (False, "not decided")
    resumed = run(Toy(gap=5.0), folder)  # what was measured is not measured again
    assert resumed.findings.values("near", "x") == [4.0, 7.0]
    assert not resumed.missing() and not (folder / runner.WORK_FOLDER).exists()


def test_seeds_can_be_added(tmp_path: Path) -> None:
    run(Toy(), tmp_path, seeds=1)
    more = run(Toy(gap=9.0), tmp_path, seeds=3)
    assert more.findings.values("near", "x") == [4.0, 11.0, 12.0]
    assert run(Toy(dies_at="near 1"), tmp_path, seeds=3).cells == more.cells


def test_the_file_holds_everything(tmp_path: Path) -> None:
    run(Toy(), tmp_path)
    record: dict[str, Any] = json.loads((tmp_path / RESULT_FILE).read_text())
    assert {name: type(value) for name, value in record.items()} == {
        "format": int, "study": str, "claim_id": str, "claim": str, "caveat": str, "plan": dict, "is_finished": bool,
        "verdict": str, "rule": list, "cells": list,
    }  # fmt: skip
    assert record["plan"] == {"minutes": 2.0, "seeds": 2, "size": "default"}
    assert record["verdict"] == "holds" and record["is_finished"]
    assert record["rule"] == [{"says": "near lies above far", "met": 1.0, "failed": 0.0, "because": "so",
                               "values": {"1": 3.0, "2": 3.0}, "standing": "met"}]  # fmt: skip
    assert record["cells"][1]["numbers"] == {"x": 1.0} and record["cells"][1]["seconds"] >= 0


def test_other_settings_and_broken_files_are_refused(tmp_path: Path) -> None:
    toy = Toy()
    run(toy, tmp_path)
    with pytest.raises(StudyError, match="2 minutes at size default, now it is 3"):
        open_results(tmp_path, toy, runner.make_plan(toy, "default", minutes=3))
    with pytest.raises(StudyError, match="holds the study toy, not order"):
        order = registry.get_study("order")
        open_results(tmp_path, order, runner.make_plan(order, "default"))
    for text in ("", "{}", '{"format": 9}', '{"format": 1, "study": "toy", "plan": {}, "cells": []}'):
        (tmp_path / RESULT_FILE).write_text(text)
        with pytest.raises(StudyError, match="choose another --out"):
            open_results(tmp_path, toy, runner.make_plan(toy, "default"))


@pytest.mark.parametrize(("minutes", "seeds"), [(0, None), (-1, None), (None, 0)])
def test_plans_that_cannot_be(minutes: float | None, seeds: int | None) -> None:
    with pytest.raises(StudyError, match="leave --"):
        runner.make_plan(Toy(), "default", minutes, seeds)


def test_pictures_are_real(tmp_path: Path) -> None:
    run(Toy(), tmp_path)
    with Image.open(tmp_path / "toy.png") as picture:
        assert picture.size == (1050, 660)
        greys = picture.convert("L").getcolors(1 << 20)
    assert greys is not None and len(greys) > 20
    svg = (tmp_path / "toy.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg.count("stroke-dasharray") >= 1, "lines differ in style, not in colour alone"


def test_table_and_verdict_as_text(tmp_path: Path) -> None:
    results = run(Toy(), tmp_path)
    assert table_rows(results) == [["", "the x"], ["near", "4.5 ±0.7"], ["far", "1.5 ±0.7"]]
    assert format_mean([]) == "" and format_mean([0.1234]) == "0.123"
    assert format_mean([51234.0, 51234.0]) == "51,234" and format_mean([1.75e11]) == "1.75e+11"
    assert format_mean([50.0, 80.0]) == "65 ±21"
    text = "\n".join(verdict_lines(results))
    assert "verdict: holds" in text and "met from 1, failed up to 0" in text and "only a toy" in text


def test_categories_are_not_joined() -> None:
    points = [(0, [1.0, 1.0]), (1, [3.0, 5.0]), (2, [2.0, 2.5])]
    joined = Chart("c", "c", "", "", [Series("one", points)], ticks=("a", "b", "c"))
    apart = draw(replace(joined, is_joined=False), "svg").decode()
    line, dots = draw(joined, "svg").decode(), apart
    assert line.count("FillBetweenPolyCollection") == 1 and "FillBetweenPolyCollection" not in dots
    assert "LineCollection" in dots, "bars from the lowest to the highest seed"


def test_places_are_whole_numbers() -> None:
    chart = Chart("c", "c", "layer", "", [Series("one", [(0, [1.0]), (1, [2.0]), (2, [1.0])])])
    figure = Figure()
    axes = figure.subplots()
    _draw_chart(axes, chart)
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_wide_tables_are_turned() -> None:
    wide = [["", "first", "second", "third"], ["near", "1", "2", "3"]]
    assert fit_width(wide, 80) == wide
    assert fit_width(wide, 20) == [["", "near"], ["first", "1"], ["second", "2"], ["third", "3"]]
    tall = [list(column) for column in zip(*wide, strict=True)]
    assert fit_width(tall, 5) == tall, "it would only get wider"


class Heard(runner.NullStudyCallback):
    def __init__(self) -> None:
        self.cells: list[tuple[Cell, int, int, float]] = []

        self.parts: list[tuple[float, float]] = []

    def cell(self, cell: Cell, done: int, total: int, seconds_left: float) -> None:
        self.cells.append((cell, done, total, seconds_left))

    def part(self, done: float, seconds_left: float) -> None:
        self.parts.append((done, seconds_left))


def test_the_time_left_is_the_budget_at_first_and_measured_later(tmp_path: Path) -> None:
    heard = Heard()
    runner.run(Toy(), tmp_path, runner.make_plan(Toy(), "default"), heard, 1)
    assert [(done, total) for _, done, total, _ in heard.cells] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert heard.cells[0][3] == pytest.approx(120.0)
    assert heard.cells[3][3] < 10


class TrainsTwice(Toy):
    """In each cell two trainings of three updates, one behind the other."""

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        for step in (1, 2, 3, 1, 2, 3):
            time.sleep(0.002)
            bench.watcher.progress(Progress(step, 3, 0, 1.0, 0.1, 10.0, "tok", 1.0, 1.0 * (3 - step), None))
        return super().measure(condition, seed, bench)


def test_progress_goes_on_through_several_trainings(tmp_path: Path) -> None:
    heard = Heard()
    runner.run(TrainsTwice(), tmp_path, runner.make_plan(TrainsTwice(), "default"), heard, 1)
    assert len(heard.parts) == 24
    first = heard.parts[:6]  # its time is 30 seconds, and three more cells come
    assert all(0 < done < 0.01 for done, _ in first) and [done for done, _ in first] == sorted(d for d, _ in first)
    assert all(119 < left < 120 for _, left in first)
    assert heard.parts[-1][0] > heard.parts[-7][0] >= 2


def test_light_conditions_leave_their_time_to_the_others() -> None:
    assert cell_minutes(Toy(), "near", minutes=2.0) == 0.5
    light = Toy(about=replace(ABOUT, light=("far",)))
    assert cell_minutes(light, "near", 2.0) == 1.0
    assert cell_minutes(light, "far", 2.0) == LIGHT_MINUTES


def test_cells_that_run_side_by_side_have_a_core_each() -> None:
    assert cell_minutes(Beside(), "near", minutes=2.0) == 0.5 * CORES


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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


def test_every_study_fits_its_budget_and_says_what_it_is() -> None:
    claims = [sizes["default"].about.claim_id for sizes in registry.STUDIES.values()]
    assert len(set(claims)) == len(claims)
    for name, sizes in registry.STUDIES.items():
        default = sizes["default"]
        assert default.about.name == name
        assert default.minutes <= 15 < 16 and default.minutes <= sizes["full"].minutes
        assert default.about.rule.requirements and all(one.because for one in default.about.rule.requirements)
        assert len(set(default.conditions)) == len(default.conditions)
        assert set(default.about.light) < set(default.conditions)
