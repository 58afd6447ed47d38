"""Dropout whose masks cost almost nothing to draw.

`torch.nn.functional.dropout` draws one double per value from a serial generator: a third of the time of a small model's
training step on a CPU. Here a mask is drawn as raw random bytes (SFC64), one per value, and a value is kept if its byte
is at least `256 * rate`: the rate is rounded to 1/256, and kept values are scaled by the inverse of the rounded keep
rate, so that the mean is unchanged. On a GPU torch draws the bytes, seeded by one word of the same generator.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function

from clearhead.kernels.switch import is_enabled

_LEVELS = 256
_CPU = torch.device("cpu")
_generator: ContextVar[np.random.Generator | None] = ContextVar("dropout_generator", default=None)


@contextmanager
def dropout_seed(*words: int) -> Iterator[None]:
    """Seed the generator of this thread's masks inside the block by these words (seed, step, replica, ...)."""
    token = _generator.set(np.random.Generator(np.random.SFC64(list(words))))
    try:
        yield
    finally:
        _generator.reset(token)


def replay_dropout() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return two contexts for `torch.utils.checkpoint`; the second draws the same masks as the first."""
    state: Any = _current_generator().bit_generator.state

    @contextmanager
    def draw_from_state() -> Iterator[None]:
        bits = np.random.SFC64(0)
        bits.state = state
        token = _generator.set(np.random.Generator(bits))
        try:
            yield
        finally:
            _generator.reset(token)

    # Inside `dropout_seed`, the first pass draws from the current generator, so that later layers get other masks.
    first = draw_from_state() if _generator.get() is None else nullcontext()
    return first, draw_from_state()


def _current_generator() -> np.random.Generator:
    generator = _generator.get()
    if generator is None:  # outside of a training step: seeded by torch, so that torch.manual_seed has an effect
        return np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
    return generator


def keep_mask(shape: torch.Size, rate: float, device: torch.device = _CPU) -> Tensor:
    """Return a float mask: 0 for dropped values, 1 / (1 - rounded rate) for the others; its expectation is 1."""
    dropped_levels = min(round(rate * _LEVELS), _LEVELS - 1)
    draw = _draw_on_cpu if device.type == "cpu" else _draw_by_torch
    mask = draw(shape, dropped_levels, device).to(torch.float32)
    return mask.mul_(_LEVELS / (_LEVELS - dropped_levels)).view(shape)


def _draw_on_cpu(shape: torch.Size, dropped_levels: int, device: torch.device) -> Tensor:
    count = shape.numel()
    words = _current_generator().bit_generator.random_raw(-(-count // 8))
    is_kept = words.view(np.uint8)[:count] >= dropped_levels
    return torch.from_numpy(is_kept.view(np.int8))


def _draw_by_torch(shape: torch.Size, dropped_levels: int, device: torch.device) -> Tensor:
    seed = int(_current_generator().bit_generator.random_raw()) >> 1
    generator = torch.Generator(device).manual_seed(seed)
    levels = torch.randint(_LEVELS, shape, dtype=torch.uint8, device=device, generator=generator)
    return levels >= dropped_levels


def dropout(x: Tensor, rate: float) -> Tensor:
    """Return dropout(x); the rate is rounded to a multiple of 1/256, at most 255/256."""
    return (x * _mask_for(x, rate)).to(_result_dtype(x)) if round(rate * _LEVELS) else x


def add_dropout(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """Return x + dropout(y), in one pass."""
    if not round(rate * _LEVELS):
        return x + y
    mask, dtype = _mask_for(y, rate), torch.promote_types(x.dtype, _result_dtype(y))
    if not is_enabled():
        return (x + y * mask).to(dtype)
    total: Tensor = _AddDropout.apply(x, y, mask)  # type: ignore[no-untyped-call]
    return total.to(dtype)


def _mask_for(x: Tensor, rate: float) -> Tensor:
    """Return a mask in at least float32: bfloat16 would round the factor too far from the one that keeps the mean."""
    return keep_mask(x.shape, rate, x.device).to(torch.promote_types(x.dtype, torch.float32))


def _result_dtype(x: Tensor) -> torch.dtype:
    """Return the type of x; under autocast at least float32, so that the scaled values are not rounded."""
    return torch.promote_types(x.dtype, torch.float32) if torch.is_autocast_enabled(x.device.type) else x.dtype


class _AddDropout(Function):
    """x + mask * y in one pass forward and one multiplication backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(x, y, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grads[0], grads[0] * mask, None
