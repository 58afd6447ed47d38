"""What the loop of a training keeps count of, and how fast it goes."""

import math
import time

from pydantic import BaseModel, ConfigDict

from clearhead.tasks.task import Validation


class Counts(BaseModel):
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
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    seconds_validating: float = 0.0


class Pace:
    """Time and speed of a run, counted on from the time that it had used before."""

    def __init__(self, counts: Counts) -> None:
        self._began = time.monotonic() - counts.seconds
        self._cpu_began = time.process_time() - counts.cpu_seconds
        self._recent = [(time.monotonic(), 0)]  # (time, tokens) of the last updates, behind the time of their beginning
        self._speed = 0.0

    def note(self, counts: Counts) -> None:
        """Writes the time used into the counts."""
        counts.seconds, counts.cpu_seconds = time.monotonic() - self._began, time.process_time() - self._cpu_began

    def updated(self, tokens: int) -> None:
        """An update was made."""
        self._recent = [*self._recent[-49:], (time.monotonic(), tokens)]

    def paused(self) -> None:
        """Something else took its time."""
        self._recent = [(time.monotonic(), 0)]

    def speed(self) -> float:
        """Target tokens a second over the last updates."""
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            self._speed = sum(tokens for _, tokens in self._recent[1:]) / max(1e-9, seconds)
        return self._speed


def next_validation(counts: Counts, steps: int, every: int, seconds: float) -> int:
    """The step at which to validate next, so that all validations take about so many seconds, the last among them.

    They go on as long as they took so far. A first one and one at the end there always are.
    """
    each = counts.seconds_validating / max(1, counts.validations)
    left = max(1, int((seconds - counts.seconds_validating) / max(1e-9, each)))
    return min(steps, counts.step + max(every, math.ceil((steps - counts.step) / left)))


def seconds_left(counts: Counts, steps: int, validate_every: int) -> float:
    """How long the rest of a run takes, if it goes on as it went."""
    left = steps - counts.step
    each = (counts.seconds - counts.seconds_validating) / max(1, counts.step)
    validation = counts.seconds_validating / max(1, counts.validations)
    return left * each + left / validate_every * validation
