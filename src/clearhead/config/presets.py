"""Named settings, overridden by those that the user gives."""

from collections.abc import Mapping
from typing import Any


def _shape(
    layers: int, model_dim: int, feed_forward_dim: int, num_heads: int, dropout: float, norm: str
) -> dict[str, Any]:
    """Return the model section of a preset."""
    return {
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "model_dim": model_dim,
        "feed_forward_dim": feed_forward_dim,
        "num_heads": num_heads,
        "dropout": dropout,
        "norm_placement": norm,
    }


# Rules of thumb, not tuned: the small models are pre-norm, which tolerates a short warmup and a high learning rate.
_SMALL_TRAINING = {"learning_rate": 0.003, "warmup": 1000, "cooldown": 0.3}
_PAPER: dict[str, dict[str, Any]] = {
    "tokenizer": {"vocab_size": 37000},
    "training": {"batch_tokens": 25000, "warmup": 4000, "clip_norm": 0.0},
    "decoding": {"length_penalty_form": "gnmt"},
}
_BERT = {
    "family": "encoder",
    "head": "masked_lm",
    "norm_epsilon": 1e-12,
    "activation": "gelu",
    "positions": "learned",
    "max_positions": 512,
    "scale_embeddings": False,
    "embedding_norm": True,
    "num_segments": 2,
    "pooling": "first",
    "pooler": True,
}
_BERT_DATA: dict[str, dict[str, Any]] = {"tokenizer": {"vocab_size": 30522}, "data": {"max_tokens": 512}}
_GPT2 = {
    "family": "decoder",
    "activation": "gelu_tanh",
    "positions": "learned",
    "max_positions": 1024,
    "scale_embeddings": False,
}
_T5 = {
    "norm": "rms",
    "norm_epsilon": 1e-6,
    "bias": False,
    "positions": "relative",
    "scale_attention": False,
    "scale_embeddings": False,
    "scale_output": True,
}
_VIT = {
    "family": "vit",
    "head": "classification",
    "norm_epsilon": 1e-12,
    "activation": "gelu",
    "positions": "learned",
    "pooling": "first",
    "patch_size": 16,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"model": _shape(4, 128, 256, 4, 0.3, "pre"), "training": _SMALL_TRAINING},
    "small": {"model": _shape(3, 256, 1024, 4, 0.1, "pre"), "training": {**_SMALL_TRAINING, "learning_rate": 0.001}},
    "paper-base": {**_PAPER, "model": _shape(6, 512, 2048, 8, 0.1, "post")},
    "paper-big": {
        **_PAPER,
        "model": _shape(6, 1024, 4096, 16, 0.3, "post"),
        "training": {**_PAPER["training"], "average_checkpoints": 20},
    },
    "bert-base": {**_BERT_DATA, "model": {**_shape(12, 768, 3072, 12, 0.1, "post"), **_BERT}},
    "bert-large": {**_BERT_DATA, "model": {**_shape(24, 1024, 4096, 16, 0.1, "post"), **_BERT}},
    "gpt2": {
        "tokenizer": {"vocab_size": 50257},
        "data": {"max_tokens": 1024},
        "model": {**_shape(12, 768, 3072, 12, 0.1, "pre"), **_GPT2},
    },
    "vit-tiny": {"model": {**_shape(12, 192, 768, 3, 0.1, "pre"), **_VIT}},
    "t5-small": {"tokenizer": {"vocab_size": 32128}, "model": {**_shape(6, 512, 2048, 8, 0.1, "pre"), **_T5}},
}
