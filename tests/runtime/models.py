"""Small random models of every architecture that the core runs."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.registry import build_model
from clearhead.runtime import CoreSearch, NativeModel, prepare
from clearhead.runtime.native_model import ComputeType

Shape = dict[str, Any]

BASE: Shape = {
    "vocab_size": 107, "num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 24, "feed_forward_dim": 37,
    "num_heads": 3, "max_positions": 64,
}  # fmt: skip
T5: Shape = {
    "norm": "rms", "bias": False, "positions": "relative", "scale_attention": False, "scale_embeddings": False,
    "scale_output": True, "gated": True, "activation": "gelu_tanh",
}  # fmt: skip
TRANSLATORS: dict[str, Shape] = {
    "paper": {},
    "post-norm": {"norm_placement": "post", "activation": "gelu", "tied_embeddings": "none", "output_bias": True},
    "t5": T5,
    "rotary": {"positions": "rotary", "norm": "sample", "activation": "silu", "embedding_norm": True},
    "learned": {"positions": "learned", "key_dim": 10, "value_dim": 7, "tied_embeddings": "input"},
    "fairseq": {
        "sinusoidal_layout": "fairseq", "tied_embeddings": "target", "source_vocab_size": 101, "model_dim": 48,
        "num_heads": 4,
    },
    "wide": {"sinusoidal_layout": "concatenated", "model_dim": 160, "num_heads": 5, "feed_forward_dim": 200},
    "no-positions": {"positions": "none", "final_norm": False, "bias": False, "scale_embeddings": False},
}  # fmt: skip
LANGUAGE_MODELS: dict[str, Shape] = {
    "gpt2": {"activation": "gelu_tanh", "positions": "learned", "scale_embeddings": False},
    "relative": {"positions": "relative", "relative_buckets": 6, "relative_max_distance": 9},
    "rotary": {"positions": "rotary", "tied_embeddings": "none"},
}
BERT: Shape = {
    "num_segments": 2, "pooler": True, "pooling": "first", "norm_placement": "post", "embedding_norm": True,
    "positions": "learned", "activation": "gelu",
}  # fmt: skip
ENCODERS: dict[str, Shape] = {
    "classifier": {"head": "classification", "num_labels": 5},
    "bert-classifier": {"head": "classification", "num_labels": 5, **BERT},
    "last-pooling": {"head": "classification", "num_labels": 2, "pooling": "last", "positions": "rotary"},
    "tagger": {"head": "token_classification", "num_labels": 7, "positions": "relative"},
    "masked": {"head": "masked_lm", **{name: value for name, value in BERT.items() if name != "pooler"}},
    "embedding": {"head": "embedding", "pooling": "mean", "norm_placement": "post"},
}


def random_model(seed: int = 0, scale: float = 0.15, **settings: Any) -> nn.Module:
    """Return a network of these settings with random weights, biases and gains included."""
    config = ModelConfig.model_validate({**BASE, **settings})
    torch.manual_seed(seed)
    network: nn.Module = build_model(config)
    for parameter in network.parameters():
        with torch.no_grad():
            parameter.add_(torch.randn(parameter.shape) * scale)
    return network.eval()


def tensors(network: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Return the tensors as a bundle holds them: tied names have one array."""
    arrays: dict[int, NDArray[np.float32]] = {}
    return {name: arrays.setdefault(tensor.data_ptr(), tensor.numpy()) for name, tensor in network.state_dict().items()}


def native(network: nn.Module, compute_type: ComputeType = "float32") -> NativeModel:
    """Return the same model in the core."""
    config = network.config
    assert isinstance(config, ModelConfig)
    return prepare(config, tensors(network), compute_type)


def random_sequences(lengths: list[int], seed: int = 0, vocab_size: int = 100) -> list[list[int]]:
    """Return sequences of random ids, special tokens excluded."""
    rng = np.random.default_rng(seed)
    return [rng.integers(4, vocab_size, length).tolist() for length in lengths]


def core_settings(beam_size: int = 4, **others: Any) -> CoreSearch:
    """Return search settings with the length penalty of the paper."""
    penalties = np.arange(70, dtype=np.float32) ** np.float32(0.6)
    penalties[0] = 1
    options = {"n_best": min(beam_size, 3), "start_id": 2, "suppressed": (0, 2), **others}
    return CoreSearch(penalties, end_id=3, beam_size=beam_size, **options)
