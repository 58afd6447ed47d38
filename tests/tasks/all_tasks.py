"""Tiny data files, settings and models of every task."""

import contextlib
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from clearhead.cli.main import main
from clearhead.config import merge
from clearhead.tasks.registry import TASKS
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.run import PreparedRun, TrainRequest, prepare
from tests.tasks.artificial_text import artificial_text, sets, write_lines

TRAINABLE_TASKS = [name for name in TASKS if name != "embed"]  # embedding models are imported, not trained

NUM_RECORDS = 47
_ENCODER = {"num_encoder_layers": 1, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3, "dropout": 0.0}
_DECODER = {"num_decoder_layers": 1, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3, "dropout": 0.0}
_COMMON_SETTINGS: dict[str, Any] = {
    "training": {"batch_tokens": 90, "learning_rate": 0.001, "warmup": 2},
    "data": {"validation_share": 0.1},
}
_WORD_TOKENIZER = {"tokenizer": {"kind": "word", "vocab_size": 90}}
_BPE_TOKENIZER = {"tokenizer": {"vocab_size": 400}}
TASK_SETTINGS: dict[str, dict[str, Any]] = {
    "translate": {"model": {**_ENCODER, **_DECODER}, **_BPE_TOKENIZER, "training": {"validate_lines": 3}},
    "classify": {"model": _ENCODER, **_WORD_TOKENIZER},
    "tag": {"model": _ENCODER, **_WORD_TOKENIZER},
    "mlm": {"model": _ENCODER, **_WORD_TOKENIZER},
    "lm": {"model": _DECODER, **_BPE_TOKENIZER, "data": {"max_tokens": 16}},
    "denoise": {"model": {**_ENCODER, **_DECODER}, **_WORD_TOKENIZER, "training": {"validate_lines": 3}},
    "image": {"model": {**_ENCODER, "patch_size": 2}},
    "caption": {
        "model": {**_ENCODER, **_DECODER, "patch_size": 2},
        **_WORD_TOKENIZER,
        "training": {"validate_lines": 3},
    },
}


def settings_for(task: str) -> dict[str, Any]:
    """Return settings of a tiny network for a task."""
    return merge(_COMMON_SETTINGS, TASK_SETTINGS[task])


def write_files(folder: Path, task: str) -> Path:
    """Write different examples of several lengths for a task; return the file or folder to train on."""
    rng, texts = random.Random(3), [f"{text} {number}" for number, text in enumerate(artificial_text(NUM_RECORDS))]
    if task in ("mlm", "lm", "denoise"):
        return write_lines(folder / "text.txt", [line for text in texts for line in (text, "")])
    if task == "tag":
        tagged = ("\n".join(f"{word} {rng.choice(['O', 'B-X'])}" for word in text.split()) + "\n" for text in texts)
        return write_lines(folder / "tagged.conll", list(tagged))
    if task in ("image", "caption"):
        for number in range(NUM_RECORDS):
            path = folder / "images" / str(number % 3) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            PillowImage.fromarray(np.full((4, 4), 5 * number, dtype=np.uint8)).save(path)
        names = [f"images/{number % 3}/{number}.png\t{text}" for number, text in enumerate(texts)]
        return write_lines(folder / "captions.tsv", names) if task == "caption" else folder / "images"
    seconds = texts[::-1] if task == "translate" else ["good" if number % 2 else "bad" for number in range(NUM_RECORDS)]
    return write_lines(
        folder / "table.tsv", [f"{first}\t{second}" for first, second in zip(texts, seconds, strict=True)]
    )


class Models:
    """A model of each task, trained for one step on first access; no test may write to their folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, task: str) -> Path:
        out = self.folder / task / "model"
        if not out.exists():
            out.parent.mkdir()
            options = ["--task", task, "--out", str(out), "--steps", "1", "--threads", "1"]
            files = str(write_files(out.parent, task))
            with contextlib.redirect_stdout(io.StringIO()):  # the first test that uses the model may capture its output
                assert main(["train", files, *options, *sets(settings_for(task))]) == 0
        return out


def prepare_task(folder: Path, task: str, **training: Any) -> PreparedRun:
    """Return the prepared run of a task, before the first update."""
    settings = merge(settings_for(task), {"training": training})
    request = TrainRequest([write_files(folder, task)], folder / "out", settings=settings, task=task, threads=1)
    return prepare(request, NullCallback())
