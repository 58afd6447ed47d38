"""Sampling: filters against transformers, margins, frequencies against probabilities."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.sampling import FilteredTokens, gumbel, min_p, rank_tokens, top_k, top_p
from tests.decoding.table import log_softmax

IDS = torch.zeros(1, 1, dtype=torch.long)  # required by transformers, but not used


@pytest.mark.parametrize("seed", range(5))
def test_filters_are_those_of_transformers(seed: int) -> None:
    logits_V = 3 * torch.randn(101, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits_V[7] = logits_V[11]  # equal ones are kept together
    for temperature in (0.3, 1.0, 2.5):
        expected = TemperatureLogitsWarper(temperature)(IDS, logits_V[None])[0]
        settings = SamplingConfig(temperature=temperature)
        ranks_V, _ = rank_tokens(logits_V.numpy(), settings, np.zeros(101, np.float32))
        np.testing.assert_allclose(ranks_V / temperature, expected.numpy(), rtol=1e-12)
    for count in (1, 2, 17, 100, 101, 500):
        assert torch.equal(
            kept(logits_V, top_k(logits_V.numpy(), count)), TopKLogitsWarper(count)(IDS, logits_V[None])[0]
        )
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        assert torch.equal(
            kept(logits_V, top_p(logits_V.numpy(), share)), TopPLogitsWarper(share)(IDS, logits_V[None])[0]
        )
        their_min_p: Any = MinPLogitsWarper(share)
        assert torch.equal(kept(logits_V, min_p(logits_V.numpy(), share)), their_min_p(IDS, logits_V[None])[0])


def kept(logits_V: Tensor, filtered: FilteredTokens) -> Tensor:
    """Return the filtered logits in the form of `transformers`."""
    return logits_V.masked_fill(~torch.from_numpy(filtered.kept_RV), float("-inf"))


FILTERS = [
    {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 5, "top_p": 0.8},
    {"top_p": 0.9, "min_p": 0.1, "temperature": 0.6}, {"temperature": 1.7},
]  # fmt: skip


@pytest.mark.parametrize("settings", FILTERS)
def test_samples_do_not_change_within_their_margin(settings: dict[str, float]) -> None:
    """Changing every logit by a quarter of the margin changes no draw; changing them by 4 margins changes many."""
    config, draws, close = SamplingConfig.model_validate(settings), 0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        logits_V = 2 * log_softmax(rng.standard_normal(11))
        noise_V = gumbel(rng, 11)
        ranks_V, margin = rank_tokens(logits_V, config, noise_V)
        second, best = np.sort(ranks_V)[-2:]
        allowed = min(best - second, float("inf") if margin is None else float(margin))
        for size, must_hold in ((0.24, True), (4.0, False)):
            nudge_V = rng.choice([-1.0, 1.0], 11) * min(allowed, 9.0) * size
            nudged_V, _ = rank_tokens(logits_V + nudge_V, config, noise_V)
            is_same = int(nudged_V.argmax()) == int(ranks_V.argmax())
            assert is_same or not must_hold, (seed, settings)
            draws, close = draws + (not must_hold), close + (not must_hold and not is_same)
    assert close > draws / 10, "margins are far too careful"


def test_tokens_come_as_often_as_they_are_probable() -> None:
    logits_V = np.array([0.0, 1.0, -1.0, -np.inf, 2.0])
    settings = SamplingConfig(temperature=1.5, top_k=3)
    p_V = np.exp(log_softmax(np.array([0.0, 1.0, -np.inf, -np.inf, 2.0]) / 1.5))
    rng = np.random.default_rng(1)
    noises = (gumbel(rng, len(logits_V)) for _ in range(4000))
    counts = Counter(int(rank_tokens(logits_V, settings, noise_V)[0].argmax()) for noise_V in noises)
    assert set(counts) == {0, 1, 4}
    for token, count in counts.items():
        share = float(p_V[token])
        assert abs(count / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5  # four standard deviations
