"""The learning rate at each update (section 5.3)."""

import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from clearhead.config import TrainingConfig
from clearhead.config.training import ScheduleForm


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


class SchedulePlan(BaseModel):
    """Number of updates of a run that was planned anew, and how they map to its learning-rate schedule.

    The rest of the schedule is stretched or compressed to the rest of the updates, so that it has no jump and still
    ends at its minimum.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    start: int
    """The update at which the plan was made."""
    position: float
    """The position in the original schedule at that update."""

    def position_of(self, step: int, schedule: Schedule) -> float:
        """Return the position of an update in the original schedule."""
        share = (step - self.start) / max(1, self.steps - self.start)
        return self.position + share * (schedule.steps - self.position)
