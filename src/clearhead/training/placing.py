"""Where the network of a training lies: on a device, whole or divided, its layers kept or computed again."""

from dataclasses import dataclass

import torch
from torch import nn

from clearhead.config import TrainingConfig
from clearhead.model.encoder import Stack
from clearhead.training.events import Watcher
from clearhead.training.processes import Processes
from clearhead.training.sharding import shard


@dataclass(frozen=True)
class Placed:
    """The network that is trained, and the one that its weights are validated in: the same, unless they are sharded."""

    model: nn.Module
    whole: nn.Module


def capabilities() -> dict[str, object]:
    """What the CPU can do, as torch tells; nothing where it does not."""
    return dict(getattr(torch.cpu, "get_capabilities", dict)())


def lacks_bfloat16(can: dict[str, object]) -> bool:
    """Whether a CPU is known to multiply bfloat16 only by way of float32."""
    return can.get("architecture") == "x86_64" and not (can.get("avx512_bf16") or can.get("amx_bf16"))


def place(model: nn.Module, config: TrainingConfig, processes: Processes, watcher: Watcher) -> Placed:
    """Makes a network ready to be trained, in place."""
    for module in model.modules():
        if isinstance(module, Stack):
            module.recomputes = config.activation_checkpointing
    if config.precision == "bfloat16" and processes.device.type == "cpu" and lacks_bfloat16(capabilities()):
        watcher.message(
            "training.precision=bfloat16: this CPU has no instructions for it and computes it by others; "
            "float32 is likely to be faster"
        )
    if config.sharding == "full" and processes.count > 1:
        return Placed(model, shard(model, processes))
    if config.sharding == "full":
        watcher.message("training.sharding=full: one process has no other to share with; start several with torchrun")
    model.to(processes.device)
    return Placed(model, model)
