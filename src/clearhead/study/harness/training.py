"""What the studies that train have in common: sentences of the grammar, and one way to train through the public API.

Networks with fresh weights to probe, and how to ask them for gradients at their embeddings.

B batch, T places, D model width

Handwritten digits on disk: parts of them to train on, and others to test on.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead import api
from clearhead.api import Model
from clearhead.config import build, merge
from clearhead.data.readers.images import write_digits
from clearhead.data.readers.pairs import Pair
from clearhead.grammar import Example, generate, split_words
from clearhead.model.registry import build_model
from clearhead.study.harness.protocol import StudyContext
from clearhead.tasks.registry import get_task

TRAINING_SHARE = 0.75  # of a cell's time; the rest is for making data and measuring
QUICK = 1.2  # times that, for studies that measure in seconds
NEVER = 1_000_000_000  # updates between validations: only the last weights are validated, and kept
# Of runs of a minute: many small updates, a short start and a long end, as in the demo; nothing is seen often enough to
# need dropout or smoothing in most studies.
SCHEDULE = {"batch_tokens": 1024, "warmup": 200, "cooldown": 0.6, "label_smoothing": 0.0}
TOKENIZER = {"vocab_size": 2000}  # enough for most words of the grammar to be one piece or two
CANDIDATES = 4  # sentences of any length looked at for each one of the wanted length, at most 20 times as many


@cache
def sentences(count: int, seed: int, split: str = "train", distance: tuple[int, int] | None = None) -> list[Example]:
    """Examples of the grammar; cells that want the same share them."""
    return list(generate(count, seed, split, distance))


@cache
def of_length(count: int, seed: int, split: str, low: int, high: int) -> list[Example]:
    """So many examples whose source has from `low` to `high` words, punctuation included; fewer if they are rare.

    Cells that want the same share them.
    """
    found: list[Example] = []
    for example in generate(20 * CANDIDATES * count, seed, split):
        if low <= len(split_words(example.source)) <= high:
            found.append(example)
            if len(found) == count:
                break
    return found


def pairs(examples: Sequence[Example]) -> list[Pair]:
    """As the public API takes them."""
    return [Pair(one.source, one.target, line) for line, one in enumerate(examples, 1)]


def write_pairs(path: Path, lines: Sequence[tuple[str, str]]) -> Path:
    """A TSV to train on."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    return path


def write_examples(path: Path, examples: Sequence[Example]) -> Path:
    """The same, of the grammar's examples."""
    return write_pairs(path, [(one.source, one.target) for one in examples])


def train(
    bench: StudyContext,
    files: Path,
    seed: int,
    model: Mapping[str, Any],
    task: str = "translate",
    share: float = 1.0,
    steps: int | None = None,
    **sections: Mapping[str, Any],
) -> api.Model:
    """A model trained for its part of the cell's time; settings as in a recipe, over preset tiny.

    `share` is the part of the cell's time for training that this model may take; `steps` are updates instead of time.
    """
    training: dict[str, Any] = {"seed": seed, "validate_every": NEVER, **SCHEDULE}
    if task == "translate":
        training["validate_lines"] = 20
    settings = merge({"model": {"dropout": 0.0, **model}, "training": training}, sections)
    number = sum(1 for _ in bench.folder.glob("model-*"))
    trained = api.train(
        files,
        bench.folder / f"model-{number}",
        task=task,
        preset="tiny",
        minutes=bench.minutes * TRAINING_SHARE * share if steps is None else None,
        steps=steps,
        settings=settings,
        threads=bench.threads,
        callback=bench.watcher,
    )
    if trained.manifest.training["state"] == "interrupted":  # whoever was half trained is not measured
        raise KeyboardInterrupt
    return trained


def nats(model: api.Model, examples: Sequence[Example]) -> float:
    """Mean negative log-probability of a target token, the end among them."""
    scored = model.score(pairs(examples))
    return -sum(one.log_prob for one in scored) / sum(len(one.token_log_probs) for one in scored)


VOCABULARY = 101  # of networks that read random ids; the first four are special
FIRST_ID = 4


def fresh(task: str, seed: int, model: Mapping[str, Any]) -> Any:
    """The network of a task as training would begin with it, without dropout."""
    known: dict[str, Any] = {"vocab_size": VOCABULARY, "dropout": 0.0, **model}
    config = build({"model": known}, base=get_task(task).base)
    torch.manual_seed(seed)
    return build_model(config.model).eval()


def random_ids(batch: int, length: int, seed: int) -> Tensor:
    """ids_BT without special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_ID, VOCABULARY, (batch, length), generator=generator)


@contextmanager
def leaves(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """While it lasts, what an embedding gives is kept, each time as a leaf that takes a gradient."""
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, x_BTD: Tensor) -> Tensor:
        kept.append(x_BTD.detach().requires_grad_())
        return kept[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        yield kept
    finally:
        handle.remove()


def all_digits(folder: Path) -> list[Path]:
    """Every picture as `folder/7/0042.png`, in an order that has nothing to do with the digit: as they were written."""
    write_digits(folder)
    return sorted(folder.glob("[0-9]/*.png"), key=lambda path: path.name)


def part(folder: Path, pictures: Sequence[Path]) -> Path:
    """A folder to train on with copies of some pictures."""
    for picture in pictures:
        (folder / picture.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder / picture.parent.name / picture.name)
    return folder


def accuracy(model: Model, pictures: Sequence[Path]) -> float:
    """The share that is recognised."""
    found = model.classify_images(list(pictures))
    return sum(one.label == path.parent.name for one, path in zip(found, pictures, strict=True)) / len(pictures)
