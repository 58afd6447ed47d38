"""Placement of a model: device, activation checkpointing and sharded weights (FSDP2).

Sharding divides weights, gradients and optimizer state among the processes, for models that do not fit into one. The
weights of a layer are gathered while the layer computes and freed afterwards; gradients are summed over the processes
and divided again in the backward pass, with NCCL on GPUs and gloo on CPUs. Rank 0 has a second model with all weights
and without gradients, which is used for validation.
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


@dataclass(frozen=True)
class PlacedModel:
    """The model for training and the model for validation, which are identical unless the weights are sharded."""

    model: nn.Module
    validation_model: nn.Module


def cpu_capabilities() -> dict[str, object]:
    """Return the CPU's capabilities as torch reports them; empty where torch does not report any."""
    return dict(getattr(torch.cpu, "get_capabilities", dict)())


def lacks_bfloat16(cpu: dict[str, object]) -> bool:
    """Return whether an x86 CPU has no bfloat16 instructions, so that torch emulates them in float32."""
    return cpu.get("architecture") == "x86_64" and not (cpu.get("avx512_bf16") or cpu.get("amx_bf16"))


def place_model(model: nn.Module, config: TrainingConfig, group: ProcessGroup, callback: Callback) -> PlacedModel:
    """Move a model to its device, in place, and set up activation checkpointing and sharding."""
    if config.activation_checkpointing:
        recompute_layers(model)
    if config.precision == "bfloat16" and group.device.type == "cpu" and lacks_bfloat16(cpu_capabilities()):
        callback.message(
            "training.precision=bfloat16: this CPU has no instructions for bfloat16 and emulates it; "
            "float32 is likely to be faster"
        )
    if config.sharding == "full" and group.world_size > 1:
        return PlacedModel(model, shard(model, group))
    if config.sharding == "full":
        callback.message("training.sharding=full has no effect in a single process; start several with torchrun")
    model.to(group.device)
    return PlacedModel(model, model)


def recompute_layers(model: nn.Module) -> None:
    """Set up activation checkpointing: the backward pass recomputes the activations of each Transformer layer."""
    for module in model.modules():
        if isinstance(module, TransformerLayer):
            module.forward = partial(_recompute, module.forward)


def _recompute(forward: Any, *inputs: Any) -> Any:
    """Run a layer without storing its activations; the recomputation uses the same dropout masks."""
    if not (forward.__self__.training and torch.is_grad_enabled()):
        return forward(*inputs)
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=replay_dropout)


def shard(model: nn.Module, group: ProcessGroup) -> nn.Module:
    """Shard a model's weights in place; return an unsharded copy on rank 0, and the model itself elsewhere.

    Each attention layer is one FSDP unit, and everything else is another. The decoder computes keys and values of the
    source outside of the layer's forward pass, so cross-attention is a separate unit.
    """
    whole = copy.deepcopy(model) if group.is_rank0 else model
    mesh = group.mesh
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # no layer modifies a view in place
    for module in list(model.modules()):
        if isinstance(module, DecoderLayer):
            _shard_unit(module.cross_attention, mesh)
            for method in ("queries", "keys_values"):
                register_fsdp_forward_method(module.cross_attention, method)
        if isinstance(module, TransformerLayer):
            _shard_unit(module, mesh)
    _shard_unit(model, mesh)
    return whole


def _shard_unit(module: nn.Module, mesh: Any) -> None:
    """Shard one module; gradients are summed, not averaged, because losses are divided by the tokens of all ranks."""
    unit = fully_shard(module, mesh=mesh)
    unit.set_gradient_divide_factor(1.0)
    unit.set_force_sum_reduction_for_comms(True)


def gather_parameters(tensors: Weights, group: ProcessGroup) -> Weights:
    """Return the unsharded tensors on rank 0 and an empty dictionary on other ranks; all processes must call this."""
    gathered: Weights = {}
    for name, tensor in tensors.items():
        whole = whole_tensor(tensor.detach())
        if group.is_rank0:
            gathered[name] = whole.cpu() if isinstance(tensor, DTensor) else whole
    return gathered


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the unsharded tensor; all processes must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
