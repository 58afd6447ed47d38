"""Interface between tasks and the trainer: examples, loss and validation.

The trainer depends on tasks and not on model families; a model family processes tensors and does not depend on tasks.

N training examples
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from clearhead.config import Config
from clearhead.data.batching import Indices, Lengths, estimate_work, plan_batches, split_by_work
from clearhead.data.corpus.sampling_weights import Repeats
from clearhead.data.tokenizer import Tokenizer
from clearhead.evaluation.metrics import OutputCounts
from clearhead.evaluation.perplexity import perplexity
from clearhead.tasks.trainable.baseline import Baseline

if TYPE_CHECKING:
    from clearhead.model.loss import Loss

Decode = Literal["if_worthwhile", "always", "sample"]
"""Number of validation examples to decode: `validate_lines` with "always", or if the loss is low enough for decoding to
be worthwhile. Otherwise none with "if_worthwhile", and `SAMPLE_LINES` with "sample"."""
# Lines decoded at the end of a run that has learned nothing, which takes a tenth of the time of 500 lines.
SAMPLE_LINES = 50
NO_EXAMPLE = ("", "", "")


@dataclass(frozen=True)
class Validation:
    """Quality of a model on the validation data."""

    loss: float
    """Mean negative log-likelihood per token under teacher forcing, without label smoothing."""
    score: float | None
    """Score, higher is better; None if nothing was decoded because the loss is still too high."""
    score_name: str
    signature: str
    example: tuple[str, str, str]
    """An input, the model's output, and the reference."""
    baseline: Baseline | None = None
    outputs: OutputCounts | None = None

    @property
    def perplexity(self) -> float:
        """Perplexity of the loss."""
        return perplexity(self.loss)

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, higher is better: the score, then the negative loss. No score and a loss of NaN are the worst."""
        score = -math.inf if self.score is None else self.score
        return score, -math.inf if math.isnan(self.loss) else -self.loss

    @property
    def warning(self) -> str:
        """Sentence about why the model has not learned its task; empty if it has."""
        problem = self.baseline.problem(self.loss, self.score, self.score_name) if self.baseline else ""
        return f"this model has not learned its task: {problem}; train it longer or on more data" if problem else ""

    @property
    def figure(self) -> str:
        """The score with its name, or the loss if nothing was decoded."""
        return f"loss {self.loss:.2f}" if self.score is None else f"{self.score_name} {self.score:.2f}"

    def describe(self) -> str:
        """Return the score with the number of degenerate outputs, or the reason why nothing was decoded."""
        if self.score is None:
            reason = f": worthwhile below {self.baseline.decoding_loss:.2f}" if self.baseline else ""
            return f"validation loss {self.loss:.2f}, not decoded yet{reason}"
        degenerate = self.outputs.summary if self.outputs else ""
        note = f" ({degenerate} in {self.outputs.examples:,})" if self.outputs and degenerate else ""
        return f"validation {self.figure}{note}"

    def to_json(self) -> dict[str, Any]:
        """Return the validation as stored in metrics.jsonl and in the manifest."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            self.score_name: {"score": self.score, "signature": self.signature},
            **({"baseline": asdict(self.baseline)} if self.baseline else {}),
            **({"outputs": self.outputs.to_json()} if self.outputs else {}),
        }

    def to_text(self) -> str:
        """Return all fields, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Validation":
        """Return the validation that `to_text` wrote."""
        return TypeAdapter(cls).validate_python(json.loads(text))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Validation":
        """Return the validation that `to_json` wrote, without the example. A manifest has null for an infinite loss."""
        (name,) = record.keys() - {"loss", "perplexity", "baseline", "outputs"}
        fields = {
            "loss": math.inf if record["loss"] is None else record["loss"],
            "score": record[name]["score"],
            "score_name": name,
            "signature": record[name]["signature"],
            "example": NO_EXAMPLE,
            **{key: record[key] for key in ("baseline", "outputs") if key in record},
        }
        return TypeAdapter(cls).validate_python(fields)


Batch = TypeVar("Batch")


class TrainingTask(Protocol[Batch]):
    """Examples, loss and score of one task. `Batch` is the task's own type of batches."""

    unit: str
    """Name of predictions in the reported speed, such as tok or texts."""

    def num_examples(self) -> tuple[int, int]:
        """Return the number of training and of validation examples."""

    def plan(self, epoch: int) -> list[Indices]:
        """Return the batches of one epoch, a pure function of the seed and the epoch."""

    def batch(self, indices: Indices, epoch: int) -> Batch:
        """Return the tensors of these examples, a pure function of seed, epoch and examples."""

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Return one batch divided into at most `parts` parts of about equal work, to be computed in parallel."""

    def tokens(self, indices: Indices) -> int:
        """Return the number of predictions in these examples, by which their loss is divided."""

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Return the lines of these examples in the training file, as FILE:LINE if there are several files."""

    def loss(self, model: Any, batch: Batch) -> "Loss":
        """Return the loss of one batch, summed over its predictions."""

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the model's loss and score on the validation data."""


@dataclass(frozen=True)
class ExampleTable:
    """Lengths, numbers of predictions and line numbers of the training examples of a task."""

    source_lengths_N: Lengths
    """Length of each example in the input of a batch, in positions."""
    target_lengths_N: Lengths
    """Length of each example in the targets of a batch; equal to the source length for single sequences."""
    num_predictions_N: Lengths
    lines_N: NDArray[np.int64]


class ExampleTask(Generic[Batch]):
    """Base of training tasks whose examples have fixed lengths: batches contain examples of similar length.

    Subclasses add `batch`, `loss` and `validate`.
    """

    unit = "tok"

    def __init__(
        self, config: Config, examples: ExampleTable, num_valid: int, batch_tokens: int = 0,
        repeats_N: Repeats | None = None,
    ) -> None:  # fmt: skip
        """`batch_tokens` is the largest number of positions in a batch; 0 means `training.batch_tokens`."""
        self.config = config
        self.repeats_N = repeats_N
        self._examples = examples
        self._num_valid = num_valid
        self._batch_tokens = batch_tokens or config.training.batch_tokens

    def num_examples(self) -> tuple[int, int]:
        """Return the number of training and of validation examples."""
        return len(self._examples.lines_N), self._num_valid

    def plan(self, epoch: int) -> list[Indices]:
        """Return the batches of one epoch, a pure function of the seed and the epoch."""
        lengths = self._examples.source_lengths_N, self._examples.target_lengths_N
        return plan_batches(*lengths, self._batch_tokens, self.config.training.seed, epoch, self.repeats_N)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Return the batch divided into parts with examples of similar length, which reduces padding."""
        examples = self._examples
        work_N = estimate_work(examples.source_lengths_N[indices], examples.target_lengths_N[indices])
        return split_by_work(indices, parts, work_N)

    def tokens(self, indices: Indices) -> int:
        """Return the number of predictions in these examples."""
        return int(self._examples.num_predictions_N[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Return the lines of these examples in the training file."""
        return [int(line) for line in self._examples.lines_N[indices]]

    @property
    def baseline(self) -> Baseline:
        """Scores of trivial predictors on the validation data."""
        raise NotImplementedError


@dataclass(frozen=True)
class PreparedTask:
    """Task that is ready for training, with a config completed from the data (vocabulary, labels, sizes)."""

    config: Config
    tokenizer: Tokenizer | None
    task: TrainingTask[Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the data for the manifest."""
