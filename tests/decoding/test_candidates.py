"""The best continuations against sorting everything, with exact ties between some of the searches' candidates."""

import numpy as np
import pytest
import torch

from clearhead.decoding.candidates import best_candidates


@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("seed", range(4))
def test_ties_in_some_searches_leave_the_others_alone(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    searches, width, vocabulary = 6, 4, 300
    log_probs_RV = torch.randn(searches * width, vocabulary, generator=generator).log_softmax(-1)
    log_probs_RV[2 * width : 4 * width] = (log_probs_RV[2 * width : 4 * width] * 2).round() / 2  # full of ties
    totals_NW = np.zeros((searches, width))
    totals_NW[1::2] = -np.arange(width) / 4
    found = best_candidates(log_probs_RV, totals_NW, count)
    for number in range(searches):
        rows = range(number * width, (number + 1) * width)
        every = sorted(
            (-(totals_NW[number, row - rows[0]] + float(log_probs_RV[row, token])), row - rows[0], token)
            for row in rows
            for token in range(vocabulary)
        )[:count]
        assert found.totals_NK[number] == pytest.approx([-cost for cost, _, _ in every], abs=1e-12)
        assert [*zip(found.parents_NK[number], found.tokens_NK[number], strict=True)][: count - 1] == [
            (row, token) for _, row, token in every
        ][: count - 1]
        alone = best_candidates(log_probs_RV[rows[0] : rows[-1] + 1], totals_NW[number : number + 1], count)
        assert (found.tokens_NK[number] == alone.tokens_NK[0]).all()
        assert (found.parents_NK[number] == alone.parents_NK[0]).all()
