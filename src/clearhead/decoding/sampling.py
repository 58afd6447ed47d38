"""Sampling of the next token: filters, and random draws as noise.

The token with the highest sum of log-probability and Gumbel noise is a sample from the distribution. A draw is thus a
ranking, and its margin is a difference in log-probability. Each row is computed on its own: a draw depends on the seed,
the number of the sample and the source, not on the batch.

R rows, V columns; a single row may come without its axis
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.beam_state import BeamState
from clearhead.decoding.candidates import Candidates, best_candidates
from clearhead.decoding.generator import Bools, Floats

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class SamplingSelector:
    """Selector that draws one token per row. Each search is one sample, with its own random generator."""

    settings: SamplingConfig
    generators: Sequence[np.random.Generator]
    """One per search of the batch."""

    def select(self, log_probs_RV: Floats, beams: BeamState) -> Candidates:
        """Return the sample and the two runners-up of each search."""
        noise_RV = np.zeros(log_probs_RV.shape, dtype=np.float32)
        if self.settings.temperature:
            for row in beams.live_rows().tolist():
                noise_RV[row] = gumbel(self.generators[int(beams.searches_N[row])], log_probs_RV.shape[1])
        ranks_RV, margin_R = rank_tokens(log_probs_RV.astype(np.float64), self.settings, noise_RV)
        base_NW = np.where(beams.totals_NW > -np.inf, np.float32(0), np.float32(-np.inf))
        candidates = best_candidates(log_probs_RV, beams.totals_NW, 3, ranks_RV.astype(np.float32), base_NW)
        if margin_R is None:
            return candidates
        return replace(candidates, margin_N=np.nan_to_num(margin_R, nan=np.inf).astype(np.float32))


@dataclass(frozen=True)
class FilteredTokens:
    """Tokens that a filter keeps; for each token, the change of log-probability that would reverse this decision."""

    kept_RV: Bools
    slack_RV: Doubles


def top_k(logits_RV: Doubles, count: int) -> FilteredTokens:
    """Keep the `count` most probable tokens, and those equal to the last of them."""
    size = logits_RV.shape[-1]
    best_RK = -np.sort(-_largest(logits_RV, min(count + 1, size)), -1)
    least_R1 = best_RK[..., min(count, size) - 1, None]
    following_R1 = best_RK[..., -1:] if size > count else np.full_like(least_R1, -np.inf)
    kept_RV = logits_RV >= least_R1
    return FilteredTokens(kept_RV, np.where(kept_RV, logits_RV - following_R1, least_R1 - logits_RV))


def _largest(values_RV: Doubles, count: int) -> Doubles:
    return np.partition(values_RV, values_RV.shape[-1] - count, -1)[..., values_RV.shape[-1] - count :]


def top_p(logits_RV: Doubles, share: float) -> FilteredTokens:
    """Keep the fewest most probable tokens with a total probability of at least `share`; at least one."""
    order_RV = np.argsort(-logits_RV, -1, kind="stable")
    sorted_RV = np.take_along_axis(logits_RV, order_RV, -1)
    p_RV = _softmax(sorted_RV)
    before_RV = np.cumsum(p_RV, -1) - p_RV
    kept_RV = before_RV < share
    kept_RV[..., 0] = True
    last_R1 = kept_RV.sum(-1, keepdims=True) - 1
    least_R1 = np.take_along_axis(sorted_RV, last_R1, -1)
    following_R1 = np.take_along_axis(sorted_RV, np.minimum(last_R1 + 1, sorted_RV.shape[-1] - 1), -1)
    # The decision about a token is reversed if the sum of the more probable tokens passes `share`, or if it swaps ranks
    # with a token on the other side of the threshold.
    moved_RV = np.where(kept_RV, sorted_RV - following_R1, least_R1 - sorted_RV)
    moved_RV = np.where(kept_RV & kept_RV[..., -1:], np.inf, moved_RV)
    slack_RV = np.minimum(moved_RV, np.abs(before_RV - share))
    slack_RV[..., 0] = moved_RV[..., 0]
    back_RV = np.argsort(order_RV, -1)
    return FilteredTokens(np.take_along_axis(kept_RV, back_RV, -1), np.take_along_axis(slack_RV, back_RV, -1))


def min_p(logits_RV: Doubles, share: float) -> FilteredTokens:
    """Keep tokens with at least `share` times the probability of the most probable one."""
    p_RV = _softmax(logits_RV)
    kept_RV = p_RV >= share * p_RV.max(-1, keepdims=True)
    edge_R1 = logits_RV.max(-1, keepdims=True) + np.log(share)
    return FilteredTokens(kept_RV, np.abs(logits_RV - edge_R1))


def _softmax(logits_RV: Doubles) -> Doubles:
    p_RV = np.exp(logits_RV - logits_RV.max(-1, keepdims=True))
    return np.asarray(p_RV / p_RV.sum(-1, keepdims=True))


def filters(settings: SamplingConfig) -> list[Callable[[Doubles], FilteredTokens]]:
    """Return the filters that are enabled, in their order."""
    enabled: list[Callable[[Doubles], FilteredTokens]] = []
    if settings.top_k:
        enabled.append(lambda logits_RV: top_k(logits_RV, settings.top_k))
    if settings.top_p < 1:
        enabled.append(lambda logits_RV: top_p(logits_RV, settings.top_p))
    if settings.min_p:
        enabled.append(lambda logits_RV: min_p(logits_RV, settings.min_p))
    return enabled


def rank_tokens(logits_RV: Doubles, settings: SamplingConfig, noise_RV: Floats) -> tuple[Doubles, Doubles | None]:
    """Return ranks_RV, whose maximum is drawn, and margin_R, the smallest change for which the filters change the draw.

    Both are in units of log-probability, before temperature. Temperature 0 takes the most probable token.
    """
    temperature = settings.temperature
    if temperature == 0:
        return logits_RV, None
    remaining_RV = logits_RV / temperature
    noisy_RV = remaining_RV + noise_RV
    filtered: list[FilteredTokens] = []
    with np.errstate(invalid="ignore"):  # -inf minus -inf, of tokens that are filtered out already
        for apply_filter in filters(settings):
            was_out_RV, tokens = remaining_RV == -np.inf, apply_filter(remaining_RV)
            remaining_RV = np.where(tokens.kept_RV, remaining_RV, -np.inf)
            filtered.append(FilteredTokens(tokens.kept_RV | was_out_RV, np.where(was_out_RV, np.inf, tokens.slack_RV)))
    ranks_RV = remaining_RV + noise_RV
    if not filtered:
        return ranks_RV * temperature, None
    drawn_R1 = ranks_RV.argmax(-1, keepdims=True)
    best_R1 = np.take_along_axis(ranks_RV, drawn_R1, -1)
    margins = []
    for filter_result in filtered:
        # To change the draw, a token that was filtered out would have to pass the filter and have the highest rank.
        rivals_RV = np.where(filter_result.kept_RV, np.inf, np.maximum(filter_result.slack_RV, best_R1 - noisy_RV))
        margins += [rivals_RV.min(-1), np.take_along_axis(filter_result.slack_RV, drawn_R1, -1)[..., 0]]
    return ranks_RV * temperature, np.stack(margins).min(0) * temperature


def gumbel(rng: np.random.Generator, count: int) -> Floats:
    """Return Gumbel noise."""
    noise: Floats = -np.log(np.maximum(rng.standard_exponential(count, dtype=np.float32), np.float32(1e-30)))
    return noise


def sample_rng(seed: int, number: int, source: Sequence[int] | Floats) -> np.random.Generator:
    """Return the random generator of one sample: a function of the seed, the sample's number and the source."""
    array = source if isinstance(source, np.ndarray) else np.array(source, np.int64)
    digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
    return np.random.default_rng([seed, number, *np.frombuffer(digest, dtype="<u4").tolist()])
