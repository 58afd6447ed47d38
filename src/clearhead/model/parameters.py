"""Named weights of a network; a tied weight is listed once, under its first name."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clearhead.errors import BundleError

Weights = dict[str, Tensor]


def named_weights(model: nn.Module) -> Weights:
    """Return the weights and saved buffers, not copied."""
    saved = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    return {**dict(model.named_parameters()), **buffers}


def tied_names(model: nn.Module) -> dict[str, str]:
    """Return a dictionary from each further name of a tied weight to its first name."""
    first = {id(tensor): name for name, tensor in named_weights(model).items()}
    return {
        name: first[id(tensor)]
        for name, tensor in model.state_dict(keep_vars=True).items()
        if first[id(tensor)] != name
    }


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters; tied ones are counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def snapshot(model: nn.Module) -> Weights:
    """Return a copy of the weights."""
    return {name: tensor.detach().clone() for name, tensor in named_weights(model).items()}


@torch.no_grad()
def restore(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a network; raise BundleError if one is missing, unknown or of another shape.

    `weights` may contain a tied weight under several names if the values are equal.
    """
    model_weights, tied = named_weights(model), tied_names(model)
    missing, unknown = model_weights.keys() - weights.keys(), weights.keys() - model_weights.keys() - tied.keys()
    if missing or unknown:
        raise BundleError(f"the weights do not fit the config: missing {sorted(missing)}, unknown {sorted(unknown)}")
    for name, tensor in model_weights.items():
        if tensor.shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
            raise BundleError(f"the weights do not fit the config: {name} has shape {shapes}")
    for name, first in tied.items():
        if name in weights and weights[name] is not weights[first] and not torch.equal(weights[name], weights[first]):
            raise BundleError(f"the weights do not fit the config: {name} must be tied to {first}, but differs from it")
    for name, tensor in model_weights.items():
        tensor.copy_(weights[name])


@torch.no_grad()
def load_matching(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy weights that match by name and shape, and return the names of those that keep their initial values."""
    initial = []
    for name, tensor in named_weights(model).items():
        if name in weights and weights[name].shape == tensor.shape:
            tensor.copy_(weights[name])
        else:
            initial.append(name)
    return initial
