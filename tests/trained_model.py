"""A small translation model trained on the built-in grammar, shared by the end-to-end tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.cli.data import write_grammar
from clearhead.cli.main import main
from clearhead.config import build, merge, parse_assignments
from clearhead.errors import ConfigError
from clearhead.tasks.registry import get_task
from clearhead.training.setup.request import check_settings

# Large enough to learn in seconds, small enough for every test run.
SETTINGS = [
    "model.num_encoder_layers=1", "model.num_decoder_layers=2", "model.model_dim=32", "model.feed_forward_dim=48",
    "model.num_heads=2", "model.dropout=0.1", "tokenizer.vocab_size=700", "training.batch_tokens=1500",
    "training.learning_rate=0.01", "training.warmup=20", "training.validate_lines=40", "training.validate_every=40",
]  # fmt: skip


def applicable_settings(task: str, settings: Sequence[str], family: str = "") -> list[str]:
    """Return the settings that apply to a task, with its default network or one of the given family."""
    definition = get_task(task)
    family_settings = {"model": {"family": family}} if family else {}

    def is_applicable(setting: str) -> bool:
        layer = merge(family_settings, parse_assignments([setting]))
        try:
            check_settings(definition, layer, build(layer, base=definition.base))
        except ConfigError:
            return False
        return True

    return [setting for setting in settings if is_applicable(setting)]


@dataclass(frozen=True)
class Trained:
    """The folder of a trained model, its training file and a test file."""

    folder: Path
    train: Path
    test: Path


def train_small(folder: Path, *extra_arguments: str, steps: int = 200) -> Trained:
    """Train a model with the command line."""
    train, test, out = folder / "train.tsv", folder / "test.tsv", folder / "model"
    write_grammar(train, 1500, 1, "train")
    write_grammar(test, 40, 1, "test")
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    arguments = [
        "train",
        str(train),
        "--out",
        str(out),
        "--steps",
        str(steps),
        "--threads",
        "1",
        *options,
        *extra_arguments,
    ]
    assert main(arguments) == 0
    return Trained(out, train, test)
