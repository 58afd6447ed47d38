"""C1: plain recurrent networks lose long-range dependencies, LSTMs hold to about 100 steps, attention does not care.

A recall task: somewhere in the source stands one key word, so many fillers before the end; the target is that word.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clearhead.model.weights import count_parameters
from clearhead.study.charts import Chart, Series
from clearhead.study.parallel import at
from clearhead.study.protocol import About, Bench, Findings
from clearhead.study.training import train, write_pairs
from clearhead.study.verdict import Numbers, Requirement, Rule, Seen

KEYS = [f"key{number}" for number in range(8)]
FILLERS = [f"word{number}" for number in range(20)]
MOST_BEFORE = 5  # fillers before the key, so that it does not always stand at the same place

# Family settings, and the width in units of the Transformer's that gives about as many parameters.
FAMILIES: dict[str, tuple[dict[str, Any], float]] = {
    "rnn": ({"family": "rnn", "attention": "none"}, 2.2),
    "gru": ({"family": "gru", "attention": "none"}, 1.3),
    "lstm": ({"family": "lstm", "attention": "none"}, 1.1),
    "lstm + attention": ({"family": "lstm", "attention": "additive"}, 1.0),
    "transformer": ({"num_heads": 4}, 1.0),
}


def _near(seen: Seen, family: str, distance: int) -> float:
    """The accuracy at the measured distance that is nearest to one."""
    row = at(seen[family], "accuracy")
    return row[min(row, key=lambda one: abs(one - distance))]


def _worst(seen: Seen, family: str) -> float:
    return min(at(seen[family], "accuracy").values())


# Of 8 keys one in eight is right by chance. A dependency is lost where fewer than half are right, and held where nine
# of ten are: between 0.5 and 0.9 it is neither. "About 100" and "toward 1,000" are taken at their word.
RULE = Rule(
    (
        Requirement("a plain recurrent network has lost the key at 200 (accuracy)",
                    lambda seen: _near(seen, "rnn", 200), 0.5, 0.9, "half, and nine of ten"),
        Requirement("an LSTM holds it at 100", lambda seen: _near(seen, "lstm", 100), 0.9, 0.5,
                    "the same bounds, the other way"),
        Requirement("an LSTM has lost it at 1,000", lambda seen: _near(seen, "lstm", 1000), 0.5, 0.9,
                    "half, and nine of ten"),
        Requirement("attention holds it at every distance, in the LSTM and in the Transformer (the worst)",
                    lambda seen: min(_worst(seen, "lstm + attention"), _worst(seen, "transformer")), 0.9, 0.5,
                    "nine of ten, and half"),
    )
)  # fmt: skip
ABOUT = About(
    "long-range",
    "C1",
    "Plain recurrent networks lose long-range dependencies; LSTMs hold to about 100 steps and fail toward 1,000; "
    "attention does not care about distance",
    RULE,
    "Equal time to train, about equal size, one task: other tasks may need more than to recall one word.",
)


@dataclass(frozen=True)
class LongRange:
    """Recall by distance for five families."""

    about: About = ABOUT
    minutes: float = 15.0
    seeds: int = 2
    distances: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 500, 1000)
    words: int = 200_000  # to train on at each distance, so that each has as many updates
    tested: int = 100
    width: int = 48

    @property
    def conditions(self) -> tuple[str, ...]:
        """The families."""
        return tuple(FAMILIES)

    @property
    def columns(self) -> Mapping[str, str]:
        """Accuracy by distance, and the size."""
        return {f"accuracy@{distance}": f"at {distance}" for distance in self.distances} | {"parameters": "parameters"}

    def measure(self, condition: str, seed: int, bench: Bench) -> Numbers:
        """One training on all distances together, one test for each."""
        draw = random.Random(seed)
        lines = [recall(distance, draw) for distance in self.distances for _ in range(self._count(distance))]
        draw.shuffle(lines)
        settings, factor = FAMILIES[condition]
        width = 4 * round(self.width * factor / 4)
        shape = {**settings, "model_dim": width, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}
        if condition == "transformer":
            shape |= {"inner_dim": 2 * width}
        model = train(
            bench,
            write_pairs(bench.folder / "train.tsv", lines),
            seed,
            shape | {"max_positions": self.distances[-1] + 2 * MOST_BEFORE},
            tokenizer={"kind": "pretokenised"},
            data={"max_pieces": self.distances[-1] + 2 * MOST_BEFORE, "max_chars": 100_000, "valid_max": 100},
            training={"batch_tokens": max(1024, 8 * self.distances[-1]), "label_smoothing": 0.0},
            decoding={"beam": 1, "max_length": "2"},
        )
        found = {"parameters": float(count_parameters(model.network))}
        for distance in self.distances:
            tests = [recall(distance, draw) for _ in range(self.tested)]
            written = model.translate_many([source for source, _ in tests])
            right = sum(one.text == key for one, (_, key) in zip(written, tests, strict=True))
            found[f"accuracy@{distance}"] = right / self.tested
        return found

    def _count(self, distance: int) -> int:
        return max(10, self.words // (distance + MOST_BEFORE))

    def charts(self, found: Findings) -> list[Chart]:
        """Accuracy by distance."""
        series = [Series(kind, [(d, found.values(kind, f"accuracy@{d}")) for d in self.distances])
                  for kind in self.conditions]  # fmt: skip
        return [Chart("long-range", "Recall of one word, after equal training time", "words back", "accuracy", series,
                      log_x=True)]  # fmt: skip


def recall(distance: int, draw: random.Random) -> tuple[str, str]:
    """A source with one key, `distance` words before its end, and the key."""
    key = draw.choice(KEYS)
    before = draw.choices(FILLERS, k=draw.randint(0, MOST_BEFORE))
    return " ".join([*before, key, *draw.choices(FILLERS, k=distance)]), key
