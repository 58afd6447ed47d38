"""Writing on from a prompt by drawing token after token. Knows ids and logits, nothing of text.

R rows (one here), T tokens given at once, V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.candidates import NEVER
from clearhead.decoding.chance import draw
from clearhead.decoding.generator import Generator
from clearhead.errors import DecodingError


@dataclass(frozen=True)
class Drawn:
    """One token, and its log-probability under the model itself: before temperature and filters."""

    token: int
    log_prob: float


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
            seen, step = seen + 1, generator.step(torch.tensor([[token]], device=_device_of(generator)), state)
            logits_V, state = step.logits_RTV[0, -1].cpu(), step.state
        else:
            ids = ids[-max(1, context // 2) :]
            seen, (logits_V, state) = len(ids), _read(generator, ids)


def _read(generator: Generator[Any, Any], ids: Sequence[int]) -> tuple[Tensor, Any]:
    """logits_V of what follows these tokens, and the state behind them."""
    first_RT, state = generator.start(generator.encode(torch.tensor([ids], device=_device_of(generator))), 1)
    step = generator.step(first_RT, state)
    return step.logits_RTV[0, -1].cpu(), step.state


def _device_of(generator: Generator[Any, Any]) -> torch.device | None:
    """Where a network computes."""
    return next(generator.parameters()).device if isinstance(generator, nn.Module) else None
