"""Cancelled sentences leave the search within a step, and the results of the others do not change."""

from collections.abc import Sequence
from typing import Any

import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Step
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import Constraints
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.runtime import Cancellation
from tests.decoding.table import END, PAD, TableGenerator

LIMIT, AT_STEP = 17, 5
PHRASE = Constraints(include=LexicalConstraints(((7, 5),)))
CASES: dict[str, tuple[DecodingConfig, int, Constraints | None]] = {
    "greedy": (DecodingConfig(beam_size=1), 1, None),
    "beam": (DecodingConfig(beam_size=3), 3, None),
    "diverse": (DecodingConfig(beam_size=4, beam_groups=2, diversity_penalty=0.5), 4, None),
    "samples": (DecodingConfig(method="sample"), 3, None),
    "phrases": (DecodingConfig(beam_size=2), 6, PHRASE),
}


class CancellingTable(TableGenerator):
    """Generator whose outputs reach their limits, and which cancels a request during one step."""

    def __init__(self, cancellation: Cancellation | None = None) -> None:
        super().__init__(vocab_size=11, end_bonus=-50.0)
        self.cancellation = cancellation

    def step(self, *arguments: Any, **options: Any) -> Step:
        result = super().step(*arguments, **options)
        if self.cancellation is not None and len(self.rows_seen) == AT_STEP:
            self.cancellation.cancel()
        return result


def run(name: str, table: TableGenerator, cancellations: Sequence[Cancellation | None]) -> Any:
    settings, _, sentence_constraints = CASES[name]
    keys, n_best = [[key] for key in range(len(cancellations))], 3 if name == "samples" else 1
    constraints = [] if sentence_constraints is None else [sentence_constraints] * len(keys)
    return search(
        SearchBatch(table, keys, settings, [LIMIT] * len(keys), END, PAD, n_best, constraints=constraints,
                    cancellations=cancellations)
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_cancelled_sentence_leaves_and_others_stay(name: str) -> None:
    alone, cancellation = CancellingTable(), Cancellation()
    expected = run(name, alone, [None] * 3)
    table, rows = CancellingTable(cancellation), CASES[name][1]
    actual = run(name, table, [None, cancellation, Cancellation()])
    assert actual[0] == expected[0] and actual[2] == expected[2]
    assert table.rows_seen == [*alone.rows_seen[:AT_STEP], *[2 * rows] * (LIMIT - AT_STEP)]
    assert alone.rows_seen[AT_STEP:] == [3 * rows] * (LIMIT - AT_STEP)


@pytest.mark.parametrize("name", CASES)
def test_the_search_ends_when_all_are_cancelled(name: str) -> None:
    cancellation = Cancellation()
    table = CancellingTable(cancellation)
    run(name, table, [cancellation] * 3)
    assert len(table.rows_seen) == AT_STEP
    run(name, table, [cancellation] * 3)
    assert len(table.rows_seen) == AT_STEP, "a step for sentences that were cancelled before"


def test_a_deadline_cancels() -> None:
    table = CancellingTable()
    assert run("beam", table, [Cancellation(deadline=1e-9)] * 2) == [[], []]
    assert table.rows_seen == []
