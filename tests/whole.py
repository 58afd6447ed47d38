"""A small model trained once on the built-in grammar, which the tests of the whole path share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.cli.data import write_grammar
from clearhead.cli.main import main
from clearhead.config import build, merge, parse_assignments
from clearhead.errors import ConfigError
from clearhead.tasks.registry import get_task
from clearhead.training.setup.request import check_settings

# Big enough to learn something in seconds, small enough for every test run.
SETTINGS = [
    "model.num_encoder_layers=1", "model.num_decoder_layers=2", "model.model_dim=32", "model.feed_forward_dim=48",
    "model.num_heads=2", "model.dropout=0.1", "tokenizer.vocab_size=700", "training.batch_tokens=1500",
    "training.learning_rate=0.01", "training.warmup=20", "training.validate_lines=40", "training.validate_every=40",
]  # fmt: skip


def fitting(task: str, settings: Sequence[str], family: str = "") -> list[str]:
    """Those of the settings that a task uses, by the network that it has or one of that family."""
    chosen, base = get_task(task), get_task(task).base
    named = {"model": {"family": family}} if family else {}

    def is_used(setting: str) -> bool:
        given = merge(named, parse_assignments([setting]))
        try:
            check_settings(chosen, given, build(given, base=base))
        except ConfigError:
            return False
        return True

    return [setting for setting in settings if is_used(setting)]


@dataclass(frozen=True)
class Trained:
    """The folder of a trained model and the files that it was made from."""

    folder: Path
    train: Path
    test: Path


def train_small(folder: Path, *more: str, steps: int = 200) -> Trained:
    """Trains by the command line, as a user would."""
    train, test, out = folder / "train.tsv", folder / "test.tsv", folder / "model"
    write_grammar(train, 1500, 1, "train")
    write_grammar(test, 40, 1, "test")
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    arguments = ["train", str(train), "--out", str(out), "--steps", str(steps), "--threads", "1", *sets, *more]
    assert main(arguments) == 0
    return Trained(out, train, test)
