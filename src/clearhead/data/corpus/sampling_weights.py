"""What is said of each of several files: how often its examples are seen, by weights or a temperature, and its tag.

Knows numbers and names of files, nothing of what they hold.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ConfigError

MAX_EPOCH_EXAMPLES = 1 << 28
"""Examples of an epoch, where weights say so: their order takes eight bytes each, and for a moment more."""
Repeats = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]
FILE_FORM = re.compile(r"(.+?)(?:@([A-Za-z0-9_-]+))?(?::(\d+(?:\.\d+)?))?")
MALFORMED_FILE = re.compile(r"(.+?)(?:@([^@:/]*))?(?::([^:/]*))?")


@dataclass(frozen=True)
class WeightedFiles:
    """Files, and what stood behind their names: a weight and a tag for each of them, or for none."""

    files: list[Path]
    weights: list[float]
    tags: list[str]


def parse_file_arguments(names: Sequence[Path]) -> WeightedFiles:
    """`a.tsv@de:2 b.tsv@fr` as the files, the weights 2 and 1, and the tags de and fr.

    No weights where none is given, and no tags. A file whose own name ends like that is a file.
    """
    files, weights, tags = [], [], []
    for name in names:
        match = FILE_FORM.fullmatch(str(name))
        if match and name.exists():
            if match[2] and Path(match[1]).exists():
                raise ConfigError(f"{name} is a file, and so is {match[1]}: which one is meant? Rename one of them")
            match = None
        _refuse_malformed(name, match)
        files.append(Path(match[1]) if match else name)
        weights.append(float(match[3]) if match and match[3] else None)
        tags.append(match[2] or "" if match else "")
    if any(tags) and not all(tags):
        bare = files[tags.index("")]
        raise ConfigError(f"{bare} has no tag and others have; name one for each file, as in {bare}@de, or for none")
    given = [1.0 if weight is None else weight for weight in weights]
    if all(weight is None for weight in weights):
        given = []
    return WeightedFiles(files, given, tags if any(tags) else [])


def _refuse_malformed(name: Path, match: re.Match[str] | None) -> None:
    """Refuses what stands behind the name of a file that is there and is neither a tag nor a weight."""
    if match is None or Path(match[1]).exists():
        if match and match[3] and not float(match[3]):
            raise ConfigError(f"{name}: expected a weight above 0, as in {match[1]}:2; leave the file out instead")
        return
    nearly = MALFORMED_FILE.fullmatch(str(name))
    if nearly and Path(nearly[1]).exists():
        raise ConfigError(
            f"{name}: expected {nearly[1]}, with a tag and a weight behind it if need be, as in {nearly[1]}@de:2 or "
            f"{nearly[1]}:0.5"
        )


def epoch_repeats(corpus_N: IntArray, weights: Sequence[float], temperature: float) -> Repeats | None:
    """How often each example is seen in an epoch, from the number of the file it came from; None: each once.

    With a temperature T, files are seen as if each had its size to the power of 1/T, the largest file once.
    """
    if weights and temperature != 1:
        raise ConfigError("data.file_weights and data.sampling_temperature both set how often a file is seen; keep one")
    if weights:
        _require_feasible_epoch(np.bincount(corpus_N, minlength=len(weights)) @ np.asarray(weights), len(corpus_N))
        return np.asarray(weights)[corpus_N]
    size_C = np.maximum(1, np.bincount(corpus_N))
    if temperature == 1 or len(size_C) == 1:
        return None
    repeats_C = (size_C / size_C.max()) ** (1 / temperature - 1)
    _require_feasible_epoch(size_C @ repeats_C, len(corpus_N))
    return np.asarray(repeats_C)[corpus_N]


def _require_feasible_epoch(examples: float, plain: int) -> None:
    """A typing mistake is not to ask for terabytes."""
    if examples > (most := max(MAX_EPOCH_EXAMPLES, plain)):
        raise ConfigError(f"the weights make an epoch of {examples:,.0f} examples, at most {most:,} may be; lower them")


def describe_epoch_repeats(corpus_N: IntArray, repeats_N: Repeats) -> list[str]:
    """A line a file."""
    first = {number: np.argmax(corpus_N == number) for number in np.flatnonzero(np.bincount(corpus_N))}
    counts = np.bincount(corpus_N)
    return [f"file {number + 1}: {counts[number]:,} pairs, each seen {repeats_N[place]:.2f} times an epoch"
            for number, place in first.items()]  # fmt: skip


def sample_epoch(repeats_N: Repeats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Each example as often as it is to be seen; a share of one is a chance. Never none at all."""
    count_N = np.floor(repeats_N + rng.random(len(repeats_N))).astype(np.int64)
    if not count_N.any():
        count_N[rng.integers(len(count_N))] = 1
    return np.repeat(np.arange(len(count_N)), count_N)
