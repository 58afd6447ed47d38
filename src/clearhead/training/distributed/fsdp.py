"""Weights, gradients and moments divided among the processes (FSDP2), for models that one cannot train alone.

Each process keeps a part of every weight. The whole weights of a layer are put together when it computes and given up
again behind it; the gradients are summed over the processes and divided again on the way back. On GPUs by NCCL, on CPUs
by gloo. The first process has a second network with all weights, which holds no gradients: in it the weights are
validated.
"""

import copy
import warnings
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from clearhead.model.decoder import DecoderLayer
from clearhead.model.encoder import TransformerLayer
from clearhead.model.parameters import Weights
from clearhead.training.distributed.process_group import ProcessGroup


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
