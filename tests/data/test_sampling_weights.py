"""Sampling weights of several files: parsed from arguments, resampled per epoch, reproducible."""

from pathlib import Path

import numpy as np
import pytest

from clearhead.data.batching import plan_batches
from clearhead.data.corpus.sampling_weights import (
    WeightedFiles,
    describe_epoch_repeats,
    epoch_repeats,
    parse_file_arguments,
)
from clearhead.errors import ConfigError


def test_weights_are_parsed_from_arguments(tmp_path: Path) -> None:
    odd = tmp_path / "a.tsv:7"
    odd.touch()
    assert parse_file_arguments([Path("a.tsv:2"), Path("b.jsonl.gz:0.5"), Path("c.tsv")]) == WeightedFiles(
        [Path("a.tsv"), Path("b.jsonl.gz"), Path("c.tsv")], [2.0, 0.5, 1.0], []
    )
    baseline = [odd, Path("b.tsv"), Path("c:x.tsv"), Path("d@e.tsv")]
    assert parse_file_arguments(baseline) == WeightedFiles(baseline, [], [])
    assert parse_file_arguments([Path("a.tsv:0")]).weights == [0.0]  # refused by the settings


def test_tags_are_parsed_from_arguments(tmp_path: Path) -> None:
    parsed = parse_file_arguments([Path("en-de.tsv@de"), Path("x@y/en-fr.jsonl.zst@fr-FR:2.5")])
    assert parsed == WeightedFiles([Path("en-de.tsv"), Path("x@y/en-fr.jsonl.zst")], [1.0, 2.5], ["de", "fr-FR"])
    odd = tmp_path / "a.tsv@de"
    odd.touch()
    assert parse_file_arguments([odd]) == WeightedFiles([odd], [], [])
    with pytest.raises(ConfigError, match=r"b\.tsv has no tag; .*b\.tsv@de"):
        parse_file_arguments([Path("a.tsv@de"), Path("b.tsv:2")])
    (tmp_path / "a.tsv").touch()
    with pytest.raises(ConfigError, match="are files; rename one"):
        parse_file_arguments([odd])


def seen(file_index_N: np.ndarray[tuple[int], np.dtype[np.int64]], epochs: int, weights: list[float]) -> list[float]:
    """Return how often each example occurred, as a mean over epochs."""
    length_N = 3 + file_index_N
    count_N = np.zeros(len(file_index_N))
    for epoch in range(epochs):
        batches = plan_batches(length_N, length_N, 60, 5, epoch, epoch_repeats(file_index_N, weights, 1.0))
        np.add.at(count_N, np.concatenate(batches), 1)
    return [float(count / epochs) for count in count_N]


def test_integer_weights_are_exact_and_fractions_are_probabilities() -> None:
    file_index_N = np.array([0] * 11 + [1] * 13 + [2] * 17)
    occurrences = seen(file_index_N, 400, [2.0, 0.25, 1.5])
    assert occurrences[:11] == [2.0] * 11
    assert occurrences[11:24] == pytest.approx([0.25] * 13, abs=0.1)  # four standard deviations
    assert occurrences[24:] == pytest.approx([1.5] * 17, abs=0.1)
    assert sum(seen(file_index_N, 5, [1e-9] * 3)) == pytest.approx(1.0)  # an epoch is never empty


def test_an_epoch_is_a_function_of_seed_and_number() -> None:
    length_N = np.full(40, 4)
    share_N = np.full(40, 0.5)
    first, again, other = (plan_batches(length_N, length_N, 20, 1, epoch, share_N) for epoch in (3, 3, 4))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in again]
    assert sorted(np.concatenate(first)) != sorted(np.concatenate(other))


def test_a_temperature_upsamples_small_files() -> None:
    """At temperature 2, 64 and 4 pairs count as 8 and 2, so a pair of the second file occurs 4 times as often."""
    file_index_N = np.array([0] * 64 + [1] * 4)
    repeats_N = epoch_repeats(file_index_N, [], 2.0)
    assert repeats_N is not None
    assert repeats_N[0] == 1.0 and repeats_N[-1] == pytest.approx(4.0)
    assert describe_epoch_repeats(file_index_N, repeats_N)[1] == "file 2: 4 pairs, each seen 4.00 times per epoch"
    assert epoch_repeats(file_index_N, [], 1.0) is None and epoch_repeats(np.zeros(5, np.int64), [], 3.0) is None
    with pytest.raises(ConfigError, match="unset one"):
        epoch_repeats(file_index_N, [1.0, 2.0], 2.0)


@pytest.mark.parametrize("suffix", [":-1", ":x", ":1e9", ":", "@", "@de:", "@d e:2"])
def test_malformed_weights_and_tags_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.touch()
    with pytest.raises(
        ConfigError, match=r"a\.tsv.*: expected .*a\.tsv, optionally with a tag and a weight, .*a\.tsv@de:2"
    ):
        parse_file_arguments([Path(f"{path}{suffix}")])


def test_a_weight_of_zero_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.touch()
    with pytest.raises(ConfigError, match=r"a\.tsv:0\.0: expected a weight above 0, as in .*a\.tsv:2"):
        parse_file_arguments([Path(f"{path}:0.0")])


def test_an_epoch_too_large_for_memory_is_refused() -> None:
    file_index_N = np.array([0] * 11 + [1] * 13)
    with pytest.raises(ConfigError, match="11,000,000,013 examples per epoch, expected at most 268,435,456"):
        epoch_repeats(file_index_N, [1e9, 1.0], 1.0)
