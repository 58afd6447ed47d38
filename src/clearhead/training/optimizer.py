"""The optimiser, and what it remembers of a run as tensors by name."""

import torch
from torch import nn

from clearhead.config import TrainingConfig
from clearhead.errors import BundleError
from clearhead.model.weights import Weights


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay; its learning rate is set at every update."""
    return torch.optim.AdamW(
        model.parameters(),
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def moments(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """The tensors themselves, not copies: both moments and the number of updates of each weight that had one."""
    return {
        f"{name}:{key}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(optimizer: torch.optim.Optimizer, model: nn.Module, kept: Weights) -> None:
    """Puts back what `moments` gave."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in kept.items():
        name, _, part = key.rpartition(":")
        if name not in parameters or tensor.shape not in (parameters[name].shape, torch.Size([])):
            raise BundleError(f"the state of the optimiser does not fit the model: {key}")
        optimizer.state[parameters[name]][part] = tensor
