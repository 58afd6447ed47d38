"""Where the network of a training lies: on a device, whole or divided, its layers kept or computed again."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from clearhead.config import TrainingConfig
from clearhead.kernels import replay_dropout
from clearhead.model.encoder import TransformerLayer
from clearhead.training.distributed.fsdp import shard
from clearhead.training.distributed.process_group import ProcessGroup
from clearhead.training.loop.callbacks import Callback


@dataclass(frozen=True)
class PlacedModel:
    """The network that is trained, and the one that its weights are validated in: the same, unless they are sharded."""

    model: nn.Module
    whole: nn.Module


def capabilities() -> dict[str, object]:
    """What the CPU can do, as torch tells; nothing where it does not."""
    return dict(getattr(torch.cpu, "get_capabilities", dict)())


def lacks_bfloat16(can: dict[str, object]) -> bool:
    """Whether a CPU is known to multiply bfloat16 only by way of float32."""
    return can.get("architecture") == "x86_64" and not (can.get("avx512_bf16") or can.get("amx_bf16"))


def place_model(model: nn.Module, config: TrainingConfig, processes: ProcessGroup, watcher: Callback) -> PlacedModel:
    """Makes a network ready to be trained, in place."""
    if config.activation_checkpointing:
        recompute_layers(model)
    if config.precision == "bfloat16" and processes.device.type == "cpu" and lacks_bfloat16(capabilities()):
        watcher.message(
            "training.precision=bfloat16: this CPU has no instructions for it and computes it by others; "
            "float32 is likely to be faster"
        )
    if config.sharding == "full" and processes.count > 1:
        return PlacedModel(model, shard(model, processes))
    if config.sharding == "full":
        watcher.message("training.sharding=full: one process has no other to share with; start several with torchrun")
    model.to(processes.device)
    return PlacedModel(model, model)


def recompute_layers(model: nn.Module) -> None:
    """Let the backward pass compute each Transformer layer again, instead of keeping its activations."""
    for module in model.modules():
        if isinstance(module, TransformerLayer):
            module.forward = partial(_recompute, module.forward)


def _recompute(forward: Any, *inputs: Any) -> Any:
    """Compute a layer without keeping its activations; computed again, it drops the same values."""
    if not (forward.__self__.training and torch.is_grad_enabled()):
        return forward(*inputs)
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=replay_dropout)
