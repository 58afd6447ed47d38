"""Interfaces for the output of a training: `Callback` for users, `RunLogger` for the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from clearhead.tasks.trainable.task import Validation

if TYPE_CHECKING:
    from clearhead.model.parameters import Weights
    from clearhead.training.loop.train_state import TrainState


@dataclass(frozen=True)
class Progress:
    """Progress of a run after an update."""

    step: int
    steps: int
    epoch: int
    loss: float  # smoothed loss per token
    rate: float
    tokens_per_second: float
    unit: str  # of the predictions in `tokens_per_second`, such as tok or texts
    seconds: float
    seconds_left: float
    best: Validation | None


class Callback(Protocol):
    """Receiver of messages and figures, such as a terminal display, a log or a test."""

    def message(self, text: str) -> None:
        """Report one line of text."""

    def progress(self, progress: Progress) -> None:
        """Report an update."""

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Report a validation."""

    def work(self, activity: str, done: int, total: int) -> None:
        """Report the progress of a long preparation such as "reading pairs"; `total` is 0 if it is unknown."""


class NullCallback:
    """Callback that ignores everything."""

    def message(self, text: str) -> None:
        """Ignore the message."""

    def progress(self, progress: Progress) -> None:
        """Ignore the update."""

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Ignore the validation."""

    def work(self, activity: str, done: int, total: int) -> None:
        """Ignore the progress of a preparation."""


class RunLogger(Protocol):
    """Storage of a run's metrics and weights.

    The tensors belong to the model in training: a logger must write them at once and not keep references.
    """

    def record(self, entry: dict[str, Any]) -> None:
        """Append one line to the metrics."""

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        """Save the complete state; with `is_checkpoint`, its weights may be averaged at the end of the run."""

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Save the best weights so far."""


class NullRunLogger:
    """Logger that ignores everything, for all ranks except 0."""

    def record(self, entry: dict[str, Any]) -> None:
        """Ignore the metrics."""

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        """Ignore the state."""

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Ignore the weights."""
