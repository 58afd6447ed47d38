"""Learning rate of each update (section 5.3), and length of a run: updates, validations and remaining time.

Only runs with `--minutes` are replanned, and only at validations. The plan is part of the saved state, so a resumed run
makes the same updates at the same learning rates as an uninterrupted one.
"""

import math
from dataclasses import dataclass

from clearhead.config import TrainingConfig
from clearhead.config.training import ScheduleForm
from clearhead.training.loop.train_state import SchedulePlan, TrainState

MIN_STEPS = 20  # smallest number of updates of a run with --minutes
VALIDATIONS = 20  # per run, unless `training.validate_every` or the time of --minutes determines their number
VALIDATION_SHARE = 0.1  # share of the time of a run with --minutes that is reserved for validations
TOLERANCE = 0.02  # deviation from the budget, as a share of it, up to which the number of updates is not changed
MAX_DELAY = 0.05  # share of the budget by which updates may be late before the next validation is made earlier
# Time of decoding relative to the time of the loss, assumed until a run has decoded for the first time. Decoding 500
# lines took 0.7 to 1.2 times as long as the loss of 1,791 pairs (preset tiny, one core).
DECODING_COST = 1.0


@dataclass(frozen=True)
class Schedule:
    """Linear warmup to the peak, decay in the given form, linear cooldown to zero at the end of a run of known length.

    With peak D^-0.5 * warmup^-0.5, decay by 1/sqrt(step) and no cooldown it is the schedule of the paper,
    D^-0.5 * min(step^-0.5, step * warmup^-1.5). After a short warmup it decays fast: with 100 updates of warmup, the
    rate at update 10,000 is a tenth of the peak.
    """

    peak: float
    warmup: int
    steps: int
    cooldown: float
    form: ScheduleForm = "inverse_sqrt"

    @classmethod
    def fit(cls, config: TrainingConfig, model_dim: int, steps: int) -> "Schedule":
        """Return the schedule of a run of `steps` updates; the warmup takes at most a quarter of them."""
        warmup = max(1, min(config.warmup, steps // 4) if steps else config.warmup)
        peak = config.learning_rate or (model_dim * max(1, config.warmup)) ** -0.5
        return cls(peak, warmup, steps, config.cooldown, config.schedule)

    def rate(self, step: float) -> float:
        """Return the learning rate at `step`, which counts from 1 and may be fractional in a replanned run."""
        rate = self.peak * (step / self.warmup if step < self.warmup else self._decay(step))
        cooldown_steps = self.steps * self.cooldown
        left = self.steps - step + 1
        return rate * min(1.0, left / cooldown_steps) if cooldown_steps >= 1 else rate

    def _decay(self, step: float) -> float:
        """Return the learning rate after the warmup as a fraction of the peak."""
        if self.form == "inverse_sqrt":
            return math.sqrt(self.warmup / step)
        if self.form == "cosine":
            progress = (step - self.warmup) / max(1, self.steps - self.warmup)
            return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return 1.0


@dataclass(frozen=True)
class Timetable:
    """Timetable of a run: its updates, validations, checkpoints and learning rates in the current state."""

    state: TrainState
    config: TrainingConfig
    schedule: Schedule

    @property
    def steps(self) -> int:
        """Planned number of updates."""
        return self.state.plan.steps if self.state.plan else self.schedule.steps

    @property
    def is_at_end(self) -> bool:
        """Whether all updates are done."""
        return self.state.step >= self.steps

    @property
    def rate(self) -> float:
        """Learning rate of the current update."""
        return self.schedule.rate(self._position())

    def _position(self) -> float:
        """Return the position of the current update in the schedule."""
        plan, step = self.state.plan, self.state.step
        return plan.position_of(step, self.schedule.steps) if plan else step

    @property
    def budget(self) -> float:
        """Time limit of a run with --minutes in seconds, up to the final model; 0 without a limit."""
        return 60 * self.config.minutes

    # Validations and checkpoints

    @property
    def validate_every(self) -> int:
        """Number of updates between validations, unless the time of --minutes determines it."""
        return self.config.validate_every or max(1, math.ceil(self.steps / VALIDATIONS))

    @property
    def save_every(self) -> int:
        """Number of updates between checkpoints."""
        return self.config.save_every or self.validate_every

    @property
    def is_checkpoint(self) -> bool:
        """Whether a checkpoint is due after the current update."""
        return self.is_at_end or self.state.step % self.save_every == 0

    def is_validation_due(self) -> bool:
        """Return whether to validate after the current update."""
        state = self.state
        if self.is_at_end:
            return True
        if not self.budget or self.config.validate_every:
            return state.step % self.validate_every == 0
        return state.step >= (state.next_validation_step or self.validate_every) or self._is_late()

    def _is_late(self) -> bool:
        """Return whether the updates since the last validation exceed their planned time by too much.

        The limit is `MAX_DELAY` of the budget or the time of a validation, whichever is longer.
        """
        state = self.state
        per_update = state.seconds_per_update or (1 - VALIDATION_SHARE) * self.budget / max(1, self.schedule.steps)
        planned = state.seconds_at_validation + per_update * (state.step - state.validated_step)
        return state.seconds - planned > max(MAX_DELAY * self.budget, self._validation_seconds)

    # Time

    @property
    def _update_seconds(self) -> float:
        """Expected time of an update, measured before the last validation, or from the start if there was none."""
        return self.state.seconds_per_update or self.state.seconds / max(1, self.state.step)

    @property
    def _validation_seconds(self) -> float:
        """Expected time of a validation, including decoding."""
        last, seconds = self.state.last_validation, self.state.seconds_per_validation
        return seconds * (1 + DECODING_COST) if last is not None and last.score is None else seconds

    @property
    def _final_seconds(self) -> float:
        """Expected time of validating averaged weights at the end."""
        return self._validation_seconds * (int(self.config.average_checkpoints > 1) + int(self.config.ema_decay > 0))

    def seconds_left(self) -> float:
        """Return the expected time of the rest of the run, including validations and the selection of weights."""
        state = self.state
        updating = max(0, self.steps - state.step) * self._update_seconds
        if not state.validations:  # their time is not known yet
            return (state.seconds + updating) / (1 - VALIDATION_SHARE) - state.seconds
        every = max(self.validate_every, state.next_validation_step - state.validated_step)
        validations = math.ceil(max(0, self.steps - state.validated_step) / every)
        return updating + validations * self._validation_seconds + self._final_seconds

    def fit(self) -> tuple[int, int]:
        """Return the number of updates with which a run ends in time, and the step of the next validation.

        This is called after a validation of a run with --minutes. By default, validations take `VALIDATION_SHARE` of
        the budget, and there is always one at the end. If `training.validate_every` is set, the returned step is 0.
        """
        state, per_update, per_validation = self.state, self._update_seconds, self._validation_seconds
        left = self.budget - state.seconds - self._final_seconds
        every, steps = self.config.validate_every, self.steps
        if every:
            validations = max(1, math.ceil((steps - state.step) / every))
            updates = (left - per_validation) / max(1e-9, per_update + per_validation / every)
        else:
            spare = VALIDATION_SHARE * self.budget - state.seconds_validating - self._final_seconds
            max_validations = max(1, math.ceil((steps - state.step) / self.validate_every))
            validations = min(max_validations, max(1, int(spare / max(1e-9, per_validation))))
            updates = (left - validations * per_validation) / max(1e-9, per_update)
        expected = max(0, steps - state.step) * per_update + validations * per_validation
        if abs(expected - left) > TOLERANCE * self.budget:
            steps = max(MIN_STEPS, state.step + max(0, int(updates)))
        if every:
            return steps, 0
        distance = max(math.ceil(steps / VALIDATIONS), math.ceil((steps - state.step) / validations))
        return steps, min(steps, state.step + distance)

    def change(self, steps: int, next_validation_step: int) -> None:
        """Set the number of updates of the run and the step of its next validation."""
        state = self.state
        if steps != self.steps:
            state.plan = SchedulePlan(steps=steps, start=state.step, position=self._position())
        state.next_validation_step = next_validation_step
