"""A small translation model for sentences in which a pronoun takes the gender of a later noun.

The target before the pronoun does not determine its gender: the model must attend to the source.
"""

import fcntl
from itertools import product
from pathlib import Path

from clearhead.api import Model, load, train

SETTINGS = {
    "model": {"num_encoder_layers": 1, "num_decoder_layers": 1, "model_dim": 32, "feed_forward_dim": 48, "num_heads": 2,
              "dropout": 0.0},
    "tokenizer": {"kind": "word", "vocab_size": 200},
    "training": {"batch_tokens": 900, "learning_rate": 0.012, "warmup": 30, "label_smoothing": 0.0,
                 "validate_lines": 20, "validate_every": 125},
}  # fmt: skip
NOUNS = {"dog": "der Hund", "wolf": "der Wolf", "bear": "der Bär", "cat": "die Katze", "cow": "die Kuh",
         "mouse": "die Maus", "animal": "das Tier", "horse": "das Pferd", "sheep": "das Schaf"}  # fmt: skip
PRONOUNS = {"der": "er", "die": "sie", "das": "es"}
PLACES = {"street": "die Straße", "bridge": "die Brücke", "river": "den Fluss"}
QUALITIES = {"tired": "müde", "old": "alt", "small": "klein", "slow": "langsam", "weak": "schwach"}
SENTENCE = "Because it was too tired , the animal did not cross the street ."


def pairs() -> list[tuple[str, str]]:
    """Return all sentences with their translations."""
    sentence_pairs = []
    for (noun, der), (location, die), (quality, german) in product(NOUNS.items(), PLACES.items(), QUALITIES.items()):
        pronoun = PRONOUNS[der.split()[0]]
        sentence_pairs.append((f"Because it was too {quality} , the {noun} did not cross the {location} .",
                      f"Weil {pronoun} zu {german} war , hat {der} {die} nicht überquert ."))  # fmt: skip
    return sentence_pairs


def train_pronouns(folder: Path, steps: int) -> Model:
    """Train a model on all pairs, once for all processes of a test run, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not (folder / "pronouns").exists():
            file = folder / "pronouns.tsv"
            file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs()), encoding="utf-8")
            train(file, folder / "pronouns", valid=file, steps=steps, settings=SETTINGS, threads=1)
        return load(folder / "pronouns")
