"""Length of a training: epochs give the planned number of updates, and the time is estimated from measured ones."""

import math
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.cli.main import main
from clearhead.data.batching import Indices
from clearhead.model.loss import Loss
from clearhead.model.parameters import snapshot
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.loop.schedule import VALIDATION_SHARE, Schedule
from clearhead.training.loop.trainer import Trainer
from clearhead.training.run import PreparedRun, TrainRequest, prepare
from clearhead.training.setup.auto_config import Estimate, benchmark_step, seconds_per_update
from tests.tasks.all_tasks import TRAINABLE_TASKS, prepare_task, settings_for, write_files
from tests.tasks.artificial_text import sets
from tests.training.runs import Settings, settings_of, write_data
from tests.training.test_trainer import RecordingLogger, Regression, build_trainer


class CountingTrainer:
    """Counter of the examples and updates of a trainer."""

    def __init__(self, trainer: Trainer) -> None:
        self.seen: Counter[int] = Counter()
        self.updates = 0
        task, step, batch = trainer.task, trainer._step_optimizer, trainer.task.batch

        def counting_batch(indices: Indices, epoch: int) -> Any:
            self.seen.update(int(index) for index in indices)
            return batch(indices, epoch)

        def counting_step(*arguments: Any) -> None:
            self.updates += 1
            step(*arguments)

        task.batch = counting_batch  # type: ignore[method-assign]
        trainer._step_optimizer = counting_step  # type: ignore[method-assign,assignment]


def estimated(prepared: PreparedRun) -> Estimate:
    return benchmark_step(prepared.task, prepared.model, prepared.config.training, prepared.threads)


def run(folder: Path, task: str, **training: Any) -> tuple[CountingTrainer, int, int]:
    """Train for a length; return the counts, the batches per epoch, and the planned number of updates."""
    prepared = prepare_task(folder, task, **training)
    prepared.task.validate = Regression(scores=[1.0] * 100).validate  # type: ignore[method-assign]
    steps = estimated(prepared).steps
    config = prepared.config.training
    trainer = Trainer(
        prepared.task, prepared.model, config, Schedule.fit(config, 12, steps), NullCallback(), RecordingLogger(), 1
    )
    counts = CountingTrainer(trainer)
    trainer.run()
    return counts, len(prepared.task.plan(0)), steps


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_two_epochs_see_every_example_twice(task: str, tmp_path: Path) -> None:
    counts, batches, steps = run(tmp_path, task, epochs=2)
    assert counts.updates == steps == 2 * batches and batches > 2
    if task == "lm":  # windows start elsewhere in every epoch: the index of an example encodes the start
        assert counts.seen.total() == 2 * len({index % 29 for index in counts.seen})
    else:
        assert set(counts.seen.values()) == {2} and len(counts.seen) == max(counts.seen) + 1


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_a_part_of_an_epoch_is_rounded_up_to_whole_updates(task: str, tmp_path: Path) -> None:
    counts, batches, steps = run(tmp_path, task, epochs=1.5, gradient_accumulation=2)
    assert counts.updates == steps == math.ceil(1.5 * batches / 2)
    tiny, _, steps = run(tmp_path, task, epochs=0.01)
    assert tiny.updates == steps == 1


class Slow(Regression):
    """Task whose updates take a known time."""

    def loss(self, model: Any, batch: Any) -> Loss:
        time.sleep(0.03)
        return super().loss(model, batch)


def test_an_update_is_measured_without_touching_the_weights() -> None:
    trainer, _ = build_trainer(Slow())
    before = snapshot(trainer.model)
    once = seconds_per_update(trainer.task, trainer.model, trainer.config, 1, budget=0.1)
    assert 0.03 <= once < 1.0  # the machine may be busy
    assert all((before[name] == tensor).all() for name, tensor in snapshot(trainer.model).items())
    twice, _ = build_trainer(Slow(), gradient_accumulation=7)
    assert 0.21 <= seconds_per_update(twice.task, twice.model, twice.config, 1, budget=0.1) < 7.0


def test_a_slow_outlier_does_not_change_the_estimate() -> None:
    class Disturbed(Slow):
        def loss(self, model: Any, batch: Any) -> Loss:
            if self.calls == 4:
                time.sleep(1.5)
            return super().loss(model, batch)

    trainer, _ = build_trainer(Disturbed())
    assert seconds_per_update(trainer.task, trainer.model, trainer.config, 1, budget=2.0) < 1.0


@pytest.mark.parametrize(
    ("length", "pattern"),
    [
        (["--steps", "400"], r"400 updates \(([\d.]+) epochs\)"),
        (["--epochs", "2.5"], r"([\d,]+) updates \(2\.[56] epochs\)"),
        (["--minutes", "0.5"], r"([\d,]+) updates \("),
    ],
)
def test_a_dry_run_reports_updates_epochs_and_time(
    length: list[str], pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_files(tmp_path, "classify"), tmp_path / "out"
    options = ["--task", "classify", "--out", str(out), "--threads", "1", "--dry-run", *sets(settings_for("classify"))]
    assert main(["train", str(data), *options, *length]) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if "(measured)" in line]
    assert re.search(pattern, line) and not out.exists()
    steps, each, minutes = (
        float(re.search(one, line)[1].replace(",", ""))  # type: ignore[index]
        for one in (r"^([\d,]+) updates", r"of ([\d.]+) s \(measured\)", r"about ([\d.]+) minutes")
    )
    if length[0] == "--minutes":
        assert steps >= 20
        assert minutes == pytest.approx(0.5, abs=0.06)  # the requested time
    else:
        rounding = steps * 0.0005 / 0.9 / 60 + 0.05
        assert minutes == pytest.approx(steps * each / (1 - VALIDATION_SHARE) / 60, abs=rounding)


def test_the_estimate_is_the_product_of_its_parts(tmp_path: Path) -> None:
    estimate = estimated(prepare_task(tmp_path, "classify", steps=1234, gradient_accumulation=3))
    assert estimate.steps == 1234
    assert estimate.minutes == pytest.approx(1234 * estimate.seconds_per_update / 0.9 / 60)
    assert str(estimate).startswith("1,234 updates (")
    batches = len(prepare_task(tmp_path, "classify").task.plan(0))
    assert estimate.epochs == pytest.approx(1234 * 3 / batches)
    assert np.isfinite(estimate.memory_mib) and estimate.memory_mib > 50


def test_a_length_of_0_is_the_same_as_none(tmp_path: Path) -> None:
    more: Settings = {"training": {"steps": 0, "epochs": 0}}
    request = TrainRequest(
        [write_data("classify", tmp_path)], tmp_path / "out", settings=settings_of("classify", more), task="classify"
    )
    training = prepare(request, NullCallback()).config.training
    assert (training.steps, training.epochs) == (0, 60)
