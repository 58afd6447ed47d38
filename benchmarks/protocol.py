"""What the runner and a contestant say to each other: one JSON object a line, on stdin and stdout.

The runner keeps the clock: it sends a command and waits for the answer. A contestant subclasses `Contestant` and ends
its file with `serve(ItsClass)`. A contestant that is no Python at all answers the same lines:

    {"command": "describe", "cores": 2}         -> name, version, notes, train and decode settings to try
    {"command": "start", "task": ..., "data": ..., "setting": ..., "rank": 0, "meeting": ...}  -> parameters
    {"command": "prepare", "first": 0, "steps": 30}  -> target tokens of these batches of the data file
    {"command": "train"}                        -> one update with each of the prepared batches
    {"command": "decode", "beam": 4, "every": 1, "batch": 64}  -> sentences and tokens made, of every n-th sentence
    {"command": "loss", "sentences": 100}       -> mean negative log-likelihood a token of validation pairs
    {"command": "memory"}                       -> the most bytes that the process ever held in memory
    {"command": "save", "path": ...}, {"command": "load", "path": ...}, {"command": "quit"}

A setting with several processes is several copies of a contestant, told apart by their rank. Each takes a part of every
training batch, and every n-th sentence to decode.
"""

import dataclasses
import json
import os
import resource
import sys
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clearhead.data.batching import estimate_work, split_by_work


@dataclasses.dataclass(frozen=True)
class Task:
    """What every contestant does: the model's shape, how it is trained and how much it decodes."""

    vocab_size: int
    num_layers: int = 4
    """of the encoder, and as many of the decoder"""
    model_dim: int = 128
    inner_dim: int = 256
    num_heads: int = 4
    norm: str = "pre"
    """or post, as in the paper, for those that can choose"""
    dropout: float = 0.3
    """on embeddings and on what each sub-layer adds, nowhere else"""
    label_smoothing: float = 0.1
    learning_rate: float = 1e-3
    warmup: int = 50
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    clip_norm: float = 1.0
    batch_tokens: int = 4096
    precision: str = "float32"
    """or bfloat16: of the factors of matrix products in training, by torch's autocast"""
    output_tokens: int = 17
    """decoded for each sentence, no more and no fewer: the mean length of a Multi30k reference in these pieces"""
    alpha: float = 0.6
    max_positions: int = 1024
    pad_id: int = 0
    unk_id: int = 1
    start_id: int = 2
    end_id: int = 3
    seed: int = 1


def _plural(count: int, noun: str, ending: str) -> str:
    return f"{count} {noun}{ending if count > 1 else ''}"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A way to use the machine: a contestant offers some, the fastest counts."""

    processes: int = 1
    threads: int = 1
    batch: int = 0
    """sentences decoded at a time; 0: the contestant's own choice"""

    def __str__(self) -> str:
        processes, threads = _plural(self.processes, "process", "es"), _plural(self.threads, "thread", "s")
        parts = [f"{processes} of {threads}" if self.processes > 1 else threads]
        parts += [f"batch {self.batch}"] * (self.batch > 0)
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs as ids; both sides end with the end piece, neither begins with the start piece."""

    source: list[list[int]]
    target: list[list[int]]

    def part(self, index: int, count: int) -> "Pairs":
        """One of `count` parts, of about equal work, as `clearhead train` divides a batch."""
        lengths = [np.array([*map(len, rows)]) for rows in (self.source, self.target)]
        parts = split_by_work(np.arange(len(self.source)), count, estimate_work(*lengths))
        rows = parts[index] if index < len(parts) else ()
        return Pairs([self.source[row] for row in rows], [self.target[row] for row in rows])

    @property
    def target_tokens(self) -> int:
        return sum(map(len, self.target))


@dataclasses.dataclass(frozen=True)
class Data:
    """The file that all contestants read."""

    train: list[Pairs]
    """batches, in the order in which they are trained on"""
    valid: Pairs
    """sorted by source length, longest first"""
    vocab_size: int

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def read(path: Path) -> "Data":
        fields = json.loads(path.read_text())
        return Data([Pairs(**pairs) for pairs in fields["train"]], Pairs(**fields["valid"]), fields["vocab_size"])


@dataclasses.dataclass(frozen=True)
class Start:
    """What a contestant is built from."""

    task: Task
    setting: Setting
    rank: int
    meeting: str
    """a file path through which several processes find each other"""


class Contestant(ABC):
    """One toolkit, with a model of the task's shape and random weights, ready to train."""

    name: ClassVar[str]
    notes: ClassVar[str]
    """what a reader must know to judge the comparison"""

    def __init__(self, start: Start) -> None:
        self.task, self.setting, self.rank = start.task, start.setting, start.rank

    @staticmethod
    @abstractmethod
    def version() -> str: ...

    @staticmethod
    @abstractmethod
    def train_settings(cores: int) -> list[Setting]: ...

    @staticmethod
    @abstractmethod
    def decode_settings(cores: int) -> list[Setting]: ...

    @abstractmethod
    def parameters(self) -> int: ...

    @abstractmethod
    def prepare(self, batches: list[Pairs]) -> Any:
        """The batches in the toolkit's own form; not timed."""

    @abstractmethod
    def train(self, prepared: Any) -> None:
        """One update a batch."""

    @abstractmethod
    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        """Translate, `task.output_tokens` for each; the number of tokens made."""

    @abstractmethod
    def loss(self, pairs: Pairs) -> float:
        """Sum of the negative log-likelihood of the target tokens, without dropout and smoothing."""

    @abstractmethod
    def save(self, path: str) -> None: ...

    @abstractmethod
    def load(self, path: str) -> None: ...


class _Server:
    """Answers commands, one method each."""

    def __init__(self, kind: type[Contestant]) -> None:
        self.kind = kind
        self.prepared: Any = None

    def describe(self, cores: int) -> dict[str, Any]:
        kind = self.kind
        return {
            "name": kind.name,
            "version": kind.version(),
            "notes": kind.notes,
            "train": [dataclasses.asdict(setting) for setting in kind.train_settings(cores)],
            "decode": [dataclasses.asdict(setting) for setting in kind.decode_settings(cores)],
        }

    def start(
        self, task: dict[str, Any], data: str, setting: dict[str, Any], rank: int, meeting: str
    ) -> dict[str, Any]:
        self.data = Data.read(Path(data))
        self.setting = Setting(**setting)
        self.rank = rank
        self.contestant = self.kind(Start(Task(**task), self.setting, rank, meeting))
        return {"parameters": self.contestant.parameters()}

    def prepare(self, first: int, steps: int) -> dict[str, Any]:
        batches = [self.data.train[i % len(self.data.train)] for i in range(first, first + steps)]
        self.prepared = self.contestant.prepare(batches)
        return {"tokens": sum(pairs.target_tokens for pairs in batches)}

    def train(self) -> dict[str, Any]:
        self.contestant.train(self.prepared)
        return {}

    def decode(self, beam: int, every: int, batch: int) -> dict[str, Any]:
        mine = self.data.valid.source[::every][self.rank :: self.setting.processes]
        tokens = self.contestant.decode(mine, beam, batch) if mine else 0
        return {"tokens": tokens, "sentences": len(mine)}

    def loss(self, sentences: int) -> dict[str, Any]:
        valid = self.data.valid
        pairs = Pairs(valid.source[-sentences:], valid.target[-sentences:])
        return {"loss": self.contestant.loss(pairs) / pairs.target_tokens}

    def memory(self) -> dict[str, Any]:
        return {"bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}

    def save(self, path: str) -> dict[str, Any]:
        if self.rank == 0:
            self.contestant.save(path)
        return {}

    def load(self, path: str) -> dict[str, Any]:
        self.contestant.load(path)
        return {}


def serve(kind: type[Contestant]) -> None:
    """Answer the runner's commands with a contestant."""
    answer_with(_Server(kind))


def answer_with(server: object) -> None:
    """Answer each command by the server's method of that name, until quit; what a toolkit prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        message = json.loads(line)
        command = message.pop("command")
        if command == "quit":
            return
        try:
            answer = getattr(server, command)(**message)
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
