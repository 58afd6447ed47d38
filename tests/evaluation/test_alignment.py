"""The alignment error rate, against values computed by hand."""

import pytest

from clearhead.evaluation.alignment import alignment_error_rate

GOLD = {(0, 0), (1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (GOLD, 0.0),
        ({(0, 0), (1, 2), (2, 2), (3, 3), (4, 4)}, 1 - 2 * 2 / (5 + 3)),  # two of five are right, of three sought
        ({(0, 0)}, 1 - 2 / 4),
        ({(0, 1), (2, 0)}, 1.0),
        (set(), 1.0),
    ],
)
def test_only_sure_links(predicted: set[tuple[int, int]], expected: float) -> None:
    assert alignment_error_rate(predicted, GOLD) == pytest.approx(expected)


def test_without_links_there_is_no_error() -> None:
    assert alignment_error_rate(set(), set()) == 0.0
