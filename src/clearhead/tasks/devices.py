"""Batches on the device of a network: tasks make them on the CPU."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")


def device_of(network: Any) -> torch.device:
    """Where a network computes; what has no weights computes on the CPU."""
    weights = network.parameters() if isinstance(network, nn.Module) else iter(())
    first = next(weights, None)
    return torch.device("cpu") if first is None else first.device


def on_device(batch: Batch, device: torch.device) -> Batch:
    """A tensor, or a record or tuple of tensors, on this device; what is there already is not copied."""
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
