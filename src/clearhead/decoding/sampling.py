"""Writing on from a prompt by drawing token after token. Knows ids and logits, nothing of text.

R rows (one here), T tokens given at once, V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.generator import Generator
from clearhead.errors import DecodingError

NEVER = float("-inf")


@dataclass(frozen=True)
class Drawn:
    """One token, and its log-probability under the model itself: before temperature and filters."""

    token: int
    log_prob: float


def soften(logits_V: Tensor, temperature: float) -> Tensor:
    """Below 1 the likely tokens gain, above 1 the unlikely ones."""
    return logits_V / temperature


def keep_top_k(logits_V: Tensor, top_k: int) -> Tensor:
    """Only the `top_k` likeliest tokens, and those equal to the last of them; 0 keeps all."""
    if not top_k:
        return logits_V
    least = logits_V.topk(min(top_k, len(logits_V))).values[-1]
    return logits_V.masked_fill(logits_V < least, NEVER)


def keep_top_p(logits_V: Tensor, top_p: float) -> Tensor:
    """The fewest likeliest tokens that have the probability `top_p` together; always one, 1 keeps all."""
    if top_p >= 1:
        return logits_V
    p_V, order_V = logits_V.softmax(-1).sort(descending=True, stable=True)
    before_V = p_V.cumsum(-1) - p_V
    is_left_out_V = before_V >= top_p
    is_left_out_V[0] = False
    return logits_V.masked_fill(torch.zeros_like(is_left_out_V).scatter(0, order_V, is_left_out_V), NEVER)


def draw(logits_V: Tensor, settings: SamplingConfig, rng: np.random.Generator) -> int:
    """A token from the filtered distribution, by its inverse cumulative function; temperature 0 takes the likeliest."""
    if settings.temperature == 0:
        return int(logits_V.argmax())
    logits_V = soften(logits_V.double(), settings.temperature)
    p_V = keep_top_p(keep_top_k(logits_V, settings.top_k), settings.top_p).softmax(-1).numpy()
    cumulative_V = p_V.cumsum()
    found = int(np.searchsorted(cumulative_V, rng.random() * cumulative_V[-1], side="right"))
    return min(found, int(np.flatnonzero(p_V)[-1]))  # rounding must not lead to a token that was left out


@torch.inference_mode()
def sample(
    generator: Generator[Any, Any],
    prompt: Sequence[int],
    settings: SamplingConfig,
    context: int,
    end_id: int,
    never: Sequence[int] = (),
    number: int = 0,
) -> Iterator[Drawn]:
    """Tokens that follow the prompt, the end token included if it comes; at most `settings.max_tokens`.

    The same seed and `number` of the sample give the same tokens. Tokens in `never` are not drawn. Where more tokens
    than `context` have come together, the model goes on from the last half of them: what came before is forgotten.
    """
    if not 1 <= len(prompt) <= context:
        raise DecodingError(f"expected a prompt of 1 to {context:,} tokens, got {len(prompt):,}; shorten it")
    rng = np.random.default_rng([settings.seed, number])
    ids = list(prompt)
    seen, (logits_V, state) = len(ids), _read(generator, ids)
    for left in reversed(range(settings.max_tokens)):
        allowed_V = logits_V.clone()
        allowed_V[list(never)] = NEVER
        token = draw(allowed_V, settings, rng)
        yield Drawn(token, float(logits_V.double().log_softmax(-1)[token]))
        if token == end_id or not left:
            return
        ids.append(token)
        if seen < context:
            seen, step = seen + 1, generator.step(torch.tensor([[token]]), state)
            logits_V, state = step.logits_RTV[0, -1], step.state
        else:
            ids = ids[-max(1, context // 2) :]
            seen, (logits_V, state) = len(ids), _read(generator, ids)


def _read(generator: Generator[Any, Any], ids: Sequence[int]) -> tuple[Tensor, Any]:
    """logits_V of what follows these tokens, and the state behind them."""
    first_RT, state = generator.start(generator.encode(torch.tensor([ids])), 1)
    step = generator.step(first_RT, state)
    return step.logits_RTV[0, -1], step.state
