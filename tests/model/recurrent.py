"""Small recurrent networks with large random weights."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig

# N sentences, S source length, T target length, D model width, V vocabulary: distinct primes
N, S, T, D, V = 3, 7, 5, 11, 23


LENGTHS = [5, 7, 2]


PAD, START, END = 0, 2, 3


FAMILIES = ["rnn", "gru", "lstm"]


KERNELS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def config(family: str, attention: str = "none", bidirectional: bool = False, **options: Any) -> ModelConfig:
    """Return sizes in which no two axes are equal."""
    return ModelConfig.model_validate(
        {"family": family, "attention": attention, "bidirectional": bidirectional, "num_encoder_layers": 2,
         "num_decoder_layers": 3, "model_dim": D, "num_heads": 1, "vocab_size": V, **options}
    )  # fmt: skip


Module = TypeVar("Module", bound=nn.Module)


def loud(module: Module) -> Module:
    """Return the network with noise on every weight, including biases."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return module


def ids(rows: int, length: int) -> Tensor:
    """Return random tokens that are not special."""
    return torch.randint(4, V, (rows, length))


def padded() -> Tensor:
    """Return sources of different lengths."""
    src_NS = ids(N, S)
    for row, length in enumerate(LENGTHS):
        src_NS[row, length:] = PAD
    return src_NS
