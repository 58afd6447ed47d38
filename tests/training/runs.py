"""Tiny training runs of every task, and a callback that stops them."""

import copy
import json
import os
import signal
from pathlib import Path
from typing import Any

from PIL import Image

from clearhead.bundle import read_manifest
from clearhead.config import merge
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint.checkpoint import CheckpointFolder
from clearhead.training.checkpoint.finalize import TrainingResult
from clearhead.training.loop.callbacks import Progress
from clearhead.training.loop.train_state import TrainState
from clearhead.training.run import TrainRequest, train
from tests.tasks.artificial_text import artificial_text, write_lines

Settings = dict[str, dict[str, Any]]

# Each update accumulates two batches, an epoch has several updates, and validations and checkpoints are at different
# steps.
SMALL: Settings = {
    "model": {"num_encoder_layers": 1, "model_dim": 16, "feed_forward_dim": 24, "num_heads": 2, "dropout": 0.2},
    "tokenizer": {"kind": "word", "vocab_size": 60},
    "data": {"validation_share": 0.2},
    "training": {
        "batch_tokens": 120, "gradient_accumulation": 2, "learning_rate": 0.01, "warmup": 3, "validate_lines": 5,
        "validate_every": 4, "save_every": 3, "average_checkpoints": 4, "cooldown": 0.5,
    },
}  # fmt: skip
WRITES: Settings = {"model": {"num_decoder_layers": 1}}
MORE: dict[str, Settings] = {
    "translate": WRITES,
    "classify": {},
    "tag": {},
    "mlm": {"data": {"mask_probability": 0.3}},
    "lm": {"model": {"num_decoder_layers": 1}, "data": {"max_tokens": 16, "document_unit": "line"}},
    "denoise": {"model": {"num_decoder_layers": 1, "num_encoder_layers": 1}, "data": {"mask_probability": 0.3}},
    "image": {"model": {"norm": "batch"}, "data": {"random_shift": 1}, "training": {"batch_tokens": 40}},
    "caption": {**WRITES, "data": {"random_shift": 1}},
}


def settings_of(task: str, more: Settings | None = None) -> Settings:
    """Return the settings of a tiny run of a task."""
    settings = copy.deepcopy(merge(merge(SMALL, MORE[task]), more or {}))
    if task not in ("translate", "denoise", "caption"):  # generating tasks
        del settings["training"]["validate_lines"]
    if task == "image":
        del settings["tokenizer"]
    if task == "lm":
        del settings["model"]["num_encoder_layers"]
    return settings


def write_data(task: str, folder: Path, count: int = 60) -> Path:
    """Write and return training data of a task: a file, or a folder of images."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = artificial_text(count)
    labels = [next(word for word in ("eats", "cuts", "Look") if word in line) for line in lines]
    pairs = list(zip(lines, labels, strict=True))
    if task == "translate":
        return write_lines(folder / "pairs.tsv", [f"{line}\t{' '.join(reversed(line.split()))}" for line in lines])
    if task == "classify":
        return write_lines(folder / "labels.tsv", [f"{line}\t{label}" for line, label in pairs])
    if task == "tag":
        tagged = ["\n".join(f"{word}\t{'B-VERB' if word == label else 'O'}" for word in line.split()) + "\n"
                  for line, label in pairs]  # fmt: skip
        return write_lines(folder / "tags.conll", tagged)
    if task in ("image", "caption"):
        names = []
        for number, label in enumerate(labels):
            path = folder / "images" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            shade = 40 + 60 * ["eats", "cuts", "Look"].index(label)
            Image.frombytes("L", (8, 8), bytes((shade + 7 * number * position) % 256 for position in range(64))).save(
                path
            )
            names.append(f"{path.relative_to(folder)}\t{label}")
        return folder / "images" if task == "image" else write_lines(folder / "captions.tsv", names)
    return write_lines(folder / "text.txt", lines)


class RecordingCallback:
    """Callback that stores messages and steps of a run, and sends the process a signal after update `stop_at`."""

    def __init__(self, stop_at: int = 0, number: int = signal.SIGTERM) -> None:
        self.stop_at, self.number = stop_at, number
        self.messages: list[str] = []
        self.steps: list[int] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress.step)
        if progress.step == self.stop_at:
            os.kill(os.getpid(), self.number)

    def validation(self, step: int, validation: Validation, is_best: bool) -> None: ...

    def work(self, activity: str, done: int, total: int) -> None: ...


def run(
    task: str,
    data: Path | list[Path],
    out: Path,
    callback: RecordingCallback | None = None,
    *,
    more: Settings | None = None,
    **options: Any,
) -> TrainingResult:
    """Run a training of 13 updates, with `more` settings and other options of the request; return its result."""
    length = {"training": {"steps": options.pop("steps", 13)}}
    settings = merge(settings_of(task, more), length)
    files = data if isinstance(data, list) else [data]
    return train(TrainRequest(files, out, settings=settings, task=task, threads=options.pop("threads", 1), **options),
                 callback or RecordingCallback())  # fmt: skip


def model_of(folder: Path) -> str:
    """Return the fingerprint of a bundle, which covers all bits of weights, config and tokenizer."""
    return read_manifest(folder).fingerprint


def traces(folder: Path) -> tuple[object, ...]:
    """Return the content of a run folder except the model and times: checksums of tensors, counters and metrics."""
    restored = CheckpointFolder.load(folder / "training")
    assert restored and restored.state
    timed = {name for name in TrainState.model_fields if name.startswith(("seconds", "cpu_seconds"))}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = [{key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")}
               for line in lines]  # fmt: skip
    state = restored.state
    return state.files, state.checkpoints, state.best, state.train_state.model_dump(exclude=timed), metrics
