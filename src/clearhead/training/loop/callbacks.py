"""What a training tells whoever watches it: the terminal, a log, a test."""

from dataclasses import dataclass
from typing import Protocol

from clearhead.tasks.trainable.task import Validation


@dataclass(frozen=True)
class Progress:
    """Where a run stands after an update."""

    step: int
    steps: int
    epoch: int
    loss: float  # smoothed loss a token, mean since the last report
    rate: float
    tokens_per_second: float
    unit: str  # what is counted there: tok, texts, ...
    seconds: float
    seconds_left: float
    best: Validation | None


class Callback(Protocol):
    """Told what happens; decides how it looks."""

    def message(self, text: str) -> None:
        """Something worth a line."""

    def progress(self, progress: Progress) -> None:
        """An update was made."""

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """The model was validated."""

    def work(self, what: str, done: int, total: int) -> None:
        """So much of some long work before the training is done; of 0 where that is not known."""


class NullCallback:
    """Watches without a word."""

    def message(self, text: str) -> None:
        """Nothing."""

    def progress(self, progress: Progress) -> None:
        """Nothing."""

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Nothing."""

    def work(self, what: str, done: int, total: int) -> None:
        """Nothing."""
