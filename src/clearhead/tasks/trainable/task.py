"""A task as the trainer sees it: examples, loss and validation; and the records that it is prepared from.

The trainer knows tasks, never families; a family knows tensors, never tasks.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pydantic import TypeAdapter

from clearhead.config import Config
from clearhead.data.batching import Indices
from clearhead.data.corpus.held_out import HeldOutSplit, overlap, split_valid
from clearhead.data.corpus.id_arrays import Work, ignore_progress
from clearhead.data.readers.lines import excerpt
from clearhead.data.records import Corpus, R, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.evaluation.metrics import OutputCounts
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import Baseline

if TYPE_CHECKING:
    from clearhead.model.loss import Loss

MIN_RECORDS = 10  # fewer are no corpus

Decode = Literal["if_worthwhile", "always", "sample"]
"""Which validation examples are decoded: `validate_lines` of them, but none, or only `SAMPLE_LINES`, as long as the
loss is too high for decoding to be worthwhile; "always" ignores the loss."""
SAMPLE_LINES = 50  # decoded at the end of a run that has learned nothing: a score in a tenth of the time of 500


@dataclass(frozen=True)
class Validation:
    """Quality of a model on the validation data."""

    loss: float  # mean negative log-likelihood per token under teacher forcing, without smoothing
    perplexity: float
    score: float | None  # higher is better; None: nothing was decoded, because the loss is still too high
    score_name: str
    signature: str
    example: tuple[str, str, str]  # an input, the model's output, and the reference
    baseline: Baseline | None = None
    outputs: OutputCounts | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key of the best validation: the score, then the lower loss; no score and a loss of NaN are the worst."""
        score = -math.inf if self.score is None else self.score
        return score, -math.inf if math.isnan(self.loss) else -self.loss

    @property
    def warning(self) -> str:
        """A sentence that says why the model has not learned its task; empty if it has."""
        problem = self.baseline.problem(self.loss, self.score, self.score_name) if self.baseline else ""
        return f"this model has not learned its task: {problem}; train it longer or on more data" if problem else ""

    @property
    def figure(self) -> str:
        """The score with its name, or the loss if nothing was decoded."""
        return f"loss {self.loss:.2f}" if self.score is None else f"{self.score_name} {self.score:.2f}"

    def describe(self) -> str:
        """Return the score, or why there is none, with degenerate outputs."""
        if self.score is None:
            why = f": worthwhile below {self.baseline.decoding_loss:.2f}" if self.baseline else ""
            return f"validation loss {self.loss:.2f}, not decoded yet{why}"
        noted = (
            f" ({self.outputs.summary} in {self.outputs.examples:,})" if self.outputs and self.outputs.summary else ""
        )
        return f"validation {self.figure}{noted}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry of metrics.jsonl and the manifest."""
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
    def from_json(cls, facts: Mapping[str, Any]) -> "Validation":
        """Return what `to_json` wrote, without the example; a manifest has null for a number that is not finite."""
        (name,) = facts.keys() - {"loss", "perplexity", "baseline", "outputs"}
        loss, perplexity = (math.inf if facts[key] is None else facts[key] for key in ("loss", "perplexity"))
        scored = {"score": facts[name]["score"], "score_name": name, "signature": facts[name]["signature"]}
        others = {key: facts[key] for key in ("baseline", "outputs") if key in facts}
        found = {"loss": loss, "perplexity": perplexity, **scored, "example": ("", "", ""), **others}
        return TypeAdapter(cls).validate_python(found)


Batch = TypeVar("Batch")


class TrainingTask(Protocol[Batch]):
    """Examples, loss and score of one purpose. `Batch` is the task's own."""

    unit: str
    """What a prediction is called in the speed that is shown: tok, or one example."""

    def sizes(self) -> tuple[int, int]:
        """How many examples there are to train on, and to validate."""

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch, a pure function of the seed and the epoch."""

    def batch(self, indices: Indices, epoch: int) -> Batch:
        """The tensors of these examples; what is random in them is a pure function of seed, epoch and examples."""

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """One batch cut into at most `parts` of about equal work, to be computed side by side."""

    def tokens(self, indices: Indices) -> int:
        """How many predictions these examples train: what their loss is divided by."""

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Where these examples stand in the training file, or as FILE:LINE in several, to name a batch gone wrong."""

    def loss(self, model: Any, batch: Batch) -> "Loss":
        """The loss of one batch, summed over its tokens, under a network of the family that the task needs."""

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the model's loss and score on the validation data."""


@dataclass(frozen=True)
class TrainingFiles:
    """What a user gave to train on, and to validate on if not a part of the same."""

    train: Sequence[Path]
    valid: Sequence[Path] = ()
    work: Work = ignore_progress
    """Told how far reading is, where it takes long."""
    minimum: int = MIN_RECORDS
    """Fewest usable records to train on."""


@dataclass(frozen=True)
class TaskRecords(Generic[R]):
    """What was read, divided."""

    train: Sequence[R]
    valid: Sequence[R]
    corpus: Corpus[R]
    sentences: int = 0  # about how many, where a record is not one
    work: Work = ignore_progress
    """Told how far their making is, where it takes long."""
    names: Sequence[str] = ()
    """Of the files to train on."""

    def account(self, skips: SkipReport, tell: Log) -> None:
        """Says what was left out after reading, and adds it to the account of the corpus."""
        for line in skips.messages():
            tell(line)
        self.corpus.skips.absorb(skips)

    @property
    def amount(self) -> int:
        """What sizes are chosen by: records, or sentences where a record may be a whole book."""
        return self.sentences or len(self.corpus.records)


@dataclass(frozen=True)
class PreparedTask:
    """A task that is ready to be trained, and the config with what only the data tell (vocabulary, labels, sizes)."""

    config: Config
    tokenizer: Tokenizer | None
    task: TrainingTask[Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the data for the manifest."""


def load_and_split(
    load: Callable[[Sequence[Path], int], Corpus[R]], files: TrainingFiles, config: Config, tell: Log, noun: str
) -> TaskRecords[R]:
    """Reads the files with `load(paths, minimum)`, and holds a part out where no validation file was given."""
    corpus = load(files.train, files.minimum)
    messages = corpus.skips.messages()
    if files.valid:
        valid = load(files.valid, 1)
        messages += [line for line in valid.skips.messages() if line not in messages]
        messages += overlap_warning(corpus.records, valid.records, files.valid)
        parts = HeldOutSplit(corpus.records, list(valid.records))
    else:
        parts = split_valid(corpus.records, config.data.validation_share, config.data.validation_max)
    records = TaskRecords(parts.train, parts.valid, corpus, work=files.work, names=[str(path) for path in files.train])
    for line in messages:
        tell(line)
    tell(f"{len(records.train):,} {noun} to train on, {len(records.valid):,} to validate")
    return records


def overlap_warning(train: Sequence[R], valid: Sequence[R], valid_paths: Sequence[Path]) -> list[str]:
    """Return a warning if validation inputs also occur in the training data, with the line of the first one."""
    found = overlap(train, valid)
    if not found:
        return []
    name = f"{valid_paths[0]}:{found[0].line}" if len(valid_paths) == 1 else f"line {found[0].line}"
    return [
        f"warning: {len(found):,} of {len(valid):,} validation inputs are also in the training data, such as {name} "
        f"({excerpt(found[0].parts[0])}); the validation score will be too high: remove them from one of the files"
    ]
