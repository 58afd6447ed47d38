"""Processes that die or are stopped under torchrun: the run ends as if uninterrupted."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.training.runs import model_of, traces, write_data
from tests.training.torchrun import TIMEOUT, command, environment, losses_of, torchrun, train_together
from tests.training.torchrun_jobs import Job

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kill", [(0, 7), (1, 8)])
def test_a_process_that_is_killed_changes_nothing(tmp_path: Path, kill: tuple[int, int]) -> None:
    data = str(write_data("translate", tmp_path))
    train_together([Job("translate", data, str(tmp_path / "whole"))], tmp_path)
    job = Job("translate", data, str(tmp_path / "killed"), send=(*kill, signal.SIGKILL))
    done = train_together([job], tmp_path, restarts=2)
    assert "SIGKILL" in done.stderr or "-9" in done.stderr or "exitcode" in done.stderr
    assert (model_of(tmp_path / "killed"), traces(tmp_path / "killed")) == (
        model_of(tmp_path / "whole"),
        traces(tmp_path / "whole"),
    )
    assert len(losses_of(tmp_path / "killed")) == 13 - 6  # resumed from the last checkpoint


def test_a_refused_run_stays_refused_after_a_restart(tmp_path: Path) -> None:
    data, out = str(write_data("classify", tmp_path)), tmp_path / "out"
    options = ["-m", "clearhead", "train", data, "--out", str(out), "--task", "classify", "--preset", "tiny"]
    assert torchrun(1, [*options, "--steps", "3"]).returncode == 0
    before = model_of(out)
    done = torchrun(2, [*options, "--steps", "5"], restarts=1)
    assert done.returncode != 0 and done.stderr.count("has a finished run of 3 updates") == 2, done.stderr
    assert model_of(out) == before


def test_a_signal_to_torchrun_stops_all_and_saves(tmp_path: Path) -> None:
    data, out = str(write_data("classify", tmp_path, 200)), tmp_path / "out"
    options = ["-m", "clearhead", "train", data, "--out", str(out), "--task", "classify", "--preset", "tiny"]
    options += ["--steps", "2000", "--set", "training.validate_every=1000"]
    started = subprocess.Popen(command(2, options), env=environment(), stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    output = []
    for line in started.stderr:
        output.append(line)
        if "step " in line:
            break
    time.sleep(1)
    started.send_signal(signal.SIGTERM)
    rest = started.communicate(timeout=TIMEOUT)[1]
    assert started.returncode != 0
    text = "".join(output) + rest
    assert "stopping after this update" in text and "--resume resumes the run" in text, text
