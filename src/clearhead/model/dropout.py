"""Dropout whose masks cost almost nothing to draw.

`torch.nn.functional.dropout` draws one double a value from a serial generator: a third of the time of a small
model's training step on a CPU. Here a mask is drawn as raw random bytes (SFC64), one a value, and a value stays
if its byte is at least `256 * rate`: the rate is rounded to 1/256 and the kept values are rescaled by exactly
that rounded rate, so the expectation is unbiased. On a GPU torch draws the bytes there, seeded by one word of the same
generator.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function

_LEVELS = 256
_CPU = torch.device("cpu")
_generator: ContextVar[np.random.Generator | None] = ContextVar("dropout_generator", default=None)


@contextmanager
def dropout_seed(*words: int) -> Iterator[None]:
    """Masks drawn inside are a pure function of these words (seed, step, replica, ...), in any process and thread."""
    token = _generator.set(np.random.Generator(np.random.SFC64(list(words))))
    try:
        yield
    finally:
        _generator.reset(token)


def replaying() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Two contexts, of which the second draws the masks of the first again, for `torch.utils.checkpoint`."""
    state: Any = _current().bit_generator.state

    @contextmanager
    def again() -> Iterator[None]:
        bits = np.random.SFC64(0)
        bits.state = state
        token = _generator.set(np.random.Generator(bits))
        try:
            yield
        finally:
            _generator.reset(token)

    return nullcontext(), again()


def _current() -> np.random.Generator:
    generator = _generator.get()
    if generator is None:  # outside a training step: seeded by torch, so that torch.manual_seed governs it too
        generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
        _generator.set(generator)
    return generator


def keep_mask(shape: torch.Size, rate: float, device: torch.device = _CPU) -> Tensor:
    """A float mask, 0 for dropped values and 1 / (1 - rounded rate) for kept ones; the mean of its values is 1."""
    dropped_levels = round(rate * _LEVELS)
    draw = _drawn_on_cpu if device.type == "cpu" else _drawn_by_torch
    mask = draw(shape, dropped_levels, device).to(torch.float32)
    return mask.mul_(_LEVELS / (_LEVELS - dropped_levels)).view(shape)


def _drawn_on_cpu(shape: torch.Size, dropped_levels: int, device: torch.device) -> Tensor:
    count = shape.numel()
    words = _current().bit_generator.random_raw(-(-count // 8))
    kept = words.view(np.uint8)[:count] >= dropped_levels
    return torch.from_numpy(kept.view(np.int8))


def _drawn_by_torch(shape: torch.Size, dropped_levels: int, device: torch.device) -> Tensor:
    seed = int(_current().bit_generator.random_raw()) >> 1
    generator = torch.Generator(device).manual_seed(seed)
    levels = torch.randint(_LEVELS, shape, dtype=torch.uint8, device=device, generator=generator)
    return levels >= dropped_levels


class _AddDropped(Function):
    """skip + mask * x in one pass forward and one multiplication backward."""

    @staticmethod
    def forward(ctx: Any, skip: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(skip, x, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grads[0], grads[0] * mask, None


def _wide(x: Tensor) -> torch.dtype:
    """The type of a mask: in bfloat16 the factor would be rounded too far from the one that keeps the mean."""
    return torch.promote_types(x.dtype, torch.float32)


class Dropout(nn.Module):
    """Drops values with probability `rate` (rounded to 1/256) while training, does nothing otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def is_active(self) -> bool:
        """Whether a call changes its input."""
        return self.training and round(self.rate * _LEVELS) > 0

    def forward(self, x: Tensor) -> Tensor:
        """x with some values dropped."""
        return x * keep_mask(x.shape, self.rate, x.device).to(_wide(x)) if self.is_active else x

    def add(self, skip: Tensor, x: Tensor) -> Tensor:
        """skip + dropout(x), the residual connection's sum, in one pass."""
        if not self.is_active:
            return skip + x
        mask = keep_mask(x.shape, self.rate, x.device).to(_wide(x))
        total: Tensor = _AddDropped.apply(skip, x, mask)  # type: ignore[no-untyped-call]
        return total
