"""Shortlists: IBM Model 1 compared with a slow reference, allowed targets, and invalid files."""

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clearhead.data.shortlist import Shortlist, make_shortlist, train_ibm_model1
from clearhead.errors import DataError

SOURCE, TARGET = 11, 13
END = 3


def pairs(count: int, seed: int = 1) -> tuple[list[list[int]], list[list[int]]]:
    """Return pairs with shuffled targets: source tokens plus 2, and noise for one token in five."""
    rng = random.Random(seed)
    sources = [[rng.randrange(4, SOURCE) for _ in range(rng.randint(1, 5))] for _ in range(count)]
    targets = [[rng.randrange(4, TARGET) if rng.random() < 0.2 else token + 2 for token in each] for each in sources]
    for each in targets:
        rng.shuffle(each)
    return sources, targets


def test_ibm_model1_equals_a_slow_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs are also processed in several chunks."""
    monkeypatch.setattr("clearhead.data.shortlist._CHUNK_PAIRS", 7)
    monkeypatch.setattr("clearhead.data.shortlist._MAX_PENDING_KEYS", 100)
    sources, targets = pairs(30)
    chances: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(4):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for token in target:
                full = sum(chances[source_token, token] for source_token in [*source, SOURCE])
                for source_token in [*source, SOURCE]:
                    counts[source_token, token] += chances[source_token, token] / full
        sums: dict[int, float] = defaultdict(float)
        for (source_token, _), count in counts.items():
            sums[source_token] += count
        chances = defaultdict(
            float,
            {(source_token, token): count / sums[source_token] for (source_token, token), count in counts.items()},
        )
    table = train_ibm_model1(sources, targets, SOURCE, TARGET, iterations=4)
    learned = dict(
        zip(zip(table.sources_P.tolist(), table.targets_P.tolist(), strict=True), table.probability_P, strict=True)
    )
    assert learned == pytest.approx({pair: chance for pair, chance in chances.items() if chance})


def test_top_targets_are_sorted_by_probability() -> None:
    table = train_ibm_model1(*pairs(400), SOURCE, TARGET)
    sources, targets = table.top_targets(1, 0.0)
    best = dict(zip(sources.tolist(), targets.tolist(), strict=True))
    assert {token: best[token] for token in range(4, SOURCE)} == {token: token + 2 for token in range(4, SOURCE)}
    counts = np.bincount(table.top_targets(3, 0.0)[0], minlength=SOURCE + 1)
    assert counts[4:SOURCE].tolist() == [3] * (SOURCE - 4) and counts[:4].sum() == 0
    few, _ = table.top_targets(3, 0.5)
    assert set(few.tolist()) >= set(range(4, SOURCE)) and len(few) <= SOURCE - 3


def small(copies: Sequence[int] = (), frequent: int = 2) -> Shortlist:
    return make_shortlist(*pairs(400), (SOURCE, TARGET), [END], "print", best=1, frequent=frequent, copies=copies)


def test_a_sentence_gets_candidates_and_frequent_tokens() -> None:
    shortlist = small()
    common = {*shortlist.frequent_F.tolist()}
    assert END in common and len(common) == 3
    assert {*shortlist.allowed_targets([5, 9, 5])} == {7, 11, *common}
    assert shortlist.allowed_targets([5, 9]) == tuple(sorted(shortlist.allowed_targets([9, 5])))
    assert {*shortlist.allowed_targets([])} == common == {*shortlist.allowed_targets([2])}, (
        "no candidates for a source token that never occurred"
    )
    assert {*small(copies=range(4, SOURCE)).allowed_targets([5])} == {5, 7, *common}
    assert {*small(frequent=0).allowed_targets([])} == {END}


def test_a_saved_shortlist_is_loaded_unchanged(tmp_path: Path) -> None:
    shortlist = small(copies=range(4, SOURCE))
    shortlist.save(tmp_path / "list")
    again = Shortlist.load(tmp_path / "list", "print")
    assert [again.allowed_targets([token]) for token in range(SOURCE)] == [
        shortlist.allowed_targets([token]) for token in range(SOURCE)
    ]
    assert (again.vocab_size, again.mean_length) == (TARGET, shortlist.mean_length)


def test_equal_lists_give_equal_bytes() -> None:
    assert len({small().to_bytes() for _ in range(20)}) == 1


def test_invalid_shortlists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "list"
    with pytest.raises(DataError, match=r"cannot read .*list: .*; create one with clearhead shortlist"):
        Shortlist.load(path, "print")
    small().save(path)
    with pytest.raises(DataError, match="was made for another tokenizer"):
        Shortlist.load(path, "other")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="cannot read"):
        Shortlist.load(path, "print")
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(DataError, match="is not a shortlist"):
        Shortlist.load(path, "print")
    array, shortlist = np.zeros(1, dtype=np.int32), small()
    for damaged in (
        Shortlist(shortlist.offsets_V1, shortlist.lists_L + TARGET, array, TARGET, "print"),
        Shortlist(shortlist.offsets_V1[::-1].copy(), shortlist.lists_L, array, TARGET, "print"),
        Shortlist(shortlist.offsets_V1, shortlist.lists_L[:-1], array, TARGET, "print"),
    ):
        damaged.save(path)
        with pytest.raises(DataError, match="is damaged"):
            Shortlist.load(path, "print")
    with pytest.raises(DataError, match="cannot write"):
        shortlist.save(tmp_path / "none" / "list")
