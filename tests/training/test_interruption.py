"""Runs that are killed at any moment, stopped twice, or run out of disk or memory resume to the same bits."""

import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.config import merge
from clearhead.data.batching import Indices
from clearhead.errors import BundleError, TrainingError
from clearhead.model.loss import Loss
from clearhead.training.checkpoint import checkpoint
from clearhead.training.checkpoint.checkpoint import CheckpointFolder
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.run import PreparedRun, TrainRequest, prepare
from tests.faults import Faults, end_of, fork
from tests.training.runs import RecordingCallback, Settings, model_of, run, settings_of, traces, write_data

pytestmark = pytest.mark.forks

OFTEN: Settings = {"training": {"save_every": 1}}


def train(data: Path, out: Path, callback: RecordingCallback | None = None, **options: Any) -> None:
    run("classify", data, out, callback, more=OFTEN, steps=16, **options)


def kill_at_random(data: Path, folder: Path, kills: int) -> None:
    """Kill runs at random moments, and resume each until it is finished."""
    train(data, folder / "whole")
    began = time.monotonic()
    train(data, folder / "timed")  # the second run, because the first includes imports
    seconds, rng, numbers = time.monotonic() - began, random.Random(kills), itertools.count()
    out = folder / f"run-{next(numbers)}"
    while kills:
        child = fork(lambda out=out: train(data, out, resume=True))  # type: ignore[misc]
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        code = end_of(child)
        assert code in (0, -signal.SIGKILL)
        CheckpointFolder.load(out / "training")  # raises an error for damaged files
        kills -= code != 0
        if code == 0:  # it ended before the kill
            assert (model_of(out), traces(out)) == (model_of(folder / "whole"), traces(folder / "whole"))
            out = folder / f"run-{next(numbers)}"
    train(data, out, resume=True)
    assert (model_of(out), traces(out)) == (model_of(folder / "whole"), traces(folder / "whole"))


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    kill_at_random(write_data("classify", tmp_path), tmp_path, 5)


@pytest.mark.slow
def test_a_run_killed_twenty_times_resumes_to_the_same_bits(tmp_path: Path) -> None:
    kill_at_random(write_data("classify", tmp_path), tmp_path, 20)


@pytest.mark.slow
def test_a_crash_at_every_step_of_saves_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """A stopped run is resumed, killed at its first, second, ... call that changes the disk, and resumed again."""
    data = write_data("classify", tmp_path)
    train(data, tmp_path / "whole")
    train(data, tmp_path / "stopped", RecordingCallback(13))
    for step in itertools.count(1):
        out = shutil.copytree(tmp_path / "stopped", tmp_path / str(step))

        def crash(out: Path = out, step: int = step) -> None:
            names = ("fsync", "rename", "replace", "chmod", "unlink")
            Faults(pytest.MonkeyPatch(), lambda call: call == step, lambda: os._exit(9), checkpoint, names)
            train(data, out, resume=True)

        code = end_of(fork(crash))
        train(data, out, resume=True)
        assert (model_of(out), traces(out)) == (model_of(tmp_path / "whole"), traces(tmp_path / "whole"))
        if code == 0:
            break
        assert code == 9
        shutil.rmtree(out)
    assert step > 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_during_a_save_leaves_the_previous_state(tmp_path: Path, number: int) -> None:
    data = write_data("classify", tmp_path)
    train(data, tmp_path / "whole")

    def stop_twice() -> None:
        def save_file(*_: object) -> None:
            os.kill(os.getpid(), number)
            raise AssertionError("the second signal ends the process")

        callback = RecordingCallback(7, number)
        callback.message = lambda text: setattr(checkpoint, "save_file", save_file) if "stopping" in text else None  # type: ignore[method-assign]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        train(data, tmp_path / "parts", callback)

    assert end_of(fork(stop_twice)) == -number
    restored = CheckpointFolder.load(tmp_path / "parts" / "training")
    assert restored and restored.state and restored.state.train_state.step == 6
    train(data, tmp_path / "parts", resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a separate file system of 400 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("this machine does not let root mount a small file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_full_disk_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    data = write_data("classify", tmp_path)
    train(data, tmp_path / "whole")
    filler = small_disk / "filler"

    class Filling(RecordingCallback):
        """Callback that fills the disk after the fifth update."""

        def message(self, text: str) -> None: ...

        def progress(self, progress: Any) -> None:
            super().progress(progress)
            if progress.step == 5:
                with filler.open("wb") as file:
                    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
                    file.write(bytes(free - 8192))

    with pytest.raises((TrainingError, BundleError), match="No space left on device") as caught:
        train(data, small_disk / "run", Filling())
    assert "\n" not in str(caught.value)
    restored = CheckpointFolder.load(small_disk / "run" / "training")
    assert restored and restored.state and restored.state.train_state.step in (4, 5)
    beside = {
        "training",
        "training/state.json",
        "metrics.jsonl",
        "training/validation",
        "training/validation/records.jsonl",
    }
    listed = {f"training/{name}" for name in restored.state.files} | beside
    bundled = {"model.safetensors", "config.json", "tokenizer.json", "manifest.json", "README.md"}
    assert names_in(small_disk / "run") == listed | bundled  # no temporary file
    filler.unlink()
    train(data, small_disk / "run", resume=True)
    assert model_of(small_disk / "run") == model_of(tmp_path / "whole")


def test_an_unwritable_folder_is_refused_before_the_first_step(tmp_path: Path, small_disk: Path) -> None:
    data = write_data("classify", tmp_path)
    train(data, small_disk / "run", RecordingCallback(3))
    before = {path: path.stat().st_mtime_ns for path in small_disk.rglob("*")}
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for out, resume in ((small_disk / "run", True), (small_disk / "new", False)):
        callback = RecordingCallback()
        with pytest.raises(TrainingError, match=f"cannot write to {out}: Read-only file system; choose another --out"):
            train(data, out, callback, resume=resume)
        assert not callback.steps and not callback.messages
    assert {path: path.stat().st_mtime_ns for path in small_disk.rglob("*")} == before


# Too little memory


def gradients(prepared: PreparedRun, log: Callable[[str], None]) -> tuple[float, list[torch.Tensor]]:
    """Return loss and gradient of an update of two large batches."""
    half = np.array_split(np.arange(prepared.task.num_examples()[0]), 2)
    with ThreadReplicas[Indices, Loss](prepared.model, 1, 1) as replicas:
        loss = GradientAccumulator(prepared.task, replicas, 1, log).add([MicroBatch(0, indices) for indices in half], 1)
        summed = [gradient.clone() for gradient in replicas.gather_gradients()]
        replicas.drop_gradients()
    return loss, summed


def limit_memory(room: int) -> None:
    """Limit the memory of this process to `room` bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def test_a_batch_that_exceeds_the_memory_gives_the_same_gradient_in_parts(tmp_path: Path) -> None:
    """Dropout is disabled, because each part has separate masks."""
    data = write_data("classify", tmp_path, count=500)
    settings = merge(settings_of("classify"), {"model": {"dropout": 0.0, "feed_forward_dim": 8192}})
    prepared = prepare(
        TrainRequest([data], tmp_path / "none", settings=settings, task="classify", threads=1), NullCallback()
    )
    expected, expected_gradients = gradients(prepared, print)

    def compute() -> None:
        limit_memory(110 << 20)
        messages: list[str] = []
        loss, summed = gradients(prepared, messages.append)
        assert len(messages) == 1, messages
        assert "not enough memory for a batch; it is computed in smaller parts" in messages[0]
        assert loss == pytest.approx(expected, rel=1e-5)
        for gradient, right in zip(summed, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, right, atol=1e-6, rtol=1e-4)

    assert end_of(fork(compute)) == 0
