"""What a model would have written, had it once chosen otherwise: search that goes on behind given tokens.

R rows, T tokens given at once, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.search import Job, find
from clearhead.errors import InspectionError
from clearhead.inspection.tracing import Given
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class _Step:
    """A step of a generator, with other logits."""

    logits_RTV: Tensor
    attention: Sequence[Any] | None
    state: Any


class Prefixed:
    """A generator that starts behind tokens which are already written."""

    def __init__(self, network: Any, prefix: Sequence[int], never: int) -> None:
        self.network = network
        self.prefix = list(prefix)
        self.never = never  # the start token: search bans it only where rows start from it alone

    def encode(self, src: Tensor) -> Any:
        """The sources, read once."""
        return self.network.encode(src)

    def start(self, memory: Any, width: int) -> tuple[Tensor, Any]:
        """What every row starts from, and the tokens behind it."""
        first_RT, state = self.network.start(memory, width)
        prefix_RT = torch.tensor([self.prefix], dtype=first_RT.dtype).expand(len(first_RT), -1)
        return torch.cat((first_RT, prefix_RT), 1), state

    def step(self, tokens_RT: Tensor, state: Any, want_attention: bool = False) -> _Step:
        """As the generator's, without the start token."""
        step = self.network.step(tokens_RT, state, want_attention)
        logits_RTV = step.logits_RTV.clone()
        logits_RTV[..., self.never] = float("-inf")
        return _Step(logits_RTV, step.attention, step.state)

    def widen(self, state: Any, width: int) -> Any:
        """Where each sentence has one row: `width` of them."""
        return self.network.widen(state, width)

    def select(self, state: Any, rows_R: Tensor) -> Any:
        """These rows in this order."""
        return self.network.select(state, rows_R)


def go_on_from(model: LoadedModel, given: Given, prefix: Sequence[int], settings: DecodingConfig) -> list[int]:
    """The prefix and the best that search finds behind it, with the end token where it is written."""
    config = model.config.model
    if hasattr(model.network, "reader"):
        raise InspectionError(
            f"a model for the task {model.config.task} writes nothing: there is nothing to go on from"
        )
    if not prefix or not all(0 <= token < config.vocab_size for token in prefix):
        raise InspectionError(f"expected one or more tokens from 0 to {config.vocab_size - 1}, got {list(prefix)}")
    with torch.inference_mode():
        first_RT, _ = model.network.start(model.network.encode(given.src), 1)
    room = config.max_positions - first_RT.shape[1] + 1
    limit = min(settings.longest(given.length), room) - len(prefix)
    if prefix[-1] == config.eos_id or limit < 1:
        return list(prefix)
    generator = Prefixed(
        model.network, prefix, config.decoder_start_id if config.decoder_start_id != config.eos_id else config.pad_id
    )
    [found] = find(Job(generator, given.src, settings, [limit], config.eos_id, config.pad_id))
    if not found.hypotheses:
        raise InspectionError("the model gives no finite probabilities, as one does whose training diverged")
    best = found.hypotheses[0]
    return [*prefix, *best.tokens, *[config.eos_id] * (best.finish_reason == "end")]
