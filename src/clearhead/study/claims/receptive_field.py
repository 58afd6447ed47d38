"""C14: in a patch Transformer some heads attend across the whole image already in the first layers.

C colours, Y height, X width, P patches
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead.api import Model
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import QUICK, accuracy, all_digits, fresh, part, train
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement

TRAINED, FRESH, CONVOLUTION, EVEN = "patches", "patches, untrained", "convolution", "every patch alike"
SIDE = 8  # pixels of a digit

# All distances are in pixels. Attention that is spread evenly has the mean distance of two places of the picture: a
# head that looks at least that far reaches across the whole. Less than half of it is looking nearby. A first
# convolution of 3x3 reaches 1.4 pixels at most, whatever it has learned.
RULE = DecisionRule(
    (
        Requirement("in the first layer some head looks at least as far as even attention would (share of that)",
                    lambda seen: seen[TRAINED]["far@0"] / seen[EVEN]["far@0"], 0.95, 0.5,
                    "even attention reaches everywhere, half of it is nearby"),
        Requirement("that is farther than the first convolution can see (times its farthest pixel)",
                    lambda seen: seen[TRAINED]["far@0"] / seen[CONVOLUTION]["far@0"], 1.5, 1.0,
                    "half as far again is plainly farther"),
        Requirement("heads of the first layer differ: not all are even (distance of the nearest, share of even)",
                    lambda seen: seen[TRAINED]["near@0"] / seen[EVEN]["far@0"], 0.9, 0.99,
                    "else nothing was learned about where to look"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "reach",
    "C14",
    "In a patch Transformer some heads attend across the whole image already in the first layers",
    RULE,
    "A network that was never trained spreads its attention over everything: see its row. What is learned is rather "
    "where to look nearby.",
    light=(FRESH, CONVOLUTION, EVEN),
)


@dataclass(frozen=True)
class Reach:
    """Mean attention distance of each head by layer, against the receptive field of convolutions."""

    about: StudyInfo = ABOUT
    minutes: float = 8.0
    seeds: int = 2
    width: int = 48
    layers: int = 4
    patch: int = 2
    trained: int = 1500
    looked_at: int = 60

    @property
    def conditions(self) -> tuple[str, ...]:
        """Trained, untrained, and what there is to compare with."""
        return (TRAINED, FRESH, CONVOLUTION, EVEN)

    @property
    def columns(self) -> Mapping[str, str]:
        """Pixels."""
        last = self.layers - 1
        return {"near@0": "nearest head, first layer", "far@0": "farthest, first layer", "accuracy": "accuracy",
                f"near@{last}": "nearest, last", f"far@{last}": "farthest, last"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One row."""
        if condition == EVEN:
            return {f"{name}@{layer}": self._even() for name in ("near", "far") for layer in range(self.layers)}
        if condition == CONVOLUTION:
            return {f"far@{layer}": reach for layer, reach in enumerate(receptive_fields(seed))}
        pictures = all_digits(bench.folder / "digits")
        order = np.random.default_rng(seed).permutation(len(pictures))
        known, tested = ([pictures[number] for number in some] for some in np.split(order, [self.trained]))
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4, "patch_size": self.patch,
                 "num_encoder_layers": self.layers}  # fmt: skip
        still = {"share": 1e-6, "training": {"learning_rate": 1e-12}}  # a training in which nothing moves
        how: dict[str, Any] = {"share": QUICK} if condition == TRAINED else still
        model = train(bench, part(bench.folder / "train", known), seed, shape, task="image", **how)
        return {"accuracy": accuracy(model, tested)} | self._distances(model, tested[: self.looked_at])

    def _distances(self, model: Model, pictures: Sequence[Path]) -> dict[str, float]:
        """The mean distance of the nearest and the farthest head of each layer, in pixels."""
        seen: dict[tuple[int, int | None], list[float]] = {}
        for path in pictures:
            for one in head_statistics(model.trace_image(path)):
                assert one.distance is not None
                seen.setdefault((one.part.layer, one.part.head), []).append(one.distance * self.patch)
        means = {place: sum(values) / len(values) for place, values in seen.items()}
        found: dict[str, float] = {}
        for layer in range(self.layers):
            here = [mean for (number, _), mean in means.items() if number == layer]
            found |= {f"near@{layer}": min(here), f"far@{layer}": max(here)}
        return found

    def _even(self) -> float:
        """The mean distance where every place gets the same weight; the class token counts as in the measure, at 0."""
        side = SIDE // self.patch
        rows_P, columns_P = np.divmod(np.arange(side * side), side)
        distance_PP = np.hypot(rows_P[:, None] - rows_P, columns_P[:, None] - columns_P)
        places = side * side + 1
        return float(distance_PP.sum() / places**2) * self.patch

    def charts(self, found: Findings) -> list[Chart]:
        """By layer."""
        layers = range(self.layers)
        words = {"near": "nearest", "far": "farthest"}
        series = [Series(f"{kind}: {word}", [(layer + 1, found.values(kind, f"{name}@{layer}")) for layer in layers])
                  for kind in (TRAINED, FRESH) for name, word in words.items()]  # fmt: skip
        series += [Series(kind, [(layer + 1, found.values(kind, f"far@{layer}")) for layer in layers])
                   for kind in (CONVOLUTION, EVEN)]  # fmt: skip
        return [Chart("reach", "How far a layer looks on 8x8 digits", "layer", "pixels", series)]


def receptive_fields(seed: int) -> list[float]:
    """How far from a place the farthest pixel lies that touches it, after each convolution: measured by gradient."""
    network = fresh("image", seed, {"family": "cnn", "pooling": "mean", "model_dim": 16, "image_size": SIDE,
                                    "image_channels": 1, "num_labels": 10, "vocab_size": 0})  # fmt: skip
    pictures_BCYX = torch.rand(1, 1, SIDE, SIDE, requires_grad=True)
    x_BCYX, reaches = pictures_BCYX, []
    for layer in network.backbone.layers:
        x_BCYX = layer.convolution(x_BCYX)  # without the norm, whose mean would touch everything
        middle_y, middle_x = (size // 2 for size in x_BCYX.shape[2:])
        [gradient] = torch.autograd.grad(x_BCYX[0, :, middle_y, middle_x].sum(), pictures_BCYX, retain_graph=True)
        touched = gradient[0, 0].nonzero().double()
        reaches.append(float((touched - touched.mean(0)).norm(dim=1).max()))
        if layer.halves:
            x_BCYX = torch.nn.functional.max_pool2d(x_BCYX, 2)
    return reaches
