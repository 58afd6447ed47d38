"""C14: in a vision Transformer some heads attend across the whole image already in the first layers.

C color channels, Y height, X width, P patches
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
from clearhead.study.harness.models_and_data import (
    FAST_MEASUREMENT,
    classification_accuracy,
    copy_images,
    train_model,
    transformer_shape,
    untrained_network,
    write_digit_images,
)
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
)

TRAINED, UNTRAINED = "vision transformer", "vision transformer, untrained"
CNN, UNIFORM = "cnn", "uniform attention"
IMAGE_SIDE = 8  # pixels of a digit


def _distance_ratio(runs: SeedNumbers, name: str, baseline: str) -> float:
    """Return a distance in the first layer of the trained model relative to the longest distance of a baseline."""
    return runs[TRAINED][name] / runs[baseline]["max_distance@0"]


# All distances are in pixels. Uniform attention has the mean distance between two positions of the image: a head with
# at least this distance attends across the whole image, a head with less than half of it attends locally. The receptive
# field of a first 3x3 convolution extends at most 1.4 pixels, whatever it has learned.
RULE = DecisionRule(
    (
        Requirement("some head of the first layer attends at least as far as uniform attention (ratio of distances)",
                    lambda runs: _distance_ratio(runs, "max_distance@0", UNIFORM), 0.95, 0.5,
                    "uniform attention covers the image, half of its distance is a local head"),
        Requirement("that head attends farther than the receptive field of the first convolution (ratio of distances)",
                    lambda runs: _distance_ratio(runs, "max_distance@0", CNN), 1.5, 1.0,
                    "a factor of 1.5 is clearly farther"),
        Requirement("heads of the first layer differ (distance of the most local head relative to uniform attention)",
                    lambda runs: _distance_ratio(runs, "min_distance@0", UNIFORM), 0.9, 0.99,
                    "otherwise no head has learned to attend locally"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "reach",
    "C14",
    "In a vision Transformer some heads attend across the whole image already in the first layers",
    RULE,
    "An untrained network attends to the whole image as well, as its row shows. Training rather teaches heads to "
    "attend locally.",
    light_conditions=(UNTRAINED, CNN, UNIFORM),
)


@dataclass(frozen=True)
class ReceptiveFieldStudy:
    """Mean attention distance of each head by layer, compared with the receptive field of convolutions."""

    info: StudyInfo = INFO
    minutes: float = 8.0
    seeds: int = 2
    width: int = 48
    layers: int = 4
    patch: int = 2
    train_size: int = 1500
    inspect_size: int = 60

    @property
    def conditions(self) -> tuple[str, ...]:
        """The trained and the untrained model, and two baselines."""
        return (TRAINED, UNTRAINED, CNN, UNIFORM)

    @property
    def columns(self) -> Mapping[str, str]:
        """Distances in pixels, and the accuracy."""
        last = self.layers - 1
        return {"min_distance@0": "shortest distance, first layer", "max_distance@0": "longest, first layer",
                "accuracy": "accuracy", f"min_distance@{last}": "shortest, last layer",
                f"max_distance@{last}": "longest, last layer"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure a baseline or a model."""
        if condition == UNIFORM:
            names = ("min_distance", "max_distance")
            return {f"{name}@{layer}": self._uniform_distance() for name in names for layer in range(self.layers)}
        if condition == CNN:
            return {f"max_distance@{layer}": radius for layer, radius in enumerate(receptive_fields(seed))}
        images = write_digit_images(context.folder / "digits")
        order = np.random.default_rng(seed).permutation(len(images))
        train_images, test_images = ([images[index] for index in part] for part in np.split(order, [self.train_size]))
        shape = transformer_shape(self.width, self.layers, patch_size=self.patch)
        no_training = {"share": 1e-6, "training": {"learning_rate": 1e-12}}
        settings: dict[str, Any] = {"share": FAST_MEASUREMENT} if condition == TRAINED else no_training
        folder = copy_images(context.folder / "train", train_images)
        model = train_model(context, folder, seed, shape, task="image", **settings)
        accuracy = classification_accuracy(model, test_images)
        return {"accuracy": accuracy} | self._distances(model, test_images[: self.inspect_size])

    def _distances(self, model: Model, images: Sequence[Path]) -> dict[str, float]:
        """Return the shortest and the longest mean attention distance of the heads of each layer, in pixels."""
        distances: dict[tuple[int, int | None], list[float]] = {}
        for path in images:
            for head in head_statistics(model.trace_image(path)):
                assert head.distance is not None
                distances.setdefault((head.head_ref.layer, head.head_ref.head), []).append(head.distance * self.patch)
        means = {head: sum(values) / len(values) for head, values in distances.items()}
        numbers: dict[str, float] = {}
        for layer in range(self.layers):
            layer_means = [mean for (head_layer, _), mean in means.items() if head_layer == layer]
            numbers |= {f"min_distance@{layer}": min(layer_means), f"max_distance@{layer}": max(layer_means)}
        return numbers

    def _uniform_distance(self) -> float:
        """Return the mean distance with equal weights; the class token counts with distance 0, as for the heads."""
        side = IMAGE_SIDE // self.patch
        rows_P, columns_P = np.divmod(np.arange(side * side), side)
        distance_PP = np.hypot(rows_P[:, None] - rows_P, columns_P[:, None] - columns_P)
        positions = side * side + 1
        return float(distance_PP.sum() / positions**2) * self.patch

    def charts(self, findings: Findings) -> list[Chart]:
        """Return distances by layer."""

        def series(label: str, kind: str, name: str) -> Series:
            points = [(layer + 1, findings.values(kind, f"{name}@{layer}")) for layer in range(self.layers)]
            return Series(label, points)

        extremes = {"min_distance": "shortest", "max_distance": "longest"}
        heads = [series(f"{kind}: {extreme}", kind, name) for kind in (TRAINED, UNTRAINED)
                 for name, extreme in extremes.items()]  # fmt: skip
        baselines = [series(kind, kind, "max_distance") for kind in (CNN, UNIFORM)]
        return [Chart("reach", "Attention distance by layer on 8x8 digits", "layer", "pixels", [*heads, *baselines])]


def receptive_fields(seed: int) -> list[float]:
    """Return the radius of the receptive field after each convolution of a CNN, measured by gradients."""
    network = untrained_network(
        "image",
        seed,
        {"family": "cnn", "pooling": "mean", "model_dim": 16, "image_size": IMAGE_SIDE, "image_channels": 1,
         "num_labels": 10, "vocab_size": 0},
    )  # fmt: skip
    images_BCYX = torch.rand(1, 1, IMAGE_SIDE, IMAGE_SIDE, requires_grad=True)
    x_BCYX, radii = images_BCYX, []
    for layer in network.backbone.layers:
        x_BCYX = layer.convolution(x_BCYX)  # without the norm, whose mean depends on all pixels
        middle_y, middle_x = (size // 2 for size in x_BCYX.shape[2:])
        [gradient] = torch.autograd.grad(x_BCYX[0, :, middle_y, middle_x].sum(), images_BCYX, retain_graph=True)
        field = gradient[0, 0].nonzero().double()
        radii.append(float((field - field.mean(0)).norm(dim=1).max()))
        if layer.halves:
            x_BCYX = torch.nn.functional.max_pool2d(x_BCYX, 2)
    return radii
