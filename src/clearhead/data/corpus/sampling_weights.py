"""Sampling weights and tags of several training files: passes over each file per epoch, by weights or a temperature."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ConfigError

MAX_EPOCH_EXAMPLES = 1 << 28
"""Limit of the examples per epoch if weights are set; the order takes 8 bytes per example, temporarily more."""
Repeats = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]
FILE_FORM = re.compile(r"(.+?)(?:@([A-Za-z0-9_-]+))?(?::(\d+(?:\.\d+)?))?")
MALFORMED_FILE = re.compile(r"(.+?)(?:@([^@:/]*))?(?::([^:/]*))?")


@dataclass(frozen=True)
class WeightedFiles:
    """Files with their weights and tags; each list has one entry per file or is empty."""

    files: list[Path]
    weights: list[float]
    tags: list[str]


def parse_file_arguments(arguments: Sequence[Path]) -> WeightedFiles:
    """Return the files, weights and tags of arguments such as `a.tsv@de:2 b.tsv@fr`: weights 2 and 1, tags de and fr.

    The weights are empty if no argument has one, and so are the tags. An existing file is never taken apart, whatever
    its name ends with.
    """
    files, weights, tags = [], [], []
    for argument in arguments:
        match = FILE_FORM.fullmatch(str(argument))
        if match and argument.exists():
            if match[2] and Path(match[1]).exists():
                raise ConfigError(f"both {argument} and {match[1]} are files; rename one of them")
            match = None
        _refuse_malformed(argument, match)
        files.append(Path(match[1]) if match else argument)
        weights.append(float(match[3]) if match and match[3] else None)
        tags.append(match[2] or "" if match else "")
    if any(tags) and not all(tags):
        untagged = files[tags.index("")]
        raise ConfigError(f"{untagged} has no tag; tag all files, as in {untagged}@de, or none")
    has_weights = any(weight is not None for weight in weights)
    filled = [1.0 if weight is None else weight for weight in weights] if has_weights else []
    return WeightedFiles(files, filled, tags if any(tags) else [])


def _refuse_malformed(argument: Path, match: re.Match[str] | None) -> None:
    """Raise ConfigError if an existing file is followed by something other than a tag and a positive weight."""
    if match is None or Path(match[1]).exists():
        if match and match[3] and not float(match[3]):
            raise ConfigError(f"{argument}: expected a weight above 0, as in {match[1]}:2; leave the file out instead")
        return
    malformed = MALFORMED_FILE.fullmatch(str(argument))
    if malformed and Path(malformed[1]).exists():
        raise ConfigError(
            f"{argument}: expected {malformed[1]}, optionally with a tag and a weight, as in {malformed[1]}@de:2 "
            f"or {malformed[1]}:0.5"
        )


def epoch_repeats(file_index_N: IntArray, weights: Sequence[float], temperature: float) -> Repeats | None:
    """Return how often each example occurs per epoch, given the index of its file; None if each occurs once.

    With a temperature T, files are sampled in proportion to size^(1/T), and the largest file is seen once.
    """
    if weights and temperature != 1:
        raise ConfigError(
            "data.file_weights and data.sampling_temperature both set how often a file is seen; unset one"
        )
    if weights:
        _require_feasible_epoch(
            np.bincount(file_index_N, minlength=len(weights)) @ np.asarray(weights), len(file_index_N)
        )
        return np.asarray(weights)[file_index_N]
    size_F = np.maximum(1, np.bincount(file_index_N))
    if temperature == 1 or len(size_F) == 1:
        return None
    repeats_F = (size_F / size_F.max()) ** (1 / temperature - 1)
    _require_feasible_epoch(size_F @ repeats_F, len(file_index_N))
    return np.asarray(repeats_F)[file_index_N]


def _require_feasible_epoch(examples: float, records: int) -> None:
    """Raise ConfigError for weights that would need too much memory, such as mistyped ones."""
    if examples > (limit := max(MAX_EPOCH_EXAMPLES, records)):
        raise ConfigError(
            f"the weights give {examples:,.0f} examples per epoch, expected at most {limit:,}; lower the weights"
        )


def describe_epoch_repeats(file_index_N: IntArray, repeats_N: Repeats) -> list[str]:
    """Return one line per file: its pairs and how often each is seen per epoch."""
    first = {number: np.argmax(file_index_N == number) for number in np.flatnonzero(np.bincount(file_index_N))}
    counts = np.bincount(file_index_N)
    return [f"file {number + 1}: {counts[number]:,} pairs, each seen {repeats_N[index]:.2f} times per epoch"
            for number, index in first.items()]  # fmt: skip


def sample_epoch(repeats_N: Repeats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return indices with each example repeated; a fractional part is the probability of one more. Never empty."""
    count_N = np.floor(repeats_N + rng.random(len(repeats_N))).astype(np.int64)
    if not count_N.any():
        count_N[rng.integers(len(count_N))] = 1
    return np.repeat(np.arange(len(count_N)), count_N)
