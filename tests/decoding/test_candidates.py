"""Selection of candidates against a full sort, in exact order."""

import numpy as np
import pytest

from clearhead.decoding.candidates import best_candidates

INF = np.float32(np.inf)


@pytest.mark.parametrize("vocab_size", [2, 7, 127, 128, 131, 257, 1009, 1031, 5003])
@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize("distinct", [0, 2, 40])
def test_candidates_are_the_first_of_a_full_sort(vocab_size: int, width: int, distinct: int) -> None:
    """This also holds with many ties, and for candidates at both ends of the vocabulary."""
    rng = np.random.default_rng([vocab_size, width, distinct])
    log_probs_RV = (rng.standard_normal((7 * width, vocab_size)) - 5).astype(np.float32)
    if distinct:
        log_probs_RV = (log_probs_RV * distinct).round() / np.float32(distinct)
    log_probs_RV[np.arange(7) * width, -np.arange(7) % vocab_size] = -0.5
    log_probs_RV[:, [0, vocab_size // 2]] = -INF
    totals_NW = np.where(np.arange(width) == 2, -INF, -np.arange(width, dtype=np.float32) / 2)
    totals_NW = np.broadcast_to(totals_NW, (7, width)).astype(np.float32)
    count = 2 * width + 1
    candidates = best_candidates(log_probs_RV, totals_NW, count)

    keys_NF = (log_probs_RV.reshape(7, width, vocab_size) + totals_NW[:, :, None]).reshape(7, -1)
    flat_NK = np.argsort(-keys_NF, 1, kind="stable")[:, :count]
    for number, flat_K in enumerate(flat_NK):
        expected = [(int(each), keys_NF[number, each]) for each in flat_K if keys_NF[number, each] > -INF]
        is_possible_K = candidates.totals_NK[number] > -INF
        parents_K, tokens_K = candidates.parents_NK[number], candidates.tokens_NK[number]
        flat = (parents_K * vocab_size + tokens_K)[is_possible_K].tolist()
        assert [*zip(flat, candidates.totals_NK[number, is_possible_K], strict=True)] == expected
        log_probs_K = log_probs_RV.reshape(7, -1)[number, flat]
        assert (candidates.log_probs_NK[number, is_possible_K] == log_probs_K).all()


def test_keys_that_are_not_the_totals() -> None:
    """Candidates are ordered by other values; totals and log-probabilities remain those of the model."""
    rng = np.random.default_rng(3)
    log_probs_RV, ranks_RV = rng.standard_normal((2, 4 * 2, 3001)).astype(np.float32)
    totals_NW = rng.standard_normal((4, 2)).astype(np.float32)
    candidates = best_candidates(log_probs_RV, totals_NW, 5, ranks_RV, np.zeros((4, 2), np.float32))
    for number in range(4):
        keys_F = ranks_RV[2 * number : 2 * number + 2].reshape(-1)
        flat_K = np.argsort(-keys_F, kind="stable")[:5]
        assert (candidates.parents_NK[number] * 3001 + candidates.tokens_NK[number]).tolist() == flat_K.tolist()
        assert (candidates.ranks_NK[number] == keys_F[flat_K]).all()
        log_probs_K = log_probs_RV[2 * number : 2 * number + 2].reshape(-1)[flat_K]
        assert (candidates.totals_NK[number] == totals_NW[number, flat_K // 3001] + log_probs_K).all()


@pytest.mark.parametrize("count", [1, 3, 9])
def test_ties_in_some_searches_leave_the_others_alone(count: int) -> None:
    rng = np.random.default_rng(count)
    searches, width, vocabulary = 6, 4, 900
    log_probs_RV = rng.standard_normal((searches * width, vocabulary)).astype(np.float32)
    log_probs_RV[2 * width : 4 * width] = (log_probs_RV[2 * width : 4 * width] * 2).round() / 2  # full of ties
    totals_NW = np.zeros((searches, width), np.float32)
    together = best_candidates(log_probs_RV, totals_NW, count)
    for number in range(searches):
        rows = slice(number * width, (number + 1) * width)
        alone = best_candidates(log_probs_RV[rows], totals_NW[number : number + 1], count)
        assert (together.tokens_NK[number] == alone.tokens_NK[0]).all()
        assert (together.parents_NK[number] == alone.parents_NK[0]).all()
        assert (together.totals_NK[number] == alone.totals_NK[0]).all()
