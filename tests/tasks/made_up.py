"""A made-up language with two kinds of things, for tests that train on it."""

import random
from pathlib import Path
from typing import Any

# Who does what: the first word of a line settles the verb and what it is done to.
BEINGS = {"eats": (["dog", "cat", "horse", "cow", "bird", "mouse"], "grass"),
          "cuts": (["knife", "saw", "axe", "blade", "razor", "plough"], "wood")}  # fmt: skip
ADJECTIVES = ["old", "new", "big", "red"]
SMALL: dict[str, dict[str, Any]] = {
    "model": {"num_encoder_layers": 2, "model_dim": 32, "feed_forward_dim": 48, "num_heads": 2, "dropout": 0.1},
    "tokenizer": {"kind": "word", "vocab_size": 60},
    "training": {"batch_tokens": 700, "learning_rate": 0.01, "warmup": 20, "cooldown": 0.5},
}


def made_up_text(count: int, seed: int = 0) -> list[str]:
    """Lines of a language with two kinds of things."""
    rng, lines = random.Random(seed), []
    for _ in range(count):
        verb = rng.choice(list(BEINGS))
        names, object_ = BEINGS[verb]
        thing = f"{rng.choice(ADJECTIVES)} {rng.choice(names)}"
        place = rng.choice(["house", "garden", "street", "field"])
        lines.append(rng.choice([f"The {thing} {verb} the {object_} in the {place}.", f"Look at the {thing} there!"]))
    return lines


def write_lines(path: Path, lines: list[str]) -> Path:
    """A file of these lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def sets(settings: dict[str, dict[str, Any]]) -> list[str]:
    """Settings as options of the command."""
    return [word for section, fields in settings.items() for name, value in fields.items()
            for word in ("--set", f"{section}.{name}={value}")]  # fmt: skip
