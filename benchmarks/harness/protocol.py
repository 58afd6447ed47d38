"""Protocol between the runner and a contestant: one JSON object per line, on stdin and stdout.

The runner measures the time from a command to its answer. A contestant subclasses `Contestant`, and its file ends with
`serve(ItsClass)`. A contestant in another language answers the same lines:

    {"command": "describe", "cores": 2}         -> name, version, notes, train and decode settings to try
    {"command": "start", "task": ..., "data": ..., "setting": ..., "rank": 0, "meeting": ...}  -> parameters
    {"command": "prepare", "first": 0, "steps": 30}  -> target tokens of these batches of the data file
    {"command": "train"}                        -> one update with each of the prepared batches
    {"command": "decode", "beam": 4, "every": 1, "batch": 64}  -> sentences and tokens generated, of every n-th sentence
    {"command": "loss", "sentences": 100}       -> mean negative log-likelihood per token of validation pairs
    {"command": "memory"}                       -> peak memory of the process in bytes
    {"command": "save", "path": ...}, {"command": "load", "path": ...}, {"command": "quit"}

A setting with several processes runs several copies of a contestant, identified by their rank. Each takes a part of
every training batch, and every n-th sentence to decode. Field names are fixed: `against` also runs older checkouts.
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
    """Work of all contestants: shape of the model, training settings and number of decoded tokens."""

    vocab_size: int
    num_layers: int = 4
    """Layers of the encoder, and of the decoder."""
    model_dim: int = 128
    inner_dim: int = 256
    num_heads: int = 4
    norm: str = "pre"
    """pre, or post as in the paper, for contestants that support both."""
    dropout: float = 0.3
    """On embeddings and sub-layer outputs only."""
    label_smoothing: float = 0.1
    learning_rate: float = 1e-3
    warmup: int = 50
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    clip_norm: float = 1.0
    batch_tokens: int = 4096
    precision: str = "float32"
    """float32, or bfloat16 for matrix products in training (torch's autocast)."""
    output_tokens: int = 17
    """Tokens decoded for each sentence, the mean length of a Multi30k reference."""
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
    """Processes, threads and decoding batch size of a contestant; the fastest of its settings is measured."""

    processes: int = 1
    threads: int = 1
    batch: int = 0
    """Sentences decoded at a time; 0: chosen by the contestant."""

    def __str__(self) -> str:
        processes, threads = _plural(self.processes, "process", "es"), _plural(self.threads, "thread", "s")
        parts = [f"{processes} of {threads}" if self.processes > 1 else threads]
        parts += [f"batch {self.batch}"] * (self.batch > 0)
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs as ids; both sides end with the end token and have no start token."""

    source: list[list[int]]
    target: list[list[int]]

    def part(self, index: int, count: int) -> "Pairs":
        """Return one of `count` parts of about equal work, divided as by `clearhead train`."""
        lengths = [np.array([*map(len, rows)]) for rows in (self.source, self.target)]
        parts = split_by_work(np.arange(len(self.source)), count, estimate_work(*lengths))
        rows = parts[index] if index < len(parts) else ()
        return Pairs([self.source[row] for row in rows], [self.target[row] for row in rows])

    @property
    def target_tokens(self) -> int:
        return sum(map(len, self.target))


@dataclasses.dataclass(frozen=True)
class Data:
    """Data file that all contestants read."""

    train: list[Pairs]
    """Batches in training order."""
    valid: Pairs
    """Sorted by source length, longest first."""
    vocab_size: int

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def read(path: Path) -> "Data":
        fields = json.loads(path.read_text())
        return Data([Pairs(**pairs) for pairs in fields["train"]], Pairs(**fields["valid"]), fields["vocab_size"])


@dataclasses.dataclass(frozen=True)
class Start:
    """Arguments from which a contestant is built."""

    task: Task
    setting: Setting
    rank: int
    meeting: str
    """File path for the rendezvous of several processes."""


class Contestant(ABC):
    """Toolkit with a randomly initialised model of the task's shape."""

    name: ClassVar[str]
    notes: ClassVar[str]
    """Differences from the other contestants, printed below the results."""

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
        """Return the batches in the toolkit's format; not timed."""

    @abstractmethod
    def train(self, prepared: Any) -> None:
        """Perform one update per batch."""

    @abstractmethod
    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        """Translate with `task.output_tokens` tokens each and return the number of generated tokens."""

    @abstractmethod
    def loss(self, pairs: Pairs) -> float:
        """Return the summed negative log-likelihood of the target tokens, without dropout and smoothing."""

    @abstractmethod
    def save(self, path: str) -> None: ...

    @abstractmethod
    def load(self, path: str) -> None: ...


class _Server:
    """Server with one method per command."""

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
        sources = self.data.valid.source[::every][self.rank :: self.setting.processes]
        tokens = self.contestant.decode(sources, beam, batch) if sources else 0
        return {"tokens": tokens, "sentences": len(sources)}

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
    """Answer each command with the server's method of that name until quit; redirect other output to stderr."""
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
