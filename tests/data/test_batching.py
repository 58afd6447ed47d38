"""Batches: every example once, within the budget, in an order that is a pure function of (seed, epoch)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.batching import estimate_work, plan_batches, split_by_work
from clearhead.data.corpus.id_arrays import IdArrays

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 300), st.integers(0, 5), st.integers(0, 3))
def test_every_example_occurs_once_within_the_token_budget(
    pairs: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    source, target = np.array(pairs).T
    batches = plan_batches(source, target, budget, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for batch in batches:
        longest = max(source[batch].max(), target[batch].max())
        assert len(batch) == 1 or longest * len(batch) <= budget


def test_order_depends_on_seed_and_epoch_only() -> None:
    rng = np.random.default_rng(3)
    source, target = rng.integers(5, 30, (2, 500))

    def flat(seed: int, epoch: int) -> list[int]:
        return [int(i) for batch in plan_batches(source, target, 200, seed, epoch) for i in batch]

    assert flat(1, 2) == flat(1, 2)
    assert flat(1, 2) != flat(1, 3)
    assert flat(1, 2) != flat(2, 2)


def test_batches_contain_similar_lengths() -> None:
    rng = np.random.default_rng(3)
    source = rng.integers(5, 30, 5000)
    target = np.clip(source + rng.integers(-3, 4, 5000), 2, None)
    batches = plan_batches(source, target, 1000, 1, 0)
    padded = sum(len(b) * (source[b].max() + target[b].max()) for b in batches)
    assert padded < 1.1 * (source.sum() + target.sum())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 9))
def test_split_batches_have_no_empty_parts(work: list[int], parts: int) -> None:
    indices = np.arange(100, 100 + len(work))
    halves = split_by_work(indices, parts, np.array(work, dtype=np.int64))
    assert [i for part in halves for i in part] == indices.tolist()
    assert len(halves) == min(parts, len(work)) and all(map(len, halves))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=60))
def test_no_other_cut_balances_work_better(work: list[int]) -> None:
    parts_of_batch = split_by_work(np.arange(len(work)), 2, np.array(work))

    def longest(size: int) -> int:
        return max(len(part) * max(part) for part in (work[:size], work[size:]))

    assert longest(len(parts_of_batch[0])) == min(longest(size) for size in range(1, len(work)))


def test_parts_with_long_targets_have_fewer_examples() -> None:
    source, target = np.full(90, 12), np.repeat([10, 16, 26], 30)
    halves = split_by_work(np.arange(90), 2, estimate_work(source, target))
    work = [len(half) * (12 + 2 * target[half].max()) for half in halves]
    assert len(halves[1]) < 40 and max(work) < 1.05 * min(work)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), max_size=20))
def test_id_arrays_return_the_original_sequences(sequences: list[list[int]]) -> None:
    store = IdArrays.build(sequences)
    assert len(store) == len(sequences)
    assert [list(store[i]) for i in range(len(store))] == sequences
    assert store.lengths.tolist() == [len(sequence) for sequence in sequences]
