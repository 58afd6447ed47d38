"""Data and models shared by the studies: grammar sentences, digit images, trained models and untrained networks.

B batch, T positions, D model width
"""

import random
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

TRAINING_SHARE = 0.75  # of the time budget of a cell; the rest is for generating data and measuring
FAST_MEASUREMENT = 1.2  # factor on TRAINING_SHARE for studies whose measurements take only seconds
NO_VALIDATION = 1_000_000_000  # updates between validations, so that only the final weights are validated
# Settings for runs of one minute: many small updates, a short warmup and a long cooldown, as in the demo. Most studies
# see each sentence too rarely to need dropout or label smoothing.
SCHEDULE = {"batch_tokens": 1024, "warmup": 200, "cooldown": 0.6, "label_smoothing": 0.0}
TOKENIZER = {"vocab_size": 2000}  # encodes most words of the grammar as one or two tokens
MAX_CANDIDATES = 80  # sentences that `examples_of_length` generates at most per requested example
VOCAB_SIZE = 101  # of untrained networks, which receive random ids; the first four ids are special tokens
FIRST_REGULAR_ID = 4


@cache
def grammar_examples(
    count: int, seed: int, split: str = "train", distance: tuple[int, int] | None = None
) -> list[Example]:
    """Return examples of the grammar; the result is cached, so callers must not modify it."""
    return list(generate(count, seed, split, distance))


@cache
def examples_of_length(count: int, seed: int, split: str, low: int, high: int) -> list[Example]:
    """Return up to `count` examples whose source has `low` to `high` words including punctuation.

    Rare lengths give fewer examples. The result is cached, so callers must not modify it.
    """
    examples: list[Example] = []
    for example in generate(MAX_CANDIDATES * count, seed, split):
        if low <= len(split_words(example.source)) <= high:
            examples.append(example)
            if len(examples) == count:
                break
    return examples


def examples_with_pronouns(count: int, seed: int, distance: tuple[int, int]) -> list[Example]:
    """Return shuffled training examples, half of which contain "it" at a distance from its noun within the range."""
    half = count // 2
    examples = [*grammar_examples(half, seed), *grammar_examples(half, seed, "train", distance)]
    random.Random(seed).shuffle(examples)
    return examples


def to_pairs(examples: Sequence[Example]) -> list[Pair]:
    """Convert examples to the pairs that the public API accepts."""
    return [Pair(example.source, example.target, line) for line, example in enumerate(examples, 1)]


def write_pairs(path: Path, lines: Sequence[tuple[str, str]]) -> Path:
    """Write (source, target) lines as a TSV file and return its path."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    return path


def write_examples(path: Path, examples: Sequence[Example]) -> Path:
    """Write examples as a TSV file and return its path."""
    return write_pairs(path, [(example.source, example.target) for example in examples])


def train_model(
    context: StudyContext,
    files: Path,
    seed: int,
    model: Mapping[str, Any],
    task: str = "translate",
    share: float = 1.0,
    steps: int | None = None,
    **sections: Mapping[str, Any],
) -> api.Model:
    """Train a model through the public API and return it.

    `model` and `sections` are settings as in a recipe, which override preset tiny. The model is trained for the
    fraction `share` of the cell's training time, or for `steps` updates. Raise KeyboardInterrupt if the training was
    interrupted, so that a partially trained model is never measured.
    """
    training: dict[str, Any] = {"seed": seed, "validate_every": NO_VALIDATION, **SCHEDULE}
    if task == "translate":
        training["validate_lines"] = 20
    settings = merge({"model": {"dropout": 0.0, **model}, "training": training}, sections)
    index = sum(1 for _ in context.folder.glob("model-*"))
    trained = api.train(
        files,
        context.folder / f"model-{index}",
        task=task,
        preset="tiny",
        minutes=context.minutes * TRAINING_SHARE * share if steps is None else None,
        steps=steps,
        settings=settings,
        threads=context.threads,
        callback=context.callback,
    )
    if trained.manifest.training["state"] == "interrupted":
        raise KeyboardInterrupt
    return trained


def nats_per_token(model: api.Model, examples: Sequence[Example]) -> float:
    """Return the mean negative log-probability per target token, including the end-of-sentence token."""
    scores = model.score(to_pairs(examples))
    return -sum(score.log_prob for score in scores) / sum(len(score.token_log_probs) for score in scores)


def transformer_shape(width: int, encoder_layers: int = 0, decoder_layers: int = 0, **settings: Any) -> dict[str, Any]:
    """Return the settings of a Transformer with 4 heads and a feed-forward width of twice its width."""
    depth = {"num_encoder_layers": encoder_layers, "num_decoder_layers": decoder_layers}
    stacks = {name: layers for name, layers in depth.items() if layers}
    return {"model_dim": width, "feed_forward_dim": 2 * width, "num_heads": 4, **stacks, **settings}


def untrained_network(task: str, seed: int, model: Mapping[str, Any]) -> Any:
    """Return the network of a task with random weights, without dropout."""
    settings: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "dropout": 0.0, **model}
    config = build({"model": settings}, base=get_task(task).base)
    torch.manual_seed(seed)
    return build_model(config.model).eval()


def random_ids(batch: int, length: int, seed: int) -> Tensor:
    """Return random ids_BT without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_REGULAR_ID, VOCAB_SIZE, (batch, length), generator=generator)


@contextmanager
def capture_embeddings(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Yield a list that receives every output of an embedding module, as a leaf tensor with a gradient."""
    outputs: list[Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, x_BTD: Tensor) -> Tensor:
        outputs.append(x_BTD.detach().requires_grad_())
        return outputs[-1]

    handle = embedding.register_forward_hook(hook)
    try:
        yield outputs
    finally:
        handle.remove()


def write_digit_images(folder: Path) -> list[Path]:
    """Write the handwritten digits as `folder/7/0042.png` and return the paths, mixed by label."""
    write_digits(folder)
    return sorted(folder.glob("[0-9]/*.png"), key=lambda path: path.name)


def copy_images(folder: Path, images: Sequence[Path]) -> Path:
    """Copy labeled images into a training folder and return the folder."""
    for image in images:
        (folder / image.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(image, folder / image.parent.name / image.name)
    return folder


def classification_accuracy(model: Model, images: Sequence[Path]) -> float:
    """Return the fraction of images whose label is predicted correctly."""
    predictions = model.classify_images(list(images))
    return sum(
        prediction.label == path.parent.name for prediction, path in zip(predictions, images, strict=True)
    ) / len(images)
