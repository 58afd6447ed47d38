"""The learning rate at each update (section 5.3).

Length of a run: how many updates fit into the time of `--minutes`, and how much time the rest of a run takes.

Only runs with `--minutes` are planned anew, only at a validation, and the plan is part of the saved counts: a run that
is resumed makes the same updates at the same learning rates as one that was never stopped.
"""

import math
from dataclasses import dataclass

from clearhead.config import TrainingConfig
from clearhead.config.training import ScheduleForm
from clearhead.training.loop.train_state import SchedulePlan, TrainState


@dataclass(frozen=True)
class Schedule:
    """Linear warmup to the peak, decay in the given form, linear cooldown to zero at the end of a run of known length.

    With peak D^-0.5 * warmup^-0.5, decay by 1/sqrt(step) and no cooldown it is the paper's
    D^-0.5 * min(step^-0.5, step * warmup^-1.5). After a short warmup that falls fast: 100 updates of warmup leave a
    tenth of the peak at update 10,000.
    """

    peak: float
    warmup: int
    steps: int
    cooldown: float
    form: ScheduleForm = "inverse_sqrt"

    @classmethod
    def fit(cls, config: TrainingConfig, model_dim: int, steps: int) -> "Schedule":
        """The schedule of a run of that many updates; its warmup never takes more than a quarter of it."""
        warmup = max(1, min(config.warmup, steps // 4) if steps else config.warmup)
        peak = config.learning_rate or (model_dim * max(1, config.warmup)) ** -0.5
        return cls(peak, warmup, steps, config.cooldown, config.schedule)

    def rate(self, step: float) -> float:
        """Return the learning rate of update `step`, counted from 1; a run that was planned anew has fractions."""
        rate = self.peak * (step / self.warmup if step < self.warmup else self._share(step))
        falling = self.steps * self.cooldown
        left = self.steps - step + 1
        return rate * min(1.0, left / falling) if falling >= 1 else rate

    def _share(self, step: float) -> float:
        """Return the fraction of the peak at an update after the warmup."""
        if self.form == "inverse_sqrt":
            return math.sqrt(self.warmup / step)
        if self.form == "cosine":
            done = (step - self.warmup) / max(1, self.steps - self.warmup)
            return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return 1.0


MIN_STEPS = 20  # of a run with --minutes, however short
VALIDATIONS = 20  # per run, where neither `training.validate_every` nor their time says otherwise
VALIDATION_SHARE = 0.1  # of the time of a run with --minutes that is kept for validations
TOLERANCE = 0.02  # share of the budget by which a plan may miss it before it is changed
LATE = 0.05  # share of the budget by which updates may take longer than planned before a validation is brought forward
# Decoding 500 lines took 0.7 to 1.2 times as long as the loss of 1,791 pairs (preset tiny, one core). Assumed until a
# run has decoded for the first time, measured from then on.
DECODING_COST = 1.0


@dataclass(frozen=True)
class Timetable:
    """Updates, validations, checkpoints and learning rates of a run, as its counts, settings and schedule have them."""

    counts: TrainState
    config: TrainingConfig
    schedule: Schedule

    @property
    def steps(self) -> int:
        """Planned number of updates."""
        return self.counts.plan.steps if self.counts.plan else self.schedule.steps

    @property
    def is_at_end(self) -> bool:
        """Whether all updates are done."""
        return self.counts.step >= self.steps

    @property
    def rate(self) -> float:
        """Learning rate of the current update."""
        return self.schedule.rate(self._position())

    def _position(self) -> float:
        plan, step = self.counts.plan, self.counts.step
        return plan.position_of(step, self.schedule.steps) if plan else step

    @property
    def budget(self) -> float:
        """Seconds of a run with --minutes, in which all is done up to the final model; 0: no limit."""
        return 60 * self.config.minutes

    # Validations and checkpoints

    @property
    def validate_every(self) -> int:
        """Updates between validations, where those of a run with --minutes are not spaced by their time."""
        return self.config.validate_every or max(1, math.ceil(self.steps / VALIDATIONS))

    @property
    def save_every(self) -> int:
        """Updates between checkpoints."""
        return self.config.save_every or self.validate_every

    @property
    def is_checkpoint(self) -> bool:
        """Whether the current update is one to be saved."""
        return self.is_at_end or self.counts.step % self.save_every == 0

    def is_validation_due(self) -> bool:
        """Return whether to validate after the current update."""
        counts = self.counts
        if self.is_at_end:
            return True
        if not self.budget or self.config.validate_every:
            return counts.step % self.validate_every == 0
        return counts.step >= self._validate_at or self._is_late()

    @property
    def _validate_at(self) -> int:
        return self.counts.validate_at or self.validate_every

    def _is_late(self) -> bool:
        """Return whether the updates since the last validation took longer than planned by more than one costs."""
        counts = self.counts
        each = counts.seconds_per_update or (1 - VALIDATION_SHARE) * self.budget / max(1, self.schedule.steps)
        planned = counts.seconds_at_validation + each * (counts.step - counts.validated)
        return counts.seconds - planned > max(LATE * self.budget, self._validation_seconds)

    # Time

    @property
    def _update_seconds(self) -> float:
        """Expected time of an update: as those before the last validation, or all where there was none."""
        return self.counts.seconds_per_update or self.counts.seconds / max(1, self.counts.step)

    @property
    def _validation_seconds(self) -> float:
        """Expected time of a validation, with decoding."""
        last, seconds = self.counts.last, self.counts.seconds_per_validation
        return seconds * (1 + DECODING_COST) if last is not None and last.score is None else seconds

    @property
    def _final_seconds(self) -> float:
        """Expected time after the last update's validation, in which averaged weights are validated."""
        return self._validation_seconds * (int(self.config.average_checkpoints > 1) + int(self.config.ema_decay > 0))

    def seconds_left(self) -> float:
        """Return how long the rest of the run takes, with its validations and the choice of the best weights."""
        counts = self.counts
        updating = max(0, self.steps - counts.step) * self._update_seconds
        if not counts.validations:  # their time is not known yet
            return (counts.seconds + updating) / (1 - VALIDATION_SHARE) - counts.seconds
        every = max(self.validate_every, counts.validate_at - counts.validated)
        validations = math.ceil(max(0, self.steps - counts.validated) / every)
        return updating + validations * self._validation_seconds + self._final_seconds

    def fit(self) -> tuple[int, int]:
        """Return how many updates end a run with --minutes in time, and the update of its next validation.

        To be called after a validation. Where the user has not set their distance, validations take
        `VALIDATION_SHARE` of the budget, but there is always one at the end; where it is set, the latter is 0.
        """
        counts, each, validation = self.counts, self._update_seconds, self._validation_seconds
        left = self.budget - counts.seconds - self._final_seconds
        every, steps = self.config.validate_every, self.steps
        if every:
            validations = max(1, math.ceil((steps - counts.step) / every))
            fitting = (left - validation) / max(1e-9, each + validation / every)
        else:
            spare = VALIDATION_SHARE * self.budget - counts.seconds_validating - self._final_seconds
            most = max(1, math.ceil((steps - counts.step) / self.validate_every))
            validations = min(most, max(1, int(spare / max(1e-9, validation))))
            fitting = (left - validations * validation) / max(1e-9, each)
        expected = max(0, steps - counts.step) * each + validations * validation
        if abs(expected - left) > TOLERANCE * self.budget:
            steps = max(MIN_STEPS, counts.step + max(0, int(fitting)))
        if every:
            return steps, 0
        distance = max(math.ceil(steps / VALIDATIONS), math.ceil((steps - counts.step) / validations))
        return steps, min(steps, counts.step + distance)

    def change(self, steps: int, validate_at: int) -> None:
        """Set the number of updates of the run and its next validation."""
        counts = self.counts
        if steps != self.steps:
            counts.plan = SchedulePlan(steps=steps, start=counts.step, position=self._position())
        counts.validate_at = validate_at
