"""One training in several processes: the same losses, the same weights, and resumed in any number of them."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.bundle import load, read_manifest
from clearhead.cli.main import main
from clearhead.config import merge
from clearhead.errors import ConfigError, TrainingError
from clearhead.training.checkpoint.checkpoint import CheckpointFolder
from clearhead.training.distributed.process_group import SINGLE_PROCESS, ProcessGroup, choose_device, init_distributed
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas, replica_count
from clearhead.training.loop.trainer import Trainer
from tests.training import torchrun_jobs
from tests.training.runs import RecordingCallback, Settings, model_of, run, write_data
from tests.training.torchrun import losses_of, torchrun, train_together
from tests.training.torchrun_jobs import Job

STILL: Settings = {"model": {"dropout": 0.0}, "training": {"validate_every": 10, "save_every": 10}}
# Some batches have a single sentence, so that the second process has no part of them.
NARROW = merge(STILL, {"training": {"batch_tokens": 20}})
# Two processes with one thread compute the same parts, and the same sums, as one process with two threads.
WIDE: Settings = {"training": {"batch_tokens": 1100, "gradient_accumulation": 1}}
SHARDED: Settings = {"training": {"sharding": "full"}}
AGAIN: Settings = {"training": {"activation_checkpointing": True}}
TWENTY: dict[str, Any] = {"steps": 20}


@pytest.fixture(scope="module")
def losses() -> Iterator[list[float]]:
    """Record the losses of trainings in this process."""
    update = Trainer._update
    yield torchrun_jobs.record_losses()
    Trainer._update = update  # type: ignore[method-assign]


def train_single_and_distributed(folder: Path, losses: list[float], alone: list[Job], together_only: list[Job]) -> Path:
    """Run trainings in one process and in two, and some only in two, with a single start of torchrun."""
    torch.set_num_threads(1)
    for job in alone:
        torchrun_jobs.run_job(replace(job, out=str(folder / "1" / job.out)), losses)
    jobs = [replace(job, options={**job.options, "threads": 1}) for job in (*alone, *together_only)]
    train_together([replace(job, out=str(folder / "2" / job.out)) for job in jobs], folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, losses: list[float]) -> Path:
    """Folder of trainings in one and two processes, each for one test."""
    folder = tmp_path_factory.mktemp("processes")
    pairs, labels = (str(write_data(task, folder / task)) for task in ("translate", "classify"))
    alone = [
        Job("translate", pairs, "still", STILL, TWENTY),
        Job("translate", pairs, "narrow", NARROW, TWENTY),
        Job("classify", labels, "wide", WIDE, {"threads": 2}),
    ]
    run("translate", Path(pairs), folder / "2" / "resumed", RecordingCallback(7), more=STILL, steps=20)
    more = [
        Job("translate", pairs, "resumed", STILL, {**TWENTY, "resume": True}),
        Job("translate", pairs, "stopped", STILL, TWENTY, (1, 7, signal.SIGTERM)),
    ]
    return train_single_and_distributed(folder, losses, alone, more)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, losses: list[float]) -> Path:
    """Folder of trainings with sharded weights, and of other tasks."""
    folder = tmp_path_factory.mktemp("sharded")
    pairs, images, text = (str(write_data(task, folder / task)) for task in ("translate", "image", "lm"))
    alone = [
        Job("translate", pairs, "still", STILL, TWENTY),
        Job("translate", pairs, "narrow", NARROW, TWENTY),
        Job("lm", text, "lm", STILL, TWENTY),
        Job("image", images, "figures", merge(WIDE, {"training": {"batch_tokens": 1200}}), {"threads": 2}),
    ]
    more = [
        Job("translate", pairs, "sharded", merge(STILL, SHARDED), TWENTY),
        Job("translate", pairs, "sharded narrow", merge(NARROW, SHARDED), TWENTY),
        Job("lm", text, "sharded lm", merge(STILL, SHARDED), TWENTY),
        Job("translate", pairs, "sharded again", merge(merge(STILL, SHARDED), AGAIN), TWENTY),
        Job("translate", pairs, "sharded stopped", merge(STILL, SHARDED), TWENTY, (1, 7, signal.SIGTERM)),
    ]
    return train_single_and_distributed(folder, losses, alone, more)


def check_losses(folder: Path, single: str, distributed: str) -> None:
    expected = losses_of(folder / "1" / single)
    assert len(expected) == 20 and expected[0] > expected[-1]
    assert losses_of(folder / "2" / distributed) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["still", "narrow"])
def test_two_processes_have_the_losses_of_one(folder: Path, name: str) -> None:
    check_losses(folder, name, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("single", "distributed"),
    [
        ("lm", "lm"),
        ("still", "sharded"),
        ("narrow", "sharded narrow"),
        ("lm", "sharded lm"),
        ("still", "sharded again"),
    ],
)
def test_sharded_processes_have_the_losses_of_one(sharded: Path, single: str, distributed: str) -> None:
    check_losses(sharded, single, distributed)


def check_bits(folder: Path, name: str) -> None:
    single, double = folder / "1" / name, folder / "2" / name
    assert losses_of(double) == pytest.approx(losses_of(single), rel=1e-12)
    assert model_of(double) == model_of(single)
    assert read_manifest(single).training["processes"] == 1 and read_manifest(double).training["processes"] == 2


def test_two_processes_equal_two_threads_to_the_last_bit(folder: Path) -> None:
    """The trainings use dropout."""
    check_bits(folder, "wide")


@pytest.mark.slow
def test_running_statistics_are_those_of_all_processes(sharded: Path) -> None:
    check_bits(sharded, "figures")


def test_a_run_of_one_process_resumes_in_two(folder: Path) -> None:
    assert losses_of(folder / "2" / "resumed") == pytest.approx(losses_of(folder / "1" / "still")[7:], rel=1e-5)


def check_resumes_in_one(folder: Path, out: Path, losses: list[float], more: Settings) -> None:
    assert len(losses_of(out)) == 7
    assert read_manifest(out).training["state"] == "interrupted"
    callback = RecordingCallback()
    losses.clear()
    run("translate", folder / "translate" / "pairs.tsv", out, callback, more=more, steps=20, resume=True)
    assert "the run started with 2 processes and continues with 1: sums are rounded differently" in callback.messages
    assert losses == pytest.approx(losses_of(folder / "1" / "still")[7:], rel=1e-5)


def test_a_signal_to_one_process_stops_both_and_one_resumes(folder: Path, losses: list[float]) -> None:
    check_resumes_in_one(folder, folder / "2" / "stopped", losses, STILL)


@pytest.mark.slow
def test_a_sharded_run_resumes_in_one_process(sharded: Path, losses: list[float]) -> None:
    check_resumes_in_one(sharded, sharded / "2" / "sharded stopped", losses, merge(STILL, SHARDED))


@pytest.mark.slow
def test_a_sharded_model_is_written_whole(sharded: Path) -> None:
    weights, expected = (load(sharded / "2" / name).tensors() for name in ("sharded", "still"))
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in expected.items()
    }
    for name, tensor in weights.items():
        if not name.endswith("key.bias"):  # its gradient is rounding noise, which Adam amplifies
            torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_only_rank_0_prints(tmp_path: Path) -> None:
    data = write_data("classify", tmp_path)
    options = [str(data), "--out", str(tmp_path / "out"), "--task", "classify", "--steps", "3", "--preset", "tiny"]
    done = torchrun(2, ["-m", "clearhead", "train", *options])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(validation)") == 1 and done.stderr.count("parameters") == 1
    again = torchrun(2, ["-m", "clearhead", "train", *options])
    assert again.returncode != 0 and "has a finished run" in again.stderr
    assert "process 1 ends because process 0 failed" in again.stderr
    resumed = torchrun(2, ["-m", "clearhead", "train", *options, "--resume"])
    assert resumed.returncode == 0 and "is finished after 3 updates" in resumed.stderr, resumed.stderr


# Tests in a single process


def test_parts_go_to_the_replicas_of_each_process_in_turn() -> None:
    model, parts = nn.Linear(2, 2), list(range(5))
    with (
        ThreadReplicas[int, int](model, 2, 2, ProcessGroup(0, 3)) as first,
        ThreadReplicas[int, int](model, 2, 2, ProcessGroup(2, 3)) as last,
    ):
        assert first.total == 6 and (first.first, last.first) == (0, 4)
        assert (list(first.local_parts(parts)), list(last.local_parts(parts))) == ([0, 1], [4])
        assert list(last.local_parts(parts[:3])) == []


def test_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    assert [ProcessGroup(0, 8, count).default_threads() for count in (2, 3, 8)] == [3, 2, 1]
    torch.set_num_threads(1)
    assert SINGLE_PROCESS.default_threads() == 1
    assert replica_count(4, 4096 // 8) == 1


def test_a_single_process_exchanges_nothing() -> None:
    with init_distributed("cpu") as processes:
        assert processes == SINGLE_PROCESS and processes.is_rank0
        assert processes.broadcast_text("text") == "text" and processes.sum(1.5, 2.0) == [1.5, 2.0]
        assert processes.max(3.0) == 3.0 and processes.broadcast_tensors({}) == {}


def test_processes_that_do_not_find_each_other_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(TrainingError, match=r"2 processes cannot find each other: .* torchrun"), init_distributed():
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


def test_a_missing_device_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data("classify", tmp_path)
    code = main(["train", str(data), "--task", "classify", "--out", str(tmp_path / "out"), "--device", "cuda"])
    if not torch.cuda.is_available():
        assert code == 2 and "torch finds no GPU here" in capsys.readouterr().err


def test_a_state_without_processes_was_made_by_one(folder: Path) -> None:
    """`processes` has a default for states of a single process."""
    restored = CheckpointFolder.load(folder / "1" / "still" / "training")
    assert restored and restored.state
    facts = json.loads(restored.state.origin.model_dump_json())
    del facts["processes"]
    assert type(restored.state.origin).model_validate(facts).processes == 1
