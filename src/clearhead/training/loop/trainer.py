"""The training loop: updates, validations, early stopping, and the best weights so far.

The trainer depends on tasks, but neither on model families nor on text; a `RunLogger` writes its results to disk. All
randomness is a pure function of the seed and the update, so a trainer with the state, weights and optimizer tensors of
another one continues exactly like it. Several processes run the same loop in step: each computes its share of every
gradient and makes every update, and only rank 0 validates and saves.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.config import TrainingConfig
from clearhead.errors import TrainingError
from clearhead.model.parameters import Weights, named_weights, restore
from clearhead.tasks.trainable.task import Decode, TrainingTask, Validation
from clearhead.training.distributed.device_setup import gather_parameters, whole_tensor
from clearhead.training.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from clearhead.training.distributed.thread_data_parallel import open_replicas, torch_threads
from clearhead.training.loop.callbacks import Callback, Progress, RunLogger
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

SMOOTHING = 0.98  # the displayed loss is an average over about the last 50 updates
CURVE_POINTS = 100  # smallest number of points of a recorded curve, if the run has that many updates
Reason = Literal["finished", "stopped early", "interrupted"]


def moving_average(average: float, loss: float, count: int) -> float:
    """Return the moving average after the loss of update `count`; during the first updates it is the plain mean."""
    return loss if math.isnan(average) else average + max(1 - SMOOTHING, 1 / max(1, count)) * (loss - average)


@dataclass(frozen=True)
class TrainingOutcome:
    """Reason for the end of a run, with its length and times."""

    reason: Reason
    step: int
    steps: int
    epochs: float
    seconds: float
    cpu_seconds: float  # summed over all cores, which measures the computation even if other programs run
    tokens: int
    nonfinite_steps: int
    signal: int  # the signal that interrupted the run, or 0


class Trainer:
    """Training loop of one model on one task."""

    def __init__(
        self,
        task: TrainingTask[Any],
        model: nn.Module,
        config: TrainingConfig,
        schedule: Schedule,
        callback: Callback,
        logger: RunLogger,
        threads: int,
        group: ProcessGroup = SINGLE_PROCESS,
        validation_model: nn.Module | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`validation_model` is loaded with the weights to be validated if those of `model` are sharded."""
        self.task, self.model, self.config = task, model, config
        self.schedule, self.callback, self.logger, self.threads = schedule, callback, logger, threads
        self.group, self.validation_model = group, model if validation_model is None else validation_model
        self.optimizer = build_optimizer(model, config)
        self.state = TrainState()
        self._clock = clock
        self._throughput = Throughput(self.state, clock)
        self._stop = GracefulStop(group)

    @property
    def timetable(self) -> Timetable:
        """Timetable of the run in the current state."""
        return Timetable(self.state, self.config, self.schedule)

    def restore(self, state: TrainState, optimizer: Weights) -> None:
        """Continue from a saved state; the model must already have the weights of that state."""
        self.state = state.model_copy(update={} if self.group.is_rank0 else {"cpu_seconds": 0.0})
        restore_optimizer_state(self.optimizer, self.model, optimizer)

    def run(self) -> TrainingOutcome:
        """Train until all updates are done, validations stop improving, or a signal arrives."""
        self._throughput = Throughput(self.state, self._clock)
        config = self.config
        with (
            self._stop.listening(self.callback),
            no_malloc_trim(),
            torch_threads(1),
            open_replicas(self.model, self.threads, config.batch_tokens, self.group) as replicas,
        ):
            gradients = GradientAccumulator(self.task, replicas, config.seed, self.callback.message, config.precision)
            self.model.train()
            reason = self._loop(gradients)
            self._save(is_checkpoint=False)
        return self._outcome(reason)

    def _outcome(self, reason: Reason) -> TrainingOutcome:
        """Return the outcome of the run."""
        state = self.state
        (cpu_seconds,) = self.group.sum(state.cpu_seconds)
        return TrainingOutcome(
            reason=reason,
            step=state.step,
            steps=self.timetable.steps,
            epochs=round(state.step * self.config.gradient_accumulation / len(self.task.plan(0)), 2),
            seconds=state.seconds,
            cpu_seconds=cpu_seconds,
            tokens=state.tokens,
            nonfinite_steps=state.nonfinite_steps,
            signal=self._stop.signal,
        )

    def _loop(self, gradients: GradientAccumulator) -> Reason:
        """Make updates until the run ends, and return why it ended."""
        state, patience = self.state, self.config.patience
        if state.step:
            self._save_and_validate()  # a validation may have been due when the state was saved
        updates = self._updates()
        while True:
            if self._stop:
                return "interrupted"
            if patience and state.validations_without_gain >= patience:
                return "stopped early"
            if self.timetable.is_at_end:
                return "finished"
            self._update(gradients, next(updates))
            self._report()
            self._stop.agree()
            self._save_and_validate()

    def _updates(self) -> Iterator[list[MicroBatch]]:
        """Yield the batches of each update, epoch after epoch, from the position in the state."""
        state = self.state
        pending: list[MicroBatch] = []
        epoch, used = state.epoch, state.batch
        while True:
            plan = self.task.plan(epoch)
            for batch in range(used, len(plan)):
                pending.append(MicroBatch(epoch, plan[batch]))
                if len(pending) == self.config.gradient_accumulation:
                    state.step, state.epoch, state.batch = state.step + 1, epoch, batch + 1
                    yield pending
                    pending = []
            epoch, used = epoch + 1, 0

    # Updates

    def _update(self, gradients: GradientAccumulator, batches: list[MicroBatch]) -> None:
        """Update the weights once, or skip the update if the loss or the gradient is not finite."""
        state = self.state
        (loss,) = self.group.sum(gradients.add(batches, state.step))
        summed = gradients.replicas.gather_gradients()
        norm = whole_tensor(torch.nn.utils.get_total_norm(summed))
        if math.isfinite(loss) and bool(norm.isfinite()):
            state.nonfinite_in_a_row = 0
            self._step_optimizer(summed, norm)
            state.loss = moving_average(state.loss, loss, state.step - state.nonfinite_steps)
        else:
            self._skip_update(batches, loss, float(norm))
        self.optimizer.zero_grad()
        tokens = sum(self.task.tokens(batch.indices) for batch in batches)
        state.tokens += tokens
        self._throughput.add_update(tokens)

    def _step_optimizer(self, gradients: list[Tensor], norm: Tensor) -> None:
        """Clip the gradients, set the learning rate, and update the weights and their moving average."""
        if self.config.clip_norm and float(norm) > self.config.clip_norm:
            torch._foreach_mul_(gradients, self.config.clip_norm / float(norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.timetable.rate
        self.optimizer.step()
        if self.config.ema_decay:
            update_ema(self.optimizer, self.config.ema_decay, self.state.step)

    def _skip_update(self, batches: Sequence[MicroBatch], loss: float, norm: float) -> None:
        """Report the training lines of a skipped update; raise TrainingError after too many in a row."""
        state = self.state
        state.nonfinite_steps += 1
        state.nonfinite_in_a_row += 1
        lines = sorted({line for batch in batches for line in self.task.lines(batch.indices)}, key=_file_and_number)
        facts = {"loss": str(loss), "gradient_norm": str(norm), "lines": lines}
        self.logger.record({"step": state.step, "skipped_update": facts})
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        self.callback.message(
            f"step {state.step}: update skipped: loss {loss}, gradient norm {norm} (training lines {shown})"
        )
        if state.nonfinite_in_a_row >= self.config.max_nonfinite_steps:
            raise TrainingError(
                f"{state.nonfinite_in_a_row} updates in a row had an infinite loss or gradient; "
                "lower training.learning_rate, or inspect the training lines that metrics.jsonl lists"
            )

    def _report(self) -> None:
        """Report the progress after the update, and record points of the curves."""
        state, timetable = self.state, self.timetable
        self._throughput.write_times(state)
        speed, rate, steps = self._throughput.tokens_per_second(), timetable.rate, timetable.steps
        self.callback.progress(
            Progress(state.step, steps, state.epoch, state.loss, rate, speed, self.task.unit, state.seconds,
                     timetable.seconds_left(), state.best)
        )  # fmt: skip
        if state.step % max(1, min(50, steps // CURVE_POINTS)) == 0 or state.step in (1, steps):
            self.logger.record(
                {"step": state.step, "epoch": state.epoch, "loss": state.loss, "rate": rate,
                 "tokens_per_second": round(speed), "seconds": round(state.seconds, 2)}
            )  # fmt: skip

    # Checkpoints

    def _save_and_validate(self) -> None:
        """Save and validate if due; after a signal only save, because the resumed run makes a missing validation."""
        state, plan = self.state, self.state.plan
        is_checkpoint = self.timetable.is_checkpoint
        if is_checkpoint:
            self._save(is_checkpoint)
        if state.validated_step != state.step and not self._stop and self._is_validation_due():
            self._validate()
            if is_checkpoint or state.plan != plan:  # a new plan is saved at once, so that a resumed run has it too
                self._save(self.timetable.is_checkpoint)

    def _is_validation_due(self) -> bool:
        """Return whether to validate now; with --minutes this depends on clocks, so one process decides for all."""
        is_due = self.timetable.is_validation_due()
        return self.group.max(float(is_due)) > 0 if self.config.minutes else is_due

    def _save(self, is_checkpoint: bool) -> None:
        """Save the complete state."""
        self._throughput.write_times(self.state)
        optimizer = gather_parameters(optimizer_state(self.optimizer, self.model), self.group)
        self.logger.save(self.state, self.weights(), optimizer, is_checkpoint)

    def weights(self) -> Weights:
        """Return the current weights on rank 0: the tensors themselves, or copies if they are sharded."""
        return gather_parameters(named_weights(self.model), self.group)

    def ema_weights(self) -> Weights:
        """Return the moving average of the weights on rank 0; empty without `training.ema_decay`."""
        if not self.config.ema_decay:
            return {}
        return gather_parameters(ema_weights(self.optimizer, self.model), self.group)

    def elapsed(self) -> float:
        """Return the seconds used so far, including those before the run was resumed."""
        self._throughput.write_times(self.state)
        return self.state.seconds

    # Validations

    def score(
        self, weights: Weights | None = None, task: TrainingTask[Any] | None = None, decode: Decode | None = None
    ) -> Validation:
        """Return the validation of the given or current weights on this or another task; only rank 0 may call this.

        After the first validation with a score, all later ones decode too, so that they can be compared. Another task
        is always decoded.
        """
        best = self.state.best
        if decode is None and task is None and (best is None or best.score is None):
            decode = "if_worthwhile"
        if weights is not None:
            restore(self.validation_model, weights)
        try:
            with torch_threads(self.threads * self.group.local_world_size):  # the other processes wait
                model = self.validation_model.to(self.group.device)
                validation = (task or self.task).validate(model, decode or "always")
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                f"step {self.state.step:,}: not enough memory to validate; free memory and add --resume, "
                "or start again with a lower training.batch_tokens or training.validate_lines"
            ) from error
        if self.validation_model is not self.model:
            self.validation_model.cpu()  # frees GPU memory
        return validation

    def _validate(self) -> None:
        """Validate, save the weights if they are the best so far, and plan the rest of a run with --minutes."""
        state, weights = self.state, self.weights()
        self._throughput.write_times(state)
        state.record_updates(self._throughput.seconds_per_update())
        validation, seconds = self._score_on_rank0(weights)
        is_best = state.best is None or validation.rank > state.best.rank
        if is_best:
            state.best, state.best_step, state.validations_without_gain = validation, state.step, 0
            self.logger.save_best(state.step, weights, validation)
        else:
            state.validations_without_gain += 1
        self.logger.record({"step": state.step, "valid": validation.to_json(), "best": is_best})
        self.callback.validation(state.step, validation, is_best)
        state.record_validation(validation, seconds)
        self._throughput.write_times(state)
        state.seconds_at_validation = state.seconds
        if self.config.minutes:
            self._plan_rest()
        self._throughput.restart()
        self._stop.agree()

    def _score_on_rank0(self, weights: Weights) -> tuple[Validation, float]:
        """Validate on rank 0, and return the validation and its duration on all ranks."""
        start = self._clock()
        text = ""
        if self.group.is_rank0:
            text = self.score(None if self.validation_model is self.model else weights).to_text()
        text, seconds = json.loads(self.group.broadcast_text(json.dumps([text, self._clock() - start])))
        return Validation.from_text(text), seconds

    def _plan_rest(self) -> None:
        """Fit the number of remaining updates to the remaining time, by the clock of rank 0."""
        previous = self.timetable.steps
        plan = json.loads(self.group.broadcast_text(json.dumps(self.timetable.fit())))
        self.timetable.change(*plan)
        if (steps := self.timetable.steps) != previous:
            self.logger.record({"step": self.state.step, "plan": {"steps": steps, "instead_of": previous}})
            seconds = f"{self.state.seconds_per_update:.3f} s per update"
            self.callback.message(f"{steps:,} updates instead of {previous:,}, to finish in time at {seconds}")


def _file_and_number(line: int | str) -> tuple[str, int]:
    """Return the sort key of a training line: its file, empty if there is only one, and its number."""
    file, _, number = str(line).rpartition(":")
    return file, int(number)
