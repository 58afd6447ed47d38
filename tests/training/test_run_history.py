"""Tables, curves and event files of runs show the recorded metrics."""

import json
import struct
import sys
import threading
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.cli.plot import draw
from clearhead.study.harness.charts import Chart, Series
from clearhead.training.checkpoint.run_folder import EVENTS, EventFiles, scalars
from clearhead.training.checkpoint.run_history import find_runs, locked, read_curves, read_run
from tests.training.runs import RecordingCallback, run, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a finished run, one stopped before its first validation, and one with metrics only."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_data("classify", folder / "data")
    run("classify", data, folder / "done")
    run("classify", data, folder / "deep" / "stopped", RecordingCallback(3))
    (folder / "begun").mkdir()
    (folder / "begun" / "metrics.jsonl").write_bytes(b"")
    return folder


def test_runs_are_found_at_any_depth(folder: Path) -> None:
    runs = {Path(run.folder).name: run for run in find_runs([folder, folder / "deep"])}
    assert list(runs) == ["begun", "stopped", "done"]
    done, stopped, begun = runs["done"], runs["stopped"], runs["begun"]
    assert (done.state, done.task, done.step, done.steps) == ("finished", "classify", 13, 13)
    assert (stopped.state, stopped.step, stopped.steps) == ("stopped", 3, 13)
    assert (begun.state, begun.step, begun.score) == ("stopped", None, None)
    assert done.parameters == stopped.parameters and done.parameters and done.minutes is not None
    manifest = json.loads((folder / "done" / "manifest.json").read_text())["training"]
    assert done.score == manifest["scores"]["accuracy"]["score"] and done.score_name == "accuracy"


def test_running_and_stopped_runs_are_distinguished(folder: Path) -> None:
    with locked(folder / "deep" / "stopped"):
        assert read_run(folder / "deep" / "stopped").state == "running"
    assert read_run(folder / "deep" / "stopped").state == "stopped"


def test_a_damaged_run_is_listed_with_its_problem(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    content = (folder / "done" / "training" / "state.json").read_bytes()
    (tmp_path / "training" / "state.json").write_bytes(content[:-9] + b"x" + content[-8:])
    status = read_run(tmp_path)
    assert status.state == "damaged" and status.problem and "state.json is damaged" in status.problem


def test_runs_as_a_table_and_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "task", "state", "updates", "best", "score", "minutes", "parameters"]
    assert any("finished" in line and "13 of 13" in line and "accuracy" in line for line in lines)
    assert main(["runs", "--json", str(folder)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in record] == ["stopped", "stopped", "finished"]
    assert main(["runs", str(folder / "nowhere")]) == 2
    assert "does not exist; expected a folder with runs" in capsys.readouterr().err
    assert main(["runs", str(folder / "data")]) == 0
    assert capsys.readouterr().out.startswith("no training runs found in ")


def test_curves_are_the_metrics(folder: Path) -> None:
    entries = [json.loads(line) for line in (folder / "done" / "metrics.jsonl").read_text().splitlines()]
    curves = read_curves(folder / "done")
    assert curves.loss == [(entry["step"], entry["loss"]) for entry in entries if "loss" in entry]
    assert [step for step, _ in curves.score] == [4, 8, 12, 13] and curves.score_name == "accuracy"
    assert curves.valid_loss == [(entry["step"], entry["valid"]["loss"]) for entry in entries if "valid" in entry]


def test_an_incomplete_line_is_ignored(folder: Path, tmp_path: Path) -> None:
    text = (folder / "done" / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 99, "lo')
    assert read_curves(tmp_path) == read_curves(folder / "done")


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_a_plot_is_written_and_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, start: bytes
) -> None:
    assert main(["plot", str(folder / "done"), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_bytes().startswith(start)
    shown = capsys.readouterr().out
    assert all(title in shown for title in ("loss per token", "validation accuracy", "learning rate"))
    assert main(["plot", str(folder / "done"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["score_name"] == "accuracy"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/done", "--out", "a.gif"], "expected a name that ends in .png or .svg"),
        (["{}/begun"], "has no entries yet"),
        (["{}/data"], "expected a run folder"),
        (["{}/done", "--out", "/dev/null/a.png"], "cannot write /dev/null/a.png"),
    ],
)
def test_invalid_plots_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["plot", *(word.format(folder) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_a_line_in_the_terminal_goes_from_corner_to_corner() -> None:
    rising = Chart("", "rising", "update", "", [Series("", [(0, [1.0]), (10, [3.0])])])
    title, *rows, axis, ends = draw(rising, 31, height=4)
    assert title == "rising" and len(rows) == 4
    frames = [row.partition("│")[2] for row in rows]
    assert ord(frames[0][-1]) & 0x08 and ord(frames[-1][0]) & 0x40  # the outermost dots of both corners
    assert {frames[0][0], frames[-1][-1]} == {"⠀"}
    assert [row.partition("│")[0].strip() for row in rows] == ["3", "", "2", "1"]
    assert axis.endswith("─" * 20) and ends.split() == ["0", "10", "update"]
    flat = list(draw(Chart("", "", "", "", [Series("", [(5, [2.0])])]), 31))
    assert sum(char > chr(0x2800) for row in flat for char in row.partition("│")[2]) == 1


def records(path: Path) -> list[bytes]:
    """Yield the records of an event file: length, its checksum, content, its checksum."""
    data, contents = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        contents.append(data[12 : 12 + length])
        data = data[16 + length :]
    return contents


def test_event_files_contain_the_metrics(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]

    data = write_data("classify", tmp_path)
    run("classify", data, tmp_path / "out", RecordingCallback(9), tensorboard=True)
    run("classify", data, tmp_path / "out", tensorboard=True, resume=True)
    values: dict[tuple[str, int], float] = {}
    for path in sorted((tmp_path / "out" / EVENTS).iterdir()):
        for record in records(path):
            event = Event.FromString(record)
            values |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    entries = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    expected = {(name, entry["step"]): value for entry in entries for name, value in scalars(entry).items()}
    assert {step for _, step in expected} == {*range(1, 14)}
    for key, value in expected.items():
        assert values[key] == pytest.approx(value, rel=1e-6)


def test_event_files_of_the_same_second_are_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    for step in (0, 5):
        files = EventFiles(tmp_path, step)
        files.record({"step": step + 1, "loss": 1.0})
        files.close()
    assert len([*(tmp_path / EVENTS).iterdir()]) == 2


def test_event_files_without_the_package_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    data = write_data("classify", tmp_path)
    assert main(["train", str(data), "--task", "classify", "--out", str(tmp_path / "o"), "--tensorboard"]) == 2
    assert "pip install 'clearhead[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "o").exists() and threading.active_count() >= 1
