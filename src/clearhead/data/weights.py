"""How often the examples of each of several files are seen: by weights, or by a temperature.

Knows numbers and names of files, nothing of what they hold.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ConfigError

Repeats = NDArray[np.float64]


def split_weights(names: Sequence[Path]) -> tuple[list[Path], list[float]]:
    """`a.tsv:2 b.tsv` as the files and the weights 2 and 1; no weights where none is given.

    A file whose own name ends like that is a file.
    """
    files, weights = [], []
    for name in names:
        match = None if name.exists() else re.fullmatch(r"(.+):(\d+(?:\.\d+)?)", str(name))
        files.append(Path(match[1]) if match else name)
        weights.append(float(match[2]) if match else None)
    if not any(weight is not None for weight in weights):
        return files, []
    return files, [1.0 if weight is None else weight for weight in weights]


def repeats(corpus_N: NDArray[np.int64], weights: Sequence[float], temperature: float) -> Repeats | None:
    """How often each example is seen in an epoch, from the number of the file it came from; None: each once.

    With a temperature T, files are seen as if each had its size to the power of 1/T, the largest file once.
    """
    if weights and temperature != 1:
        raise ConfigError("data.weights and data.temperature both say how often a file is seen; keep one")
    if weights:
        return np.asarray(weights)[corpus_N]
    size_C = np.maximum(1, np.bincount(corpus_N))
    if temperature == 1 or len(size_C) == 1:
        return None
    return np.asarray((size_C / size_C.max()) ** (1 / temperature - 1))[corpus_N]


def describe_repeats(corpus_N: NDArray[np.int64], repeats_N: Repeats) -> list[str]:
    """A line a file."""
    numbers, first, counts = np.unique(corpus_N, return_index=True, return_counts=True)
    return [f"file {number + 1}: {count:,} pairs, each seen {repeats_N[place]:.2f} times an epoch"
            for number, place, count in zip(numbers, first, counts, strict=True)]  # fmt: skip


def draw(repeats_N: Repeats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Each example as often as it is to be seen; a share of one is a chance. Never none at all."""
    count_N = np.floor(repeats_N + rng.random(len(repeats_N))).astype(np.int64)
    if not count_N.any():
        count_N[rng.integers(len(count_N))] = 1
    return np.repeat(np.arange(len(count_N)), count_N)
