"""Alignment error rate, compared with values computed by hand."""

import pytest

from clearhead.evaluation.alignment import alignment_error_rate

GOLD = {(0, 0), (1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (GOLD, 0.0),
        (
            {(0, 0), (1, 2), (2, 2), (3, 3), (4, 4)},
            1 - 2 * 2 / (5 + 3),
        ),  # 2 of 5 correct, 3 gold
        ({(0, 0)}, 1 - 2 / 4),
        ({(0, 1), (2, 0)}, 1.0),
        (set(), 1.0),
    ],
)
def test_alignment_error_rate(predicted: set[tuple[int, int]], expected: float) -> None:
    assert alignment_error_rate(predicted, GOLD) == pytest.approx(expected)


def test_rate_without_links_is_zero() -> None:
    assert alignment_error_rate(set(), set()) == 0.0
