"""Networks with fresh weights to probe, and how to ask them for gradients at their embeddings.

B batch, T places, D model width
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import build
from clearhead.model.registry import build_model
from clearhead.tasks.registry import get_task

VOCABULARY = 101  # of networks that read random ids; the first four are special
FIRST_ID = 4


def fresh(task: str, seed: int, model: Mapping[str, Any]) -> Any:
    """The network of a task as training would begin with it, without dropout."""
    known: dict[str, Any] = {"vocab_size": VOCABULARY, "dropout": 0.0, **model}
    config = build({"model": known}, base=get_task(task).base)
    torch.manual_seed(seed)
    return build_model(config.model).eval()


def random_ids(batch: int, length: int, seed: int) -> Tensor:
    """ids_BT without special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_ID, VOCABULARY, (batch, length), generator=generator)


@contextmanager
def leaves(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """While it lasts, what an embedding gives is kept, each time as a leaf that takes a gradient."""
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, x_BTD: Tensor) -> Tensor:
        kept.append(x_BTD.detach().requires_grad_())
        return kept[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        yield kept
    finally:
        handle.remove()
