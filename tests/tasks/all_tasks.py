"""Small files and settings for every task, for tests that all tasks share."""

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

TRAINED = [name for name in TASKS if name != "embed"]  # embedding models are only imported

COUNT = 47
_READER = {"num_encoder_layers": 1, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3, "dropout": 0.0}
_WRITER = {"num_decoder_layers": 1, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3, "dropout": 0.0}
_SHARED: dict[str, Any] = {
    "training": {"batch_tokens": 90, "learning_rate": 0.001, "warmup": 2},
    "data": {"validation_share": 0.1},
}
_WORDS = {"tokenizer": {"kind": "word", "vocab_size": 90}}
_BYTES = {"tokenizer": {"vocab_size": 400}}
EVERY: dict[str, dict[str, Any]] = {
    "translate": {"model": {**_READER, **_WRITER}, **_BYTES, "training": {"validate_lines": 3}},
    "classify": {"model": _READER, **_WORDS},
    "tag": {"model": _READER, **_WORDS},
    "mlm": {"model": _READER, **_WORDS},
    "lm": {"model": _WRITER, **_BYTES, "data": {"max_tokens": 16}},
    "denoise": {"model": {**_READER, **_WRITER}, **_WORDS, "training": {"validate_lines": 3}},
    "image": {"model": {**_READER, "patch_size": 2}},
    "caption": {"model": {**_READER, **_WRITER, "patch_size": 2}, **_WORDS, "training": {"validate_lines": 3}},
}


def settings_for(task: str) -> dict[str, Any]:
    """Return settings for a tiny network of this task."""
    return merge(_SHARED, EVERY[task])


def write_files(folder: Path, task: str) -> Path:
    """Write examples of a task, all different and of several lengths; return the training file."""
    rng, texts = random.Random(3), [f"{text} {number}" for number, text in enumerate(artificial_text(COUNT))]
    if task in ("mlm", "lm", "denoise"):
        return write_lines(folder / "text.txt", [line for text in texts for line in (text, "")])
    if task == "tag":
        tagged = ("\n".join(f"{word} {rng.choice(['O', 'B-X'])}" for word in text.split()) + "\n" for text in texts)
        return write_lines(folder / "tagged.conll", list(tagged))
    if task in ("image", "caption"):
        for number in range(COUNT):
            path = folder / "images" / str(number % 3) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            PillowImage.fromarray(np.full((4, 4), 5 * number, dtype=np.uint8)).save(path)
        names = [f"images/{number % 3}/{number}.png\t{text}" for number, text in enumerate(texts)]
        return write_lines(folder / "captions.tsv", names) if task == "caption" else folder / "images"
    seconds = texts[::-1] if task == "translate" else ["good" if number % 2 else "bad" for number in range(COUNT)]
    return write_lines(
        folder / "table.tsv", [f"{first}\t{second}" for first, second in zip(texts, seconds, strict=True)]
    )


class Models:
    """A barely trained model of each task, created on first use; no test may write into them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, task: str) -> Path:
        out = self.folder / task / "model"
        if not out.exists():
            out.parent.mkdir()
            options = ["--task", task, "--out", str(out), "--steps", "1", "--threads", "1"]
            files = str(write_files(out.parent, task))
            with contextlib.redirect_stdout(io.StringIO()):  # of the test that happens to be first
                assert main(["train", files, *options, *sets(settings_for(task))]) == 0
        return out


def prepare_task(folder: Path, task: str, **training: Any) -> PreparedRun:
    """Return the run of a task before its first update."""
    settings = merge(settings_for(task), {"training": training})
    request = TrainRequest([write_files(folder, task)], folder / "out", settings=settings, task=task, threads=1)
    return prepare(request, NullCallback())
