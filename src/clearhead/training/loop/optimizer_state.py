"""The optimiser, and what it remembers of a run as tensors by name: its moments, and a moving mean of the weights."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from clearhead.config import TrainingConfig
from clearhead.errors import BundleError
from clearhead.model.parameters import Weights, named_weights

EMA = "ema"
_WARM = 10  # the first updates count less: with a decay of (1 + n) / (10 + n) the beginning is soon forgotten


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay; its learning rate is set at every update."""
    return torch.optim.AdamW(
        model.parameters(),
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """The tensors themselves, not copies: both moments and the number of updates of each weight that had one."""
    return {
        f"{name}:{key}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, kept: Weights) -> None:
    """Puts back what `moments` gave; where the weights are sharded, each process takes its part."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in kept.items():
        name, _, part = key.rpartition(":")
        if name not in parameters or tensor.shape not in (parameters[name].shape, torch.Size([])):
            raise BundleError(f"the state of the optimiser does not fit the model: {key}")
        optimizer.state[parameters[name]][part] = _like(tensor, parameters[name])


def _like(tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    """On the device of the weight, and sharded as it is; the number of updates stays where it is."""
    if not tensor.dim():
        return tensor
    if isinstance(parameter.data, DTensor):
        whole, mesh = tensor.to(parameter.data.device), parameter.data.device_mesh
        return distribute_tensor(whole, mesh, parameter.data.placements, src_data_rank=None)
    return tensor.to(parameter.device)


@torch.no_grad()
def update_ema(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Moves the mean of each weight towards the weight as update `step` left it; the first one begins it."""
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]
               if optimizer.state.get(parameter)]  # fmt: skip
    for parameter in weights:
        optimizer.state[parameter].setdefault(EMA, parameter.detach().clone())
    means = [optimizer.state[parameter][EMA] for parameter in weights]
    torch._foreach_lerp_(means, weights, 1 - min(decay, (1 + step) / (_WARM + step)))


def ema_weights(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """The mean of each weight; what has none, such as running figures of norms, as it is. Tensors, not copies."""
    return {
        name: optimizer.state.get(tensor, {}).get(EMA, tensor) if isinstance(tensor, nn.Parameter) else tensor
        for name, tensor in named_weights(model).items()
    }
