"""What the loop of a training keeps count of, and how fast it goes."""

import math
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from clearhead.tasks.trainable.task import Validation
from clearhead.training.loop.schedule import SchedulePlan

Clock = Callable[[], float]


class TrainState(BaseModel):
    """Where a run stands after an update: all that the loop needs to go on from there, besides tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """How many batches of the epoch's plan are used up."""
    tokens: int = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0
    without_gain: int = 0
    loss: float = math.nan
    best: Validation | None = None
    best_step: int = 0
    validated: int = 0
    """The step of the last validation."""
    validations: int = 0
    validate_at: int = 0
    """The step of the next validation, where a run with --minutes has spaced them; 0: by `training.validate_every`."""
    plan: SchedulePlan | None = None
    """Set when a run with --minutes was planned anew."""
    last: Validation | None = None
    """The last validation."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    seconds_validating: float = 0.0
    seconds_at_validation: float = 0.0
    """Time used when the last validation ended."""
    seconds_per_update: float = 0.0
    """Expected from the updates before the last validation; 0: there was none."""
    seconds_per_validation: float = 0.0
    """Time of the last validation."""

    def note_updates(self, recent: float) -> None:
        """Take the time per update since the last validation, or of the `recent` ones if that is longer.

        To be called before the next validation. A machine that has just become slower is expected to stay so.
        """
        if self.step > self.validated:
            mean = (self.seconds - self.seconds_at_validation) / (self.step - self.validated)
            self.seconds_per_update = max(mean, recent)

    def note_validation(self, validation: Validation, seconds: float) -> None:
        """Record a validation and its duration."""
        self.last, self.validated = validation, self.step
        self.validations += 1
        self.seconds_per_validation = seconds
        self.seconds_validating += seconds


class Throughput:
    """Time and speed of a run, counted on from the time that it had used before."""

    def __init__(self, counts: TrainState, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock() - counts.seconds
        self._cpu_began = time.process_time() - counts.cpu_seconds
        self._recent = [(clock(), 0)]  # (time, tokens) of the last updates, behind the time of their beginning
        self._speed = 0.0

    def note(self, counts: TrainState) -> None:
        """Write the time used into the counts."""
        counts.seconds, counts.cpu_seconds = self._clock() - self._began, time.process_time() - self._cpu_began

    def updated(self, tokens: int) -> None:
        """An update was made."""
        self._recent = [*self._recent[-49:], (self._clock(), tokens)]

    def paused(self) -> None:
        """Something else took its time."""
        self._recent = [(self._clock(), 0)]

    def seconds_per_update(self) -> float:
        """Return the mean time of the last updates; 0 if there are none since the last pause."""
        return (self._recent[-1][0] - self._recent[0][0]) / max(1, len(self._recent) - 1)

    def speed(self) -> float:
        """Return target tokens per second over the last updates."""
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            self._speed = sum(tokens for _, tokens in self._recent[1:]) / max(1e-9, seconds)
        return self._speed
