"""What the trainer asks of a task. The trainer knows tasks, never families; a family knows tensors, never tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from clearhead.data.batching import Indices
from clearhead.model.loss import Loss


@dataclass(frozen=True)
class Validation:
    """How good a model is on the validation data."""

    loss: float  # mean negative log-likelihood a token, without smoothing
    perplexity: float
    score: float  # higher is better: what "best" means
    score_name: str
    signature: str
    example: tuple[str, str, str]  # an input, what the model made of it, what was expected

    def to_json(self) -> dict[str, Any]:
        """For metrics.jsonl and the manifest."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            self.score_name: {"score": self.score, "signature": self.signature},
        }


Batch = TypeVar("Batch")


class Task(Protocol[Batch]):
    """Examples, loss and score of one purpose. `Batch` is the task's own."""

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch, a pure function of the seed and the epoch."""

    def batch(self, indices: Indices) -> Batch:
        """The tensors of these examples."""

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """One batch cut into at most `parts` of about equal work, to be computed side by side."""

    def tokens(self, indices: Indices) -> int:
        """How many predictions these examples train: what their loss is divided by."""

    def lines(self, indices: Indices) -> Sequence[int]:
        """Where these examples stand in the training file, to name a batch that went wrong."""

    def loss(self, model: Any, batch: Batch) -> Loss:
        """The loss of one batch, summed over its tokens, under a network of the family that the task needs."""

    def validate(self, model: Any) -> Validation:
        """The model's loss and score on the validation data."""
