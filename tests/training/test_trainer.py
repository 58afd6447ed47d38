"""The training loop: gradients over replicas, skipped updates, early stopping, signals."""

import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.config import TrainingConfig
from clearhead.data.batching import Indices
from clearhead.errors import TrainingError
from clearhead.model.loss import Loss
from clearhead.model.parameters import Weights, snapshot
from clearhead.tasks.trainable.task import Decode, Validation
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas, replica_count
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.schedule import Schedule
from clearhead.training.loop.train_state import TrainState
from clearhead.training.loop.trainer import Trainer, moving_average


class Regression:
    """Toy task: learn y = 3x. With `poison`, example 5 is replaced by it; with `signal_at`, a signal is raised."""

    unit = "examples"

    def __init__(self, poison: float = 0.0, signal_at: int = 0, scores: Sequence[float] = ()) -> None:
        self.x = torch.linspace(-1, 1, 12)
        self.y = 3 * self.x
        if poison:
            self.y[5] = poison
        self.signal_at, self.scores, self.calls, self.validations = signal_at, list(scores), 0, 0

    def num_examples(self) -> tuple[int, int]:
        return 12, 12

    def plan(self, epoch: int) -> list[Indices]:
        return np.array_split(np.random.default_rng(epoch).permutation(12), 3)

    def batch(self, indices: Indices, epoch: int) -> tuple[Tensor, Tensor]:
        return self.x[indices], self.y[indices]

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        return [part for part in np.array_split(indices, parts) if len(part)]

    def tokens(self, indices: Indices) -> int:
        return len(indices)

    def lines(self, indices: Indices) -> list[int]:
        return [int(i) + 1 for i in indices]

    def loss(self, model: Any, batch: tuple[Tensor, Tensor]) -> Loss:
        self.calls += 1
        if self.calls == self.signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        x, y = batch
        loss = (model(x[:, None])[:, 0] - y).square().sum()
        return Loss(loss, loss.detach(), len(x))

    @torch.inference_mode()
    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        self.validations += 1
        score = self.scores.pop(0) if self.scores else -float((model(self.x[:, None])[:, 0] - self.y).square().mean())
        return Validation(1.0, score, "fit", "exact", ("", "", ""))


class RecordingLogger:
    """Logger that stores all calls of the trainer."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.steps: list[int] = []
        self.saved: list[int] = []
        self.best_step = 0

    def record(self, entry: dict[str, Any]) -> None:
        self.records.append(entry)

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        self.saved.append(state.step)
        if is_checkpoint and state.step not in self.steps:
            self.steps.append(state.step)

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        self.best_step = step


def build_trainer(
    task: Regression, steps: int = 60, threads: int = 1, **settings: Any
) -> tuple[Trainer, RecordingLogger]:
    torch.manual_seed(3)
    config = TrainingConfig(**{"learning_rate": 0.1, "warmup": 5, "batch_tokens": 4096, **settings})
    logger = RecordingLogger()
    schedule = Schedule.fit(config, 1, steps)
    return Trainer(task, nn.Linear(1, 1), config, schedule, NullCallback(), logger, threads), logger


def test_it_learns_and_saves_the_best_weights() -> None:
    trainer, logger = build_trainer(Regression(), steps=200)
    outcome = trainer.run()
    assert outcome.reason == "finished" and outcome.step == 200
    assert trainer.model.weight.item() == pytest.approx(3, abs=0.05)  # type: ignore[operator]
    assert logger.best_step > 0 and logger.steps[-1] == 200


def test_replicas_give_the_gradient_of_the_whole_batch() -> None:
    """Compare two and three replicas, on an odd and on an accumulated batch, with one plain backward pass."""
    for threads in (1, 2, 3):
        trainer, _ = build_trainer(Regression(), threads=threads)
        expected = nn.Linear(1, 1)
        expected.load_state_dict(trainer.model.state_dict())
        indices = np.arange(7)
        x, y = trainer.task.batch(indices, 0)
        (expected(x[:, None])[:, 0] - y).square().mean().backward()
        with ThreadReplicas[Indices, Loss](trainer.model, replica_count(threads, 4096), threads) as replicas:
            assert len(replicas.models) == threads
            loss = GradientAccumulator(trainer.task, replicas, 1, print).add([MicroBatch(0, indices)], 1)
            (weight, bias) = replicas.gather_gradients()
        torch.testing.assert_close(weight, expected.weight.grad)
        torch.testing.assert_close(bias, expected.bias.grad)
        assert loss == pytest.approx((expected(x[:, None])[:, 0] - y).square().mean().item())


def test_accumulated_batches_equal_one_large_batch() -> None:
    class Whole(Regression):
        def plan(self, epoch: int) -> list[Indices]:
            return [np.concatenate(super().plan(epoch))]

    several, _ = build_trainer(Regression(), steps=20, gradient_accumulation=3)
    whole, _ = build_trainer(Whole(), steps=20)
    several.run()
    whole.run()
    torch.testing.assert_close(snapshot(several.model), snapshot(whole.model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30], ids=["nan", "infinite", "gradient overflows"])
def test_a_nonfinite_loss_never_changes_the_weights(poison: float) -> None:
    trainer, logger = build_trainer(Regression(poison), steps=30)
    outcome = trainer.run()
    assert all(bool(tensor.isfinite().all()) for tensor in snapshot(trainer.model).values())
    assert outcome.nonfinite_steps == 10  # example 5 is in one of the three batches of each epoch
    bad = [entry["skipped_update"] for entry in logger.records if "skipped_update" in entry]
    assert all(6 in entry["lines"] for entry in bad)


def test_too_many_skipped_updates_end_the_run() -> None:
    class Hopeless(Regression):
        def plan(self, epoch: int) -> list[Indices]:
            return [np.array([5])]

    trainer, _ = build_trainer(Hopeless(float("nan")), max_nonfinite_steps=4)
    before = snapshot(trainer.model)
    with pytest.raises(TrainingError, match="4 updates in a row"):
        trainer.run()
    torch.testing.assert_close(snapshot(trainer.model), before, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (MemoryError(), TrainingError, "not enough memory for a single example"),
        (RuntimeError("a bug"), RuntimeError, "a bug"),
    ],
)
def test_an_error_that_parts_cannot_avoid_ends_the_run(
    error: Exception, expected: type[Exception], message: str
) -> None:
    class Hungry(Regression):
        def batch(self, indices: Indices, epoch: int) -> tuple[Tensor, Tensor]:
            raise error

    trainer, _ = build_trainer(Hungry())
    with pytest.raises(expected, match=message):
        trainer.run()


def test_early_stopping_counts_validations_without_gain() -> None:
    task = Regression(scores=[1, 3, 2, 3, 2.5, 9])
    trainer, logger = build_trainer(task, steps=100, validate_every=10, patience=3)
    outcome = trainer.run()
    assert outcome.reason == "stopped early" and outcome.step == 50
    assert logger.best_step == 20


def test_a_signal_ends_after_the_update_and_saves() -> None:
    task = Regression(signal_at=7)
    trainer, logger = build_trainer(task, steps=1000)
    before = signal.getsignal(signal.SIGTERM)
    outcome = trainer.run()
    assert (outcome.reason, outcome.signal, outcome.step) == ("interrupted", signal.SIGTERM, 7)
    assert logger.saved == [7] and not logger.steps and not task.validations
    assert signal.getsignal(signal.SIGTERM) is before


def test_same_seed_same_weights() -> None:
    first, _ = build_trainer(Regression(), threads=2)
    second, _ = build_trainer(Regression(), threads=2)
    first.run()
    second.run()
    torch.testing.assert_close(snapshot(first.model), snapshot(second.model), atol=0, rtol=0)


@pytest.mark.parametrize("words", ["could not create a primitive", "DefaultCPUAllocator: can't allocate memory"])
def test_too_little_memory_to_validate_is_reported(words: str) -> None:
    class Large(Regression):
        def validate(self, model: Any, decode: Decode = "always") -> Validation:
            raise RuntimeError(words)

    trainer, logger = build_trainer(Large(), steps=10, validate_every=5)
    with pytest.raises(TrainingError, match=r"step 5: not enough memory to validate; .* --resume"):
        trainer.run()
    assert logger.saved == [5]


def test_other_errors_in_a_validation_are_raised() -> None:
    class Broken(Regression):
        def validate(self, model: Any, decode: Decode = "always") -> Validation:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        build_trainer(Broken())[0].run()


def test_a_loss_of_nan_is_worse_than_any() -> None:
    def scored(loss: float) -> Validation:
        return Validation(loss, 0.0, "fit", "exact", ("", "", ""))

    assert scored(9.0).rank > scored(float("nan")).rank
    assert not scored(float("nan")).rank > scored(9.0).rank


def test_the_shown_loss_is_a_mean_and_then_a_moving_average() -> None:
    shown = float("nan")
    for count, loss in enumerate([4.0, 2.0, 6.0], 1):
        shown = moving_average(shown, loss, count)
    assert shown == pytest.approx(4.0)
    assert moving_average(4.0, 5.0, 1000) == pytest.approx(4.02)


@pytest.mark.parametrize(("steps", "every"), [(7, 1), (450, 4), (20_000, 50)])
def test_short_runs_have_complete_curves(steps: int, every: int) -> None:
    trainer, logger = build_trainer(Regression(), steps=steps)
    for trainer.state.step in range(1, min(steps, 200) + 1):
        trainer._report()
    recorded = [entry["step"] for entry in logger.records]
    assert recorded == sorted({1, *range(every, min(steps, 200) + 1, every)} | ({steps} if steps <= 200 else set()))


def test_lines_of_several_files_are_in_order() -> None:
    class Files(Regression):
        def lines(self, indices: Indices) -> list[int | str]:  # type: ignore[override]
            return [f"{'ab'[i % 2]}.tsv:{i + 8}" for i in indices.tolist()]

    trainer, logger = build_trainer(Files(float("nan")), steps=3)
    trainer.run()
    [bad] = [entry["skipped_update"]["lines"] for entry in logger.records if "skipped_update" in entry]
    assert "b.tsv:13" in bad and bad == sorted(bad, key=lambda line: (line[0], int(line[6:])))
