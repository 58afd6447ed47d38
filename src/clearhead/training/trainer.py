"""The loop: batches, gradients, updates, validations, and the best weights so far.

Knows tasks, never families or text. What it finds it hands to a `Keeper`, which writes it to disk.
"""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import TrainingConfig
from clearhead.data.batching import Indices
from clearhead.errors import TrainingError
from clearhead.model.dropout import dropout_seed
from clearhead.model.loss import Loss
from clearhead.model.weights import Weights, snapshot
from clearhead.tasks.task import Task, Validation
from clearhead.training.events import Progress, Watcher
from clearhead.training.replicas import Replicas, replica_count
from clearhead.training.schedule import Schedule

SMOOTHING = 0.98  # of the loss and speed that are shown


class Keeper(Protocol):
    """Where a run leaves what it finds."""

    def record(self, entry: dict[str, Any]) -> None:
        """One line of the run's metrics."""

    def checkpoint(self, step: int, weights: Weights) -> None:
        """The weights at this step, to be averaged later."""

    def best(self, step: int, weights: Weights, validation: Validation) -> None:
        """The best weights so far."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: Literal["finished", "stopped early", "interrupted"]
    step: int
    steps: int
    epochs: float
    seconds: float
    cpu_seconds: float  # of all cores together: what was really spent where others used the machine too
    tokens: int
    bad_steps: int
    signal: int  # the signal that interrupted it, or 0


@dataclass
class _Counts:
    """What the loop keeps count of."""

    step: int = 0
    tokens: int = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0
    without_gain: int = 0
    loss: float = math.nan
    best: Validation | None = None
    seconds_validating: float = 0.0
    validations: int = 0
    speed: float = 0.0
    recent: list[tuple[float, int]] = field(default_factory=list)  # (time, tokens) of the last updates


class Trainer:
    """Trains one model on one task."""

    def __init__(
        self,
        task: Task[Any],
        model: nn.Module,
        config: TrainingConfig,
        schedule: Schedule,
        watcher: Watcher,
        keeper: Keeper,
        threads: int,
    ) -> None:
        self.task, self.model, self.config = task, model, config
        self.schedule, self.watcher, self.keeper, self.threads = schedule, watcher, keeper, threads
        self.validate_every = config.validate_every or max(1, math.ceil(schedule.steps / 20))
        self.save_every = config.save_every or self.validate_every
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._counts = _Counts()
        self._stop_signal = 0

    def run(self) -> Outcome:
        """Train until the steps are done, nothing improves any more, or a signal comes."""
        began, cpu_began = time.monotonic(), time.process_time()
        reason: Literal["finished", "stopped early", "interrupted"] = "finished"
        counts = self._counts
        epoch = 0
        count = replica_count(self.threads, self.config.batch_tokens)
        with _caught_signals(self), torch_threads(1), Replicas[Any, Loss](self.model, count, self.threads) as replicas:
            self.model.train()
            for epoch, batches in self._updates():
                self._update(replicas, batches, epoch)
                self._report(epoch, time.monotonic() - began)
                if counts.step % self.save_every == 0 or counts.step == self.schedule.steps:
                    self.keeper.checkpoint(counts.step, snapshot(self.model))
                if counts.step % self.validate_every == 0 or counts.step == self.schedule.steps:
                    self._validate()
                if self._stop_signal:
                    reason = "interrupted"
                    break
                if self.config.patience and counts.without_gain >= self.config.patience:
                    reason = "stopped early"
                    break
        if reason == "interrupted" and counts.best is None:
            self._validate()
        return Outcome(
            reason=reason,
            step=counts.step,
            steps=self.schedule.steps,
            epochs=round(counts.step * self.config.accumulate / len(self.task.plan(0)), 2),
            seconds=time.monotonic() - began,
            cpu_seconds=time.process_time() - cpu_began,
            tokens=counts.tokens,
            bad_steps=counts.bad_steps,
            signal=self._stop_signal,
        )

    def _updates(self) -> Iterator[tuple[int, list[Indices]]]:
        """The batches of each update, epoch after epoch."""
        waiting: list[Indices] = []
        epoch = 0
        while True:
            for indices in self.task.plan(epoch):
                waiting.append(indices)
                if len(waiting) == self.config.accumulate:
                    if self._counts.step == self.schedule.steps:
                        return
                    self._counts.step += 1
                    yield epoch, waiting
                    waiting = []
            epoch += 1

    def _update(self, replicas: Replicas[Any, Loss], batches: list[Indices], epoch: int) -> None:
        """One update of the weights, or none where the loss or the gradient is not finite."""
        counts = self._counts
        tokens = sum(self.task.tokens(indices) for indices in batches)
        loss = 0.0
        for number, indices in enumerate(batches):
            loss += self.gradients(replicas, indices, tokens, epoch, number)
        gradients = replicas.gather_gradients()
        norm = torch.nn.utils.get_total_norm(gradients)
        if math.isfinite(loss) and bool(norm.isfinite()):
            counts.bad_in_a_row = 0
            self._step(gradients, norm)
            counts.loss = loss if math.isnan(counts.loss) else SMOOTHING * counts.loss + (1 - SMOOTHING) * loss
        else:
            self._refuse(batches, loss, float(norm))
        self.optimizer.zero_grad()
        counts.tokens += tokens
        counts.recent = [*counts.recent[-49:], (time.monotonic(), tokens)]

    def gradients(
        self, replicas: Replicas[Any, Loss], indices: Indices, tokens: int, epoch: int = 0, number: int = 0
    ) -> float:
        """Adds the gradient of one batch, as a mean over `tokens`, and gives its loss."""

        def compute(replica: int, model: nn.Module, part: Indices) -> Loss:
            batch = self.task.batch(part, epoch)
            with dropout_seed(self.config.seed, self._counts.step, number, replica):
                loss = self.task.loss(model, batch)
                (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            return loss

        losses = replicas.run(compute, self.task.split(indices, len(replicas.models)))
        return sum(float(loss.smoothed.detach()) for loss in losses) / tokens

    def _step(self, gradients: list[Tensor], norm: Tensor) -> None:
        if self.config.clip_norm and float(norm) > self.config.clip_norm:
            torch._foreach_mul_(gradients, self.config.clip_norm / float(norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(self._counts.step)
        self.optimizer.step()

    def _refuse(self, batches: list[Indices], loss: float, norm: float) -> None:
        """Leaves the weights alone, says which lines the batch came from, and gives up after too many in a row."""
        counts = self._counts
        counts.bad_steps += 1
        counts.bad_in_a_row += 1
        lines = sorted(line for indices in batches for line in self.task.lines(indices))
        self.keeper.record({"step": counts.step, "bad_step": {"loss": str(loss), "norm": str(norm), "lines": lines}})
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        self.watcher.message(f"step {counts.step}: loss {loss}, gradient {norm}: no update (training lines {shown})")
        if counts.bad_in_a_row >= self.config.max_bad_steps:
            raise TrainingError(
                f"{counts.bad_in_a_row} updates in a row had an infinite loss or gradient; "
                "lower training.learning_rate or look at the lines in metrics.jsonl"
            )

    def _validate(self) -> None:
        """Scores the model, and keeps it where it is the best so far."""
        began = time.monotonic()
        counts = self._counts
        with torch_threads(self.threads):
            validation = self.task.validate(self.model)
        is_best = counts.best is None or validation.rank > counts.best.rank
        if is_best:
            counts.best, counts.without_gain = validation, 0
            self.keeper.best(counts.step, snapshot(self.model), validation)
        else:
            counts.without_gain += 1
        self.keeper.record({"step": counts.step, "valid": validation.to_json(), "best": is_best})
        self.watcher.validation(counts.step, validation, is_best)
        counts.validations += 1
        counts.seconds_validating += time.monotonic() - began
        counts.recent = []

    def _report(self, epoch: int, seconds: float) -> None:
        counts = self._counts
        speed = self._speed()
        steps_left = self.schedule.steps - counts.step
        each = (seconds - counts.seconds_validating) / counts.step
        validation = counts.seconds_validating / max(1, counts.validations)
        left = steps_left * each + steps_left / self.validate_every * validation
        rate = self.schedule.rate(counts.step)
        self.watcher.progress(
            Progress(
                counts.step,
                self.schedule.steps,
                epoch,
                counts.loss,
                rate,
                speed,
                self.task.unit,
                seconds,
                left,
                counts.best,
            )
        )
        if counts.step % 50 == 0 or counts.step in (1, self.schedule.steps):
            self.keeper.record(
                {"step": counts.step, "epoch": epoch, "loss": counts.loss, "rate": rate,
                 "tokens_per_second": round(speed), "seconds": round(seconds, 2)}
            )  # fmt: skip

    def _speed(self) -> float:
        """Target tokens a second over the last updates."""
        counts, recent = self._counts, self._counts.recent
        if len(recent) > 1:
            counts.speed = sum(tokens for _, tokens in recent[1:]) / max(1e-9, recent[-1][0] - recent[0][0])
        return counts.speed


def seconds_per_update(trainer: Trainer, budget: float) -> float:
    """Measured time of an update: gradients of real batches from all over the first epoch, weights left alone.

    The first third is left out, where memory and caches are still cold; of the others the median, so that a moment in
    which something else ran does not count for the whole training.
    """
    task, plan = trainer.task, trainer.task.plan(0)
    count = replica_count(trainer.threads, trainer.config.batch_tokens)
    seconds: list[float] = []
    buffers = {name: buffer.clone() for name, buffer in trainer.model.named_buffers()}
    began = time.monotonic()
    with torch_threads(1), Replicas[Any, Loss](trainer.model, count, trainer.threads) as replicas:
        trainer.model.train()
        for index in np.random.default_rng(0).integers(0, len(plan), 90):
            start, tokens = time.monotonic(), task.tokens(plan[index])
            trainer.gradients(replicas, plan[index], tokens)
            replicas.gather_gradients()
            trainer.model.zero_grad()
            seconds.append(time.monotonic() - start)
            if len(seconds) > 4 and time.monotonic() - began > budget:
                break
    for name, buffer in trainer.model.named_buffers():  # running figures of a batch norm
        buffer.copy_(buffers[name])
    return float(np.median(seconds[len(seconds) // 3 :])) * trainer.config.accumulate


@contextmanager
def _caught_signals(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after the current update; a second one ends it at once."""

    def stop(number: int, _: FrameType | None) -> None:
        if trainer._stop_signal:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        trainer._stop_signal = number
        trainer.watcher.message("stopping after this update; once more to stop at once")

    before: dict[signal.Signals, Any] = {}
    try:
        for name in (signal.SIGINT, signal.SIGTERM):
            before[name] = signal.signal(name, stop)
    except ValueError:  # not in the main thread: the caller has to deal with signals
        pass
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
