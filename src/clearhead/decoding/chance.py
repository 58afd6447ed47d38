"""Drawing the next token: filters of what may be drawn, and chance as noise on what is left.

The token with the highest sum of log-probability and Gumbel noise is drawn with exactly its probability. So a draw is a
ranking like any other, and how close it was is a distance in log-probability; filters say how far from their edge each
token is.

R rows, V vocabulary; a single row may come without its axis
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.candidates import NEVER


@dataclass(frozen=True)
class Filtered:
    """What a filter keeps, and how far each token is from being on the other side."""

    kept_RV: Tensor
    slack_RV: Tensor


def soften(logits_RV: Tensor, temperature: float) -> Tensor:
    """Below 1 the likely tokens gain, above 1 the unlikely ones."""
    return logits_RV / temperature


def top_k(logits_RV: Tensor, count: int) -> Filtered:
    """Only the `count` likeliest tokens, and those equal to the last of them."""
    best = logits_RV.topk(min(count + 1, logits_RV.shape[-1])).values
    least = best[..., min(count, best.shape[-1]) - 1, None]
    following = best[..., -1:] if best.shape[-1] > count else torch.full_like(least, NEVER)
    kept_RV = logits_RV >= least
    return Filtered(kept_RV, torch.where(kept_RV, logits_RV - following, least - logits_RV))


def top_p(logits_RV: Tensor, share: float) -> Filtered:
    """The fewest likeliest tokens that have the probability `share` together; always one."""
    p_RV, order_RV = logits_RV.softmax(-1).sort(descending=True, stable=True)
    before_RV = p_RV.cumsum(-1) - p_RV
    kept_RV = before_RV < share
    kept_RV[..., 0] = True
    sorted_RV = logits_RV.gather(-1, order_RV)
    last_R1 = kept_RV.sum(-1, keepdim=True) - 1
    least_R1 = sorted_RV.gather(-1, last_R1)
    following_R1 = sorted_RV.gather(-1, (last_R1 + 1).clamp(max=sorted_RV.shape[-1] - 1))
    # A token changes sides when the sum before it does, or when it changes places with one on the other side.
    moved_RV = torch.where(kept_RV, sorted_RV - following_R1, least_R1 - sorted_RV)
    moved_RV = moved_RV.masked_fill(kept_RV & kept_RV[..., -1:], float("inf"))
    slack_RV = torch.minimum(moved_RV, (before_RV - share).abs())
    slack_RV[..., 0] = moved_RV[..., 0]
    back_RV = order_RV.argsort(-1)
    return Filtered(kept_RV.gather(-1, back_RV), slack_RV.gather(-1, back_RV))


def min_p(logits_RV: Tensor, share: float) -> Filtered:
    """Tokens with at least `share` of the probability of the likeliest."""
    p_RV = logits_RV.softmax(-1)
    kept_RV = p_RV >= share * p_RV.amax(-1, keepdim=True)
    edge_R1 = logits_RV.amax(-1, keepdim=True) + np.log(share)
    return Filtered(kept_RV, (logits_RV - edge_R1).abs())


def filters(settings: SamplingConfig) -> list[Callable[[Tensor], Filtered]]:
    """Those that are on, in their order."""
    chosen: list[Callable[[Tensor], Filtered]] = []
    if settings.top_k:
        chosen.append(lambda logits_RV: top_k(logits_RV, settings.top_k))
    if settings.top_p < 1:
        chosen.append(lambda logits_RV: top_p(logits_RV, settings.top_p))
    if settings.min_p:
        chosen.append(lambda logits_RV: min_p(logits_RV, settings.min_p))
    return chosen


def rank_by_chance(logits_RV: Tensor, settings: SamplingConfig, noise_RV: Tensor) -> tuple[Tensor, Tensor | None]:
    """ranks_RV, of which the highest is drawn; and margin_R: by how much filters could have changed that.

    Ranks and margins are in units of log-probability, before temperature. Temperature 0 takes the likeliest token.
    """
    temperature = settings.temperature
    if temperature == 0:
        return logits_RV, None
    left_RV = soften(logits_RV, temperature)
    noisy_RV = left_RV + noise_RV
    found: list[Filtered] = []
    for each in filters(settings):
        given_RV = left_RV
        filtered = each(given_RV)
        left_RV = given_RV.masked_fill(~filtered.kept_RV, NEVER)
        slack_RV = filtered.slack_RV.masked_fill(given_RV == NEVER, float("inf"))
        found.append(Filtered(filtered.kept_RV | (given_RV == NEVER), slack_RV))
    ranks_RV = left_RV + noise_RV
    if not found:
        return ranks_RV * temperature, None
    best_R1, drawn_R1 = ranks_RV.max(-1, keepdim=True)
    margins = []
    for each_ in found:
        # What was left out would have to come in, and to win.
        rivals_R = torch.maximum(each_.slack_RV, best_R1 - noisy_RV).masked_fill(each_.kept_RV, float("inf")).amin(-1)
        margins += [rivals_R, each_.slack_RV.gather(-1, drawn_R1)[..., 0]]
    return ranks_RV * temperature, torch.stack(margins).amin(0) * temperature


def gumbel(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Noise that makes the highest sum a draw."""
    return -np.log(np.maximum(rng.standard_exponential(count, dtype=np.float32), 1e-30))


def chance_of(seed: int, number: int, source: Tensor) -> np.random.Generator:
    """The chance of one sample of one sentence: a function of the seed, the sample's number and what the sentence is.

    So neither the company nor the place of a sentence changes what is drawn, and equal sentences are given equal draws.
    """
    digest = hashlib.blake2b(source.cpu().contiguous().numpy().tobytes(), digest_size=16).digest()
    return np.random.default_rng([seed, number, *np.frombuffer(digest, dtype="<u4").tolist()])
