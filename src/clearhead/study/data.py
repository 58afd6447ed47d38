"""C13: fewer inductive biases need more data, and overtake as data grows. Accuracy on digits by training size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.study.charts import Chart, Series
from clearhead.study.digits import accuracy, all_digits, part
from clearhead.study.parallel import at
from clearhead.study.protocol import About, Bench, Findings
from clearhead.study.training import train
from clearhead.study.verdict import Numbers, Requirement, Rule, Seen

CONVOLUTION, PERCEPTRON, PATCHES = "convolution", "mlp", "transformer"


def _gap(seen: Seen, which: str) -> float:
    """How much better the convolution is than the Transformer on the fewest or the most pictures."""
    row, other = at(seen[CONVOLUTION], "accuracy"), at(seen[PATCHES], "accuracy")
    size = min(row) if which == "few" else max(row)
    return row[size] - other[size]


# Some 300 test pictures: one standard error near 0.95 is 0.013, so 0.03 is a difference and 0.01 is none. The claim
# says "overtakes": at the most data the Transformer must be at least as good.
RULE = Rule(
    (
        Requirement("on the fewest pictures the convolution is better than the Transformer (accuracy)",
                    lambda seen: _gap(seen, "few"), 0.03, 0.0, "about two standard errors"),
        Requirement("on the most pictures the Transformer has overtaken it (accuracy by which it is behind)",
                    lambda seen: _gap(seen, "many"), 0.0, 0.02, "overtaken is not behind at all"),
        Requirement("the gap has become smaller (accuracy)",
                    lambda seen: _gap(seen, "few") - _gap(seen, "many"), 0.03, 0.0, "about two standard errors"),
    )
)  # fmt: skip
ABOUT = About(
    "data",
    "C13",
    "Fewer inductive biases need more data: from convolutional and recurrent to MLP to Transformer each is more "
    "general, and overtakes as data grows",
    RULE,
    "1,500 small pictures at most: where curves do not cross here, they may with a thousand times as many. Recurrent "
    "networks read text and not pictures: they are not among these.",
)


@dataclass(frozen=True)
class Data:
    """Three families on ever more digits."""

    about: About = ABOUT
    minutes: float = 15.0
    seeds: int = 3
    sizes: tuple[int, ...] = (50, 150, 500, 1500)
    tested: int = 297
    width: int = 48
    layers: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """From the most bias to the least."""
        return (CONVOLUTION, PERCEPTRON, PATCHES)

    @property
    def columns(self) -> Mapping[str, str]:
        """Accuracy by size."""
        return {f"accuracy@{size}": f"{size} pictures" for size in self.sizes}

    def measure(self, condition: str, seed: int, bench: Bench) -> Numbers:
        """A training for each size, in equal time; the test pictures are the same for all."""
        pictures = all_digits(bench.folder / "digits")
        order = np.random.default_rng(seed).permutation(len(pictures))
        tested = [pictures[number] for number in order[: self.tested]]
        found = {}
        for size in self.sizes:
            known = [pictures[number] for number in order[self.tested : self.tested + size]]
            folder = part(bench.folder / f"train-{size}", known)
            model = train(bench, folder, seed, self._shape(condition), task="image", share=1 / len(self.sizes))
            found[f"accuracy@{size}"] = accuracy(model, tested)
        return found

    def _shape(self, condition: str) -> dict[str, Any]:
        if condition == CONVOLUTION:
            return {"family": "convolutional", "model_dim": self.width}
        if condition == PERCEPTRON:
            return {"family": "mlp", "inner_dim": 2 * self.width, "num_encoder_layers": self.layers}
        return {"model_dim": self.width, "inner_dim": 2 * self.width, "num_heads": 4, "patch_size": 2,
                "num_encoder_layers": self.layers}  # fmt: skip

    def charts(self, found: Findings) -> list[Chart]:
        """Accuracy by size."""
        series = [Series(kind, [(size, found.values(kind, f"accuracy@{size}")) for size in self.sizes])
                  for kind in self.conditions]  # fmt: skip
        return [Chart("data", "Accuracy on digits by training size", "pictures", "accuracy", series, log_x=True)]
