"""Interfaces through which a training reports: `Callback` for users, `RunLogger` for the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from clearhead.tasks.trainable.task import Validation

if TYPE_CHECKING:
    from clearhead.model.parameters import Weights
    from clearhead.training.loop.train_state import TrainState


@dataclass(frozen=True)
class Progress:
    """Figures of a run after an update."""

    step: int
    steps: int
    epoch: int
    loss: float  # smoothed loss per token
    rate: float
    tokens_per_second: float
    unit: str  # what `tokens_per_second` counts: tok, texts, ...
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

    def work(self, what: str, done: int, total: int) -> None:
        """Report progress of long preparations; `total` is 0 if it is unknown."""


class NullCallback:
    """Callback that ignores everything."""

    def message(self, text: str) -> None:
        """Ignore it."""

    def progress(self, progress: Progress) -> None:
        """Ignore it."""

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        """Ignore it."""

    def work(self, what: str, done: int, total: int) -> None:
        """Ignore it."""


class RunLogger(Protocol):
    """Storage of a run's metrics and weights. The tensors belong to the running model and must not be kept."""

    def record(self, entry: dict[str, Any]) -> None:
        """Append one line to the metrics."""

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        """Save the complete state; the weights of checkpoints are averaged at the end."""

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Save the best weights so far."""


class NullRunLogger:
    """Logger of all ranks except 0, which saves for all of them."""

    def record(self, entry: dict[str, Any]) -> None:
        """Ignore it."""

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        """Ignore it."""

    def save_best(self, step: int, weights: Weights, validation: Validation) -> None:
        """Ignore it."""
