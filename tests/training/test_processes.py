"""One training in several processes: the same losses, the same weights, and resumed in any number of them."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.bundle import load, read_manifest
from clearhead.cli.main import main
from clearhead.config import merge
from clearhead.errors import ConfigError, TrainingError
from clearhead.training.processes import ALONE, Processes, choose_device, joined
from clearhead.training.replicas import Replicas, replica_count
from clearhead.training.state import StateFolder
from tests.training import together
from tests.training.launching import losses_of, torchrun, train_together
from tests.training.runs import Settings, Watching, model_of, run, write_data
from tests.training.together import Job

STILL: Settings = {"model": {"dropout": 0.0}, "training": {"validate_every": 10, "save_every": 10}}
# Batches of one sentence are among them: there the second process has nothing to do.
NARROW = merge(STILL, {"training": {"batch_tokens": 20}})
# As many parts in two processes of one thread as in one of two: the same sums.
WIDE: Settings = {"training": {"batch_tokens": 1100, "accumulate": 1}}
SHARDED: Settings = {"training": {"sharding": "full"}}


@pytest.fixture(scope="module")
def noted() -> Iterator[list[float]]:
    """The losses of trainings in this process."""
    update = together.Trainer._update
    yield together.note_losses()
    together.Trainer._update = update  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, noted: list[float]) -> Path:
    """The same trainings in one process and in two; all of the latter in one start of torchrun."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("processes")
    pairs, labels, pictures, text = (str(write_data(task, folder / task)) for task in
                                     ("translate", "classify", "image", "lm"))  # fmt: skip
    twenty: dict[str, Any] = {"steps": 20}
    alone = [
        Job("translate", pairs, "still", STILL, twenty),
        Job("translate", pairs, "narrow", NARROW, twenty),
        Job("lm", text, "lm", STILL, twenty),
        Job("classify", labels, "wide", WIDE, {"threads": 2}),
        Job("image", pictures, "figures", merge(WIDE, {"training": {"batch_tokens": 1200}}), {"threads": 2}),
    ]
    for job in alone:
        together.do(Job(**{**vars(job), "out": str(folder / "1" / job.out)}), noted)
    run("translate", Path(pairs), folder / "begun", Watching(7), more=STILL, steps=20)
    shutil.copytree(folder / "begun", folder / "2" / "gone on")
    jobs = [
        *(Job(**{**vars(job), "out": str(folder / "2" / job.out), "asked": {**job.asked, "threads": 1}})
          for job in alone),
        Job("translate", pairs, str(folder / "2" / "gone on"), STILL, {**twenty, "resume": True}),
        Job("translate", pairs, str(folder / "2" / "sharded"), merge(STILL, SHARDED), twenty),
        Job("translate", pairs, str(folder / "2" / "sharded narrow"), merge(NARROW, SHARDED), twenty),
        Job("lm", text, str(folder / "2" / "sharded lm"), merge(STILL, SHARDED), twenty),
        Job("translate", pairs, str(folder / "2" / "stopped"), STILL, twenty, (1, 7, signal.SIGTERM)),
        Job("translate", pairs, str(folder / "2" / "sharded stopped"), merge(STILL, SHARDED), twenty,
            (1, 7, signal.SIGTERM)),
    ]  # fmt: skip
    train_together(jobs, folder)
    return folder


@pytest.mark.parametrize(
    ("alone", "together"),
    [("still", "still"), ("narrow", "narrow"), ("lm", "lm"), ("still", "sharded"), ("narrow", "sharded narrow"),
     ("lm", "sharded lm")],
)  # fmt: skip
def test_two_processes_have_the_losses_of_one(folder: Path, alone: str, together: str) -> None:
    expected, found = losses_of(folder / "1" / alone), losses_of(folder / "2" / together)
    assert len(found) == 20 and expected[0] > expected[-1]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["wide", "figures"])
def test_two_processes_are_as_two_threads_to_the_last_bit(folder: Path, name: str) -> None:
    """With dropout, and with the running figures of batch norms."""
    one, two = folder / "1" / name, folder / "2" / name
    assert losses_of(two) == losses_of(one)
    assert model_of(two) == model_of(one)
    assert read_manifest(one).training["processes"] == 1 and read_manifest(two).training["processes"] == 2


def test_a_run_of_one_process_goes_on_in_two(folder: Path) -> None:
    assert losses_of(folder / "2" / "gone on") == pytest.approx(losses_of(folder / "1" / "still")[7:], rel=1e-5)


@pytest.mark.parametrize("kind", ["stopped", "sharded stopped"])
def test_a_signal_to_one_process_stops_both_and_one_goes_on(
    folder: Path, kind: str, noted: list[float], tmp_path: Path
) -> None:
    data, more = folder / "translate" / "pairs.tsv", merge(STILL, SHARDED if "sharded" in kind else {})
    assert len(losses_of(folder / "2" / kind)) == 7
    assert read_manifest(folder / "2" / kind).training["state"] == "interrupted"
    out, watcher = tmp_path / "run", Watching()
    shutil.copytree(folder / "2" / kind, out)
    noted.clear()
    run("translate", data, out, watcher, more=more, steps=20, resume=True)
    assert "the run began on 2 processes and goes on with 1: sums are rounded otherwise" in watcher.messages
    assert noted == pytest.approx(losses_of(folder / "1" / "still")[7:], rel=1e-5)


def test_a_sharded_model_is_written_whole(folder: Path) -> None:
    weights, expected = (load(folder / "2" / name).weights for name in ("sharded", "still"))
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in expected.items()
    }
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_only_the_first_process_speaks(tmp_path: Path) -> None:
    data = write_data("classify", tmp_path)
    options = [str(data), "--out", str(tmp_path / "out"), "--task", "classify", "--steps", "3", "--preset", "tiny"]
    done = torchrun(2, ["-m", "clearhead", "train", *options])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(validation)") == 1 and done.stderr.count("parameters") == 1
    again = torchrun(2, ["-m", "clearhead", "train", *options])
    assert again.returncode != 0 and "holds a finished run" in again.stderr
    assert "process 1 ends, for the first one refused" in again.stderr
    resumed = torchrun(2, ["-m", "clearhead", "train", *options, "--resume"])
    assert resumed.returncode == 0 and "is finished after 3 updates" in resumed.stderr, resumed.stderr


# What one process can show


def test_parts_go_to_the_replicas_of_each_process_in_turn() -> None:
    model, parts = nn.Linear(2, 2), list(range(5))
    with (
        Replicas[int, int](model, 2, 2, Processes(0, 3)) as first,
        Replicas[int, int](model, 2, 2, Processes(2, 3)) as last,
    ):
        assert first.total == 6 and (first.first, last.first) == (0, 4)
        assert (list(first.mine(parts)), list(last.mine(parts))) == ([0, 1], [4])
        assert list(last.mine(parts[:3])) == []


def test_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    assert [Processes(0, 8, count).threads() for count in (2, 3, 8)] == [3, 2, 1]
    torch.set_num_threads(1)
    assert ALONE.threads() == 1
    assert replica_count(4, 4096 // 8) == 1


def test_alone_nothing_is_exchanged() -> None:
    with joined("cpu") as processes:
        assert processes == ALONE and processes.is_first
        assert processes.tell("text") == "text" and processes.sum(1.5, 2.0) == [1.5, 2.0]
        assert processes.largest(3.0) == 3.0 and processes.share({}) == {}


def test_processes_that_do_not_find_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(TrainingError, match=r"2 processes cannot find each other: .* torchrun"), joined():
        pass


def test_a_gpu_is_used_where_there_is_one_and_never_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ConfigError, match="--device cuda: torch finds no GPU here; leave it out"):
        choose_device("cuda")
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert choose_device("auto", 3, 4) == torch.device("cuda", 3) and chosen == [3]
    assert choose_device("cpu", 3, 4).type == "cpu"
    with pytest.raises(ConfigError, match="5 processes on this machine, which has 4 GPUs"):
        choose_device("auto", 4, 5)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data("classify", tmp_path)
    code = main(["train", str(data), "--task", "classify", "--out", str(tmp_path / "out"), "--device", "cuda"])
    if not torch.cuda.is_available():
        assert code == 2 and "torch finds no GPU here" in capsys.readouterr().err


def test_a_state_without_processes_was_made_by_one(folder: Path) -> None:
    """States of before there were several."""
    found = StateFolder.load(folder / "1" / "still" / "training")
    assert found and found.state
    facts = json.loads(found.state.origin.model_dump_json())
    del facts["processes"]
    assert type(found.state.origin).model_validate(facts).processes == 1
