"""Small models of every family, with random weights and a trained tokenizer."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from clearhead.api import Model
from clearhead.config import build
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.model_weights import ModelWeights
from clearhead.inspection.trace.trace_types import Trace
from clearhead.model.registry import build_model
from clearhead.tasks.registry import get_task
from tests.tasks.artificial_text import artificial_text

TEXT = "The old dog eats the grass in the house."
SHAPE: dict[str, Any] = {"model_dim": 22, "feed_forward_dim": 29, "num_heads": 2, "num_encoder_layers": 3,
                         "num_decoder_layers": 2, "max_positions": 64, "dropout": 0.1}  # fmt: skip
T5 = {"positions": "relative", "norm": "rms", "bias": False, "scale_attention": False, "scale_embeddings": False,
      "scale_output": True}  # fmt: skip
IMAGE = {"image_size": 6, "patch_size": 2, "image_channels": 1}
# name -> task and model settings
TEXT_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("translate", {}),
    "post-norm, rotary": ("translate", {"norm_placement": "post", "positions": "rotary", "num_heads": 1}),
    "d_k and d_v": ("translate", {"key_dim": 7, "value_dim": 5, "tied_embeddings": "none"}),
    "T5": ("denoise", T5),
    "decoder": ("lm", {"positions": "learned"}),
    "encoder for labels": ("classify", {}),
    "encoder for tags": ("tag", {"norm_placement": "post"}),
    "encoder for masks": ("mlm", {"embedding_norm": True}),
    **{f"lstm, {kind}": ("translate", {"family": "lstm", "attention": kind, "bidirectional": kind == "dot"})
       for kind in ("dot", "scaled_dot", "general", "additive", "cosine")},
    "gru without attention": ("translate", {"family": "gru", "attention": "none"}),
    "recurrent reader": ("classify", {"family": "lstm", "pooling": "last"}),
}  # fmt: skip
IMAGE_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "patches": ("image", IMAGE),
    "captions": ("caption", IMAGE),
    "convolutional": ("image", {"family": "cnn", "pooling": "mean", "norm_groups": 11, **IMAGE}),
}
GENERATORS = [
    name
    for name, (task, _) in (TEXT_MODELS | IMAGE_MODELS).items()
    if task in ("translate", "denoise", "lm", "caption")
]
WITHOUT_ATTENTION = ("gru without attention", "recurrent reader", "convolutional")
LABELS = {"classify": ["animal", "thing", "other"], "image": ["one", "two", "three"], "tag": ["O", "B-X", "I-X"]}


@cache
def tokenizer(task: str) -> Tokenizer:
    settings = build(get_task(task).base, {"tokenizer": {"vocab_size": 360}}).tokenizer
    return Tokenizer.train(artificial_text(60), settings)


@cache
def small_model(name: str) -> Model:
    """Return the model with this name in TEXT_MODELS or IMAGE_MODELS."""
    task, shape = (TEXT_MODELS | IMAGE_MODELS)[name]
    data_settings: dict[str, Any] = {"num_labels": len(LABELS.get(task, []))}
    trained_tokenizer = None if task == "image" else tokenizer(task)
    if trained_tokenizer is not None:
        data_settings["vocab_size"] = trained_tokenizer.vocab_size
    config = build({"model": {**SHAPE, **shape, **data_settings}, "labels": LABELS.get(task, []),
                    "decoding": {"max_length": "input+3"}}, base=get_task(task).base)  # fmt: skip
    torch.manual_seed(5)
    network = build_model(config.model).eval()
    return Model(Path("small"), config, trained_tokenizer, ModelWeights(config.model, network=network), None)  # type: ignore[arg-type]


def write_image(folder: Path) -> Path:
    """Write a grayscale PNG of 6x6 pixels and return its path."""
    pixels = np.random.default_rng(3).integers(0, 256, (6, 6), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    return folder / "image.png"


def text_for(name: str) -> str:
    """Return an input text for the task of this model."""
    return {"T5": "The old <x0> eats the <x1> in the house.",
            "encoder for masks": "The old [MASK] eats the grass."}.get(name, TEXT)  # fmt: skip


def trace_model(model: Any, name: str, folder: Path, **options: Any) -> Trace:
    """Trace a model on its input, an image or a text; `name` is its name in TEXT_MODELS or IMAGE_MODELS."""
    trace: Trace
    if model.config.model.reads_images:
        trace = model.trace_image(write_image(folder), **options)
    else:
        trace = model.trace(text_for(name), **options)
    return trace
