"""Rendezvous of processes through a store that has keys of earlier processes."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore, Store

from clearhead.training.distributed import process_group


def meet(store: Store, late: int) -> list[Store]:
    """Return the stores of three processes that are started together, of which one is late."""

    def join(rank: int) -> Store:
        time.sleep(0.2 * (rank == late))
        return process_group.fresh_store(store, rank, 3)

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(join, range(3)))


@pytest.mark.parametrize("late", range(3))
def test_no_process_reads_keys_of_earlier_ones(late: int) -> None:
    store = HashStore()
    for attempt in range(3):
        parts = meet(store, late)
        assert not any(part.check(["address"]) for part in parts)
        parts[1].set("address", str(attempt))
        assert [part.get("address") for part in parts] == [str(attempt).encode()] * 3


def test_a_process_that_died_before_its_answer_changes_nothing() -> None:
    store = HashStore()
    store.set("ask/1", "of a dead one")
    meet(store, late=1)


def test_a_missing_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "RENDEZVOUS_TIMEOUT", 0.001 * process_group.RENDEZVOUS_TIMEOUT)
    with pytest.raises(RuntimeError, match="1 of 2 did not connect"):
        process_group.fresh_store(HashStore(), 0, 2)
