"""The loop: batches, gradients, updates, validations, and the best weights so far.

Knows tasks, never families or text. A `RunLogger` writes its results to disk. Everything random is a pure function of
the seed and the update, so a loop that receives the state, weights and optimizer state of another continues exactly as
that one would have. Several processes run the same loop in step: each computes its share of every
gradient and makes every update, and the first one alone validates and keeps.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from clearhead.config import TrainingConfig
from clearhead.errors import TrainingError
from clearhead.model.parameters import Weights, named_weights, restore
from clearhead.tasks.trainable.task import Decode, TrainingTask, Validation
from clearhead.training.distributed.device_setup import gather_parameters, whole_tensor
from clearhead.training.distributed.process_group import ALONE, ProcessGroup
from clearhead.training.distributed.thread_data_parallel import open_replicas, torch_threads
from clearhead.training.loop.callbacks import Callback, Progress
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.process_environment import GracefulStop, is_out_of_memory, no_malloc_trim
from clearhead.training.loop.schedule import Schedule, Timetable
from clearhead.training.loop.train_state import (
    Clock,
    Throughput,
    TrainState,
    build_optimizer,
    ema_weights,
    optimizer_state,
    restore_optimizer_state,
    update_ema,
)

SMOOTHING = 0.98  # of the loss that is shown: over about the last fifty updates
POINTS = 100  # of a curve, at least, where there are so many updates
Reason = Literal["finished", "stopped early", "interrupted"]


def _place(line: int | str) -> tuple[str, int]:
    """File and number of a line, to sort by; of one file only the number is known."""
    file, _, number = str(line).rpartition(":")
    return file, int(number)


def smoothed(before: float, loss: float, count: int) -> float:
    """A moving mean of losses, of which this one is number `count`; at first the mean of all."""
    return loss if math.isnan(before) else before + max(1 - SMOOTHING, 1 / max(1, count)) * (loss - before)


class RunLogger(Protocol):
    """Where a run leaves what it finds. Tensors are those of the running model: to be written, not to be kept."""

    def record(self, entry: dict[str, Any]) -> None:
        """One line of the run's metrics."""

    def save(self, counts: TrainState, weights: Weights, moments: Weights, is_checkpoint: bool) -> None:
        """The whole state; the weights of a checkpoint are averaged later."""

    def best(self, step: int, weights: Weights, validation: Validation) -> None:
        """The best weights so far."""


@dataclass(frozen=True)
class TrainingOutcome:
    """How a run ended."""

    reason: Reason
    step: int
    steps: int
    epochs: float
    seconds: float
    cpu_seconds: float  # of all cores together: what was really spent where others used the machine too
    tokens: int
    bad_steps: int
    signal: int  # the signal that interrupted it, or 0


class Trainer:
    """Trains one model on one task."""

    def __init__(
        self,
        task: TrainingTask[Any],
        model: nn.Module,
        config: TrainingConfig,
        schedule: Schedule,
        watcher: Callback,
        keeper: RunLogger,
        threads: int,
        processes: ProcessGroup = ALONE,
        whole: nn.Module | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`whole`: a network that takes the weights to be validated, where those of `model` are sharded."""
        self.task, self.model, self.config = task, model, config
        self.schedule, self.watcher, self.keeper, self.threads = schedule, watcher, keeper, threads
        self.processes, self.whole = processes, model if whole is None else whole
        self.optimizer = build_optimizer(model, config)
        self.counts = TrainState()
        self._clock = clock
        self._pace = Throughput(self.counts, clock)
        self._stop = GracefulStop(processes)

    @property
    def timetable(self) -> Timetable:
        """Length of the run, its validations and its learning rates, by the counts as they are now."""
        return Timetable(self.counts, self.config, self.schedule)

    def go_on_from(self, counts: TrainState, kept: Weights) -> None:
        """Takes over where another loop stood; the model has that one's weights already."""
        self.counts = counts.model_copy(update={} if self.processes.is_first else {"cpu_seconds": 0.0})
        restore_optimizer_state(self.optimizer, self.model, kept)

    def run(self) -> TrainingOutcome:
        """Train until the steps are done, nothing improves any more, or a signal comes."""
        self._pace = Throughput(self.counts, self._clock)
        config = self.config
        with (
            self._stop.listening(self.watcher),
            no_malloc_trim(),
            torch_threads(1),
            open_replicas(self.model, self.threads, config.batch_tokens, self.processes) as replicas,
        ):
            gradients = GradientAccumulator(self.task, replicas, config.seed, self.watcher.message, config.precision)
            self.model.train()
            reason = self._loop(gradients)
            self._save(is_checkpoint=False)
        counts = self.counts
        (cpu_seconds,) = self.processes.sum(counts.cpu_seconds)
        return TrainingOutcome(
            reason=reason,
            step=counts.step,
            steps=self.timetable.steps,
            epochs=round(counts.step * config.gradient_accumulation / len(self.task.plan(0)), 2),
            seconds=counts.seconds,
            cpu_seconds=cpu_seconds,
            tokens=counts.tokens,
            bad_steps=counts.bad_steps,
            signal=self._stop.signal,
        )

    def _loop(self, gradients: GradientAccumulator) -> Reason:
        counts, patience = self.counts, self.config.patience
        if counts.step:
            self._settle()  # what was still due when the state was saved
        updates = self._updates()
        while True:
            if self._stop:
                return "interrupted"
            if patience and counts.without_gain >= patience:
                return "stopped early"
            if self.timetable.is_at_end:
                return "finished"
            self._update(gradients, next(updates))
            self._report()
            self._stop.agree()
            self._settle()

    def _updates(self) -> Iterator[list[MicroBatch]]:
        """The batches of each update, epoch after epoch, from where the counts stand."""
        counts = self.counts
        waiting: list[MicroBatch] = []
        epoch, used = counts.epoch, counts.batch
        while True:
            plan = self.task.plan(epoch)
            for batch in range(used, len(plan)):
                waiting.append(MicroBatch(epoch, plan[batch]))
                if len(waiting) == self.config.gradient_accumulation:
                    counts.step, counts.epoch, counts.batch = counts.step + 1, epoch, batch + 1
                    yield waiting
                    waiting = []
            epoch, used = epoch + 1, 0

    def _settle(self) -> None:
        """Save and validate if that is due; before a stop only save, and validate when the run is resumed."""
        counts, plan = self.counts, self.counts.plan
        is_checkpoint = self.timetable.is_checkpoint
        if is_checkpoint:
            self._save(is_checkpoint)
        if counts.validated != counts.step and not self._stop and self._is_validation_due():
            self._validate()
            if is_checkpoint or counts.plan != plan:  # a new plan is saved at once, so that resuming follows it
                self._save(self.timetable.is_checkpoint)

    def _is_validation_due(self) -> bool:
        """Return whether to validate now; in runs with --minutes clocks decide, so all processes have to agree."""
        is_due = self.timetable.is_validation_due()
        return self.processes.largest(float(is_due)) > 0 if self.config.minutes else is_due

    def _save(self, is_checkpoint: bool) -> None:
        self._pace.note(self.counts)
        kept = gather_parameters(optimizer_state(self.optimizer, self.model), self.processes)
        self.keeper.save(self.counts, self.weights(), kept, is_checkpoint)

    def weights(self) -> Weights:
        """All weights as they are now: the tensors themselves, or copies where they are sharded; for the first only."""
        return gather_parameters(named_weights(self.model), self.processes)

    def elapsed(self) -> float:
        """Return the seconds used so far, those before the run was resumed included."""
        self._pace.note(self.counts)
        return self.counts.seconds

    def followed(self) -> Weights:
        """The moving mean of the weights, for the first only; nothing where none is asked for."""
        return (
            gather_parameters(ema_weights(self.optimizer, self.model), self.processes) if self.config.ema_decay else {}
        )

    def score(
        self, weights: Weights | None = None, task: TrainingTask[Any] | None = None, decode: Decode | None = None
    ) -> Validation:
        """Validate the whole network, after loading the given weights, on this task or another; first process only.

        Once a validation of the run has a score all others have one, so that they can be compared. Another task is
        always decoded.
        """
        best = self.counts.best
        if decode is None and task is None and (best is None or best.score is None):
            decode = "if_worthwhile"
        if weights is not None:
            restore(self.whole, weights)
        try:
            with torch_threads(self.threads * self.processes.local_count):  # the others wait
                validation = (task or self.task).validate(self.whole.to(self.processes.device), decode or "always")
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                f"step {self.counts.step:,}: memory does not suffice to validate; free some, then add --resume, "
                "or begin anew with a lower training.batch_tokens or training.validate_lines"
            ) from error
        if self.whole is not self.model:
            self.whole.cpu()  # a GPU has other things to hold
        return validation

    def _update(self, gradients: GradientAccumulator, portions: list[MicroBatch]) -> None:
        """One update of the weights, or none where the loss or the gradient is not finite."""
        counts = self.counts
        (loss,) = self.processes.sum(gradients.add(portions, counts.step))
        found = gradients.replicas.gather_gradients()
        norm = whole_tensor(torch.nn.utils.get_total_norm(found))
        if math.isfinite(loss) and bool(norm.isfinite()):
            counts.bad_in_a_row = 0
            self._step(found, norm)
            counts.loss = smoothed(counts.loss, loss, counts.step - counts.bad_steps)
        else:
            self._refuse(portions, loss, float(norm))
        self.optimizer.zero_grad()
        tokens = sum(self.task.tokens(portion.indices) for portion in portions)
        counts.tokens += tokens
        self._pace.updated(tokens)

    def _step(self, gradients: list[Tensor], norm: Tensor) -> None:
        if self.config.clip_norm and float(norm) > self.config.clip_norm:
            torch._foreach_mul_(gradients, self.config.clip_norm / float(norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.timetable.rate
        self.optimizer.step()
        if self.config.ema_decay:
            update_ema(self.optimizer, self.config.ema_decay, self.counts.step)

    def _refuse(self, portions: list[MicroBatch], loss: float, norm: float) -> None:
        """Leaves the weights alone, says which lines the batch came from, and gives up after too many in a row."""
        counts = self.counts
        counts.bad_steps += 1
        counts.bad_in_a_row += 1
        lines = sorted({line for portion in portions for line in self.task.lines(portion.indices)}, key=_place)
        self.keeper.record({"step": counts.step, "bad_step": {"loss": str(loss), "norm": str(norm), "lines": lines}})
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        self.watcher.message(f"step {counts.step}: loss {loss}, gradient {norm}: no update (training lines {shown})")
        if counts.bad_in_a_row >= self.config.max_nonfinite_steps:
            raise TrainingError(
                f"{counts.bad_in_a_row} updates in a row had an infinite loss or gradient; "
                "lower training.learning_rate or look at the lines in metrics.jsonl"
            )

    def _validate(self) -> None:
        """Score the model, keep it if it is the best so far, and plan the rest of a run with --minutes."""
        counts, weights = self.counts, self.weights()
        self._pace.note(counts)
        counts.note_updates(self._pace.seconds_per_update())
        validation, seconds = self._told_score(weights)
        is_best = counts.best is None or validation.rank > counts.best.rank
        if is_best:
            counts.best, counts.best_step, counts.without_gain = validation, counts.step, 0
            self.keeper.best(counts.step, weights, validation)
        else:
            counts.without_gain += 1
        self.keeper.record({"step": counts.step, "valid": validation.to_json(), "best": is_best})
        self.watcher.validation(counts.step, validation, is_best)
        counts.note_validation(validation, seconds)
        self._pace.note(counts)
        counts.seconds_at_validation = counts.seconds
        if self.config.minutes:
            self._plan_rest()
        self._pace.paused()
        self._stop.agree()

    def _plan_rest(self) -> None:
        """Fit the rest of the updates to the rest of the time, as the clock of the first process says."""
        before = self.timetable.steps
        told = self.processes.tell(json.dumps(self.timetable.fit()))
        self.timetable.change(*json.loads(told))
        if (steps := self.timetable.steps) != before:
            each = f"{self.counts.seconds_per_update:.3f} s per update"
            self.keeper.record({"step": self.counts.step, "plan": {"steps": steps, "instead_of": before}})
            self.watcher.message(f"{steps:,} updates instead of {before:,}, to end in time: {each}")

    def _told_score(self, weights: Weights) -> tuple[Validation, float]:
        """How good the model is and how long it took to find out, as the first process says."""
        began = self._clock()
        text = ""
        if self.processes.is_first:
            text = self.score(None if self.whole is self.model else weights).to_text()
        told = json.loads(self.processes.tell(json.dumps([text, self._clock() - began])))
        return Validation.from_text(told[0]), told[1]

    def _report(self) -> None:
        counts, timetable = self.counts, self.timetable
        self._pace.note(counts)
        speed, rate, steps, left = self._pace.speed(), timetable.rate, timetable.steps, timetable.seconds_left()
        self.watcher.progress(
            Progress(
                counts.step,
                steps,
                counts.epoch,
                counts.loss,
                rate,
                speed,
                self.task.unit,
                counts.seconds,
                left,
                counts.best,
            )
        )
        if counts.step % max(1, min(50, steps // POINTS)) == 0 or counts.step in (1, steps):
            self.keeper.record(
                {"step": counts.step, "epoch": counts.epoch, "loss": counts.loss, "rate": rate,
                 "tokens_per_second": round(speed), "seconds": round(counts.seconds, 2)}
            )  # fmt: skip
