"""Where the network of a training lies: on a device, whole or divided, its layers kept or computed again.

Weights, gradients and moments divided among the processes (FSDP2), for models that one cannot train alone.

Each process keeps a part of every weight. The whole weights of a layer are put together when it computes and given up
again behind it; the gradients are summed over the processes and divided again on the way back. On GPUs by NCCL, on CPUs
by gloo. The first process has a second network with all weights, which holds no gradients: in it the weights are
validated.
"""

import copy
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from clearhead.config import TrainingConfig
from clearhead.kernels import replay_dropout
from clearhead.model.decoder import DecoderLayer
from clearhead.model.encoder import TransformerLayer
from clearhead.model.parameters import Weights
from clearhead.training.distributed.process_group import ProcessGroup
from clearhead.training.loop.callbacks import Callback


def shard(model: nn.Module, processes: ProcessGroup) -> nn.Module:
    """Divides the weights of the network, and gives a network of the same weights that is whole.

    Layers of attention are a unit each, everything else is one. The decoder asks a layer for keys and values of the
    source outside the layer's own call, so that attention to the source is a unit by itself.
    """
    whole = copy.deepcopy(model) if processes.is_first else model
    mesh = processes.mesh
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # layers change nothing in place
    for module in list(model.modules()):
        if isinstance(module, DecoderLayer):
            _unit(module.cross_attention, mesh)
            for method in ("queries", "keys_values"):
                register_fsdp_forward_method(module.cross_attention, method)
        if isinstance(module, TransformerLayer):
            _unit(module, mesh)
    _unit(model, mesh)
    return whole


def _unit(module: nn.Module, mesh: Any) -> None:
    """Gradients are summed, not averaged: a loss is divided by the tokens of all processes."""
    unit = fully_shard(module, mesh=mesh)
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)


def gather_parameters(tensors: Weights, processes: ProcessGroup) -> Weights:
    """Whole tensors, which all processes put together; only the first one keeps those that were divided."""
    found: Weights = {}
    for name, tensor in tensors.items():
        whole = whole_tensor(tensor.detach())
        if processes.is_first:
            found[name] = whole.cpu() if isinstance(tensor, DTensor) else whole
    return found


def whole_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or what the processes have of it put together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


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
