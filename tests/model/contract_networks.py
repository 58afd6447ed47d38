"""Small networks of every family, which the contract tests run.

R rows, S source length
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model.registry import build_model

V, PAD, START, END = 23, 0, 2, 3
SMALL: dict[str, Any] = {
    "vocab_size": V, "model_dim": 22, "feed_forward_dim": 29, "num_heads": 2, "num_encoder_layers": 2,
    "num_decoder_layers": 2, "dropout": 0.1, "max_positions": 64,
}  # fmt: skip
T5 = {"positions": "relative", "norm": "rms", "bias": False, "scale_attention": False, "scale_embeddings": False,
      "scale_output": True}  # fmt: skip
GENERATORS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer, post-norm": {"norm_placement": "post"},
    "transformer, rotary": {"positions": "rotary", "num_heads": 1},
    "transformer, none": {"positions": "none"},
    "transformer, batch norm": {"norm": "batch"},
    "transformer, group norm": {"norm": "group", "norm_groups": 2},
    "transformer, d_v": {"key_dim": 7, "value_dim": 5},
    "T5": {**T5},
    "T5, gated": {**T5, "gated": True, "activation": "gelu_tanh", "tied_embeddings": "none", "scale_output": False},
    "decoder": {"family": "decoder", "positions": "learned"},
    **{family: {"family": family, "attention": "none"} for family in ("rnn", "gru", "lstm")},
    **{
        f"lstm, {kind}": {"family": "lstm", "attention": kind, "bidirectional": kind == "dot"}
        for kind in ("dot", "scaled_dot", "general", "additive", "cosine")
    },
}
ENCODERS: dict[str, dict[str, Any]] = {
    "encoder": {"family": "encoder"},
    "BERT": {"family": "encoder", "positions": "learned", "num_segments": 2, "embedding_norm": True, "pooler": True,
             "scale_embeddings": False, "norm_placement": "post", "pooling": "first", "activation": "gelu"},
    "lstm": {"family": "lstm", "pooling": "last"},
    "gru, both ways": {"family": "gru", "bidirectional": True, "pooling": "mean"},
    "rnn": {"family": "rnn", "pooling": "last"},
}  # fmt: skip
ENCODER_HEADS = {
    **{f"{name}, {head}": {**settings, "head": head, "num_labels": 7}
       for name, settings in ENCODERS.items() for head in ("classification", "token_classification")},
    **{f"{name}, masked_lm": {**ENCODERS[name], "head": "masked_lm"} for name in ("encoder", "BERT")},
}  # fmt: skip
IMAGE_ENCODERS: dict[str, dict[str, Any]] = {
    "patches": {"family": "vit", "positions": "learned", "pooling": "first", "image_size": 6, "patch_size": 2},
    "convolutional": {"family": "cnn", "image_size": 6, "norm_groups": 2},
    "mlp": {"family": "mlp", "image_size": 6},
}
CAPTIONING: dict[str, Any] = {"input": "image", "image_size": 6, "patch_size": 3}
ALL = {
    **GENERATORS,
    **{f"{name}, classification": {**settings, "head": "classification", "num_labels": 7}
       for name, settings in (ENCODERS | IMAGE_ENCODERS).items()},
}  # fmt: skip


def build(settings: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(5)
    return build_model(ModelConfig(**{**SMALL, **settings, **options})).eval()


def source(rows: int = 3, length: int = 7) -> Tensor:
    """Return sentences of different lengths with their end tokens, padded at the end."""
    src_RS = torch.randint(4, V, (rows, length))
    for row in range(rows):
        src_RS[row, length - row - 1] = END
        src_RS[row, length - row :] = PAD
    return src_RS
