"""A network's weights by name, each once: tied weights go under the first of their names."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clearhead.errors import BundleError

Weights = dict[str, Tensor]


def named_weights(model: nn.Module) -> Weights:
    """The weights and saved buffers themselves, not copies."""
    saved = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    return {**dict(model.named_parameters()), **buffers}


def count_parameters(module: nn.Module) -> int:
    """Numbers to learn, each counted once however many names it has."""
    return sum(parameter.numel() for parameter in module.parameters())


def snapshot(model: nn.Module) -> Weights:
    """A copy of the weights that later updates do not touch."""
    return {name: tensor.detach().clone() for name, tensor in named_weights(model).items()}


@torch.no_grad()
def restore(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Puts weights into a network of the same shape; what is missing, too much or of another shape is named."""
    own = named_weights(model)
    missing, unknown = [*(own.keys() - weights.keys())], [*(weights.keys() - own.keys())]
    if missing or unknown:
        raise BundleError(f"the weights do not fit the config: missing {sorted(missing)}, unknown {sorted(unknown)}")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
            raise BundleError(f"the weights do not fit the config: {name} has shape {shapes}")
        tensor.copy_(weights[name])


@torch.no_grad()
def take_over(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Puts in what fits by name and shape, leaves the rest of the network fresh, and names what was left fresh."""
    fresh = []
    for name, tensor in named_weights(model).items():
        if name in weights and weights[name].shape == tensor.shape:
            tensor.copy_(weights[name])
        else:
            fresh.append(name)
    return fresh
