"""A small artificial language for tests that train on it."""

import random
from pathlib import Path
from typing import Any

# The noun of a line determines the verb and its object.
BEINGS = {"eats": (["dog", "cat", "horse", "cow", "bird", "mouse"], "grass"),
          "cuts": (["knife", "saw", "axe", "blade", "razor", "plough"], "wood")}  # fmt: skip
ADJECTIVES = ["old", "new", "big", "red"]
SMALL: dict[str, dict[str, Any]] = {
    "model": {"num_encoder_layers": 2, "model_dim": 32, "feed_forward_dim": 48, "num_heads": 2, "dropout": 0.1},
    "tokenizer": {"kind": "word", "vocab_size": 60},
    "training": {"batch_tokens": 700, "learning_rate": 0.01, "warmup": 20, "cooldown": 0.5},
}


def artificial_text(count: int, seed: int = 0) -> list[str]:
    """Return lines of the language."""
    rng, lines = random.Random(seed), []
    for _ in range(count):
        verb = rng.choice(list(BEINGS))
        names, object_ = BEINGS[verb]
        thing = f"{rng.choice(ADJECTIVES)} {rng.choice(names)}"
        location = rng.choice(["house", "garden", "street", "field"])
        lines.append(
            rng.choice([f"The {thing} {verb} the {object_} in the {location}.", f"Look at the {thing} there!"])
        )
    return lines


def write_lines(path: Path, lines: list[str]) -> Path:
    """Write these lines to a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def sets(settings: dict[str, dict[str, Any]]) -> list[str]:
    """Return settings as options of the command."""
    return [word for section, fields in settings.items() for name, value in fields.items()
            for word in ("--set", f"{section}.{name}={value}")]  # fmt: skip
