"""A torch network at inference: its device, batches on that device, and evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")


def device_of(network: Any) -> torch.device:
    """Return the device of the network's parameters; the CPU if it has none."""
    parameters = network.parameters() if isinstance(network, nn.Module) else iter(())
    first = next(parameters, None)
    return torch.device("cpu") if first is None else first.device


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Return a tensor, or a dataclass or tuple of tensors, on this device; not copied if it is there already."""
    found: Any = batch
    if device.type == "cpu":
        return batch
    if isinstance(found, Tensor):
        found = found.to(device, non_blocking=True)
    elif isinstance(found, tuple):
        found = tuple(on_device(part, device) for part in found)
    elif is_dataclass(found) and not isinstance(found, type):
        moved = {field.name: on_device(getattr(found, field.name), device) for field in fields(found)}
        found = replace(found, **moved)
    return found  # type: ignore[no-any-return]


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """Compute without gradients and dropout, also in the middle of a training."""
    is_training = isinstance(network, nn.Module) and network.training
    with torch.inference_mode():
        if is_training:
            network.eval()
        try:
            yield
        finally:
            if is_training:
                network.train()
