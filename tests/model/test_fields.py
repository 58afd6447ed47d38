"""Every field of the model section, in every kind of network: it changes something, or it is refused by name."""

import zlib
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.config.model import IMAGE_FAMILIES, RECURRENT
from clearhead.errors import ConfigError
from clearhead.kernels import dropout_seed
from clearhead.model.parameters import named_weights
from clearhead.model.registry import build_model
from clearhead.tasks.image_classification.inference import num_patches
from clearhead.tasks.text_codec import max_input_tokens
from clearhead.training.setup.request import FROM_THE_DATA

# For every field that a user can set, a value that differs from its value in all networks below.
OTHERS: dict[str, Any] = {
    "num_encoder_layers": 3, "num_decoder_layers": 3, "model_dim": 24, "feed_forward_dim": 19, "num_heads": 2,
    "key_dim": 6, "value_dim": 5, "scale_attention": False, "attention_dropout": 0.5, "dropout": 0.5, "norm": "rms",
    "norm_groups": 4, "norm_epsilon": 0.1,
    "norm_placement": "post", "activation": "gelu", "gated": True, "bias": False, "positions": "none",
    "max_positions": 11, "relative_buckets": 8, "relative_max_distance": 3, "tied_embeddings": "none",
    "scale_embeddings": False, "embedding_norm": True, "scale_output": True, "num_segments": 2, "pooling": "first",
    "pooler": True, "attention": "dot", "bidirectional": True, "input": "image", "patch_size": 4, "decoder_start_id": 5,
    "residual": False,
}  # fmt: skip
NAMES = {"family", "head"}  # of the network itself
IMPORTED = {  # settings of imported checkpoints: tests/model/test_imported_options.py
    "output_bias", "source_vocab_size", "pooler_activation", "final_norm", "sinusoidal_layout",
}  # fmt: skip
TOKENIZERS = {"pad_id", "eos_id"}  # a run refuses all but the tokenizer's
SIZES: dict[str, Any] = {
    "num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3,
    "vocab_size": 23, "num_labels": 5, "image_size": 8, "patch_size": 2, "image_channels": 1, "max_positions": 19,
    "norm_groups": 3, "relative_buckets": 6, "relative_max_distance": 5, "dropout": 0.1, "pooling": "mean",
}  # fmt: skip
NETWORKS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer, relative and group norm": {"positions": "relative", "norm": "group"},
    "transformer without norm": {"norm": "none"},
    "transformer, images": {"input": "image"},
    "decoder": {"family": "decoder"},
    "decoder, relative": {"family": "decoder", "positions": "relative"},
    **{f"encoder, {head}": {"family": "encoder", "head": head}
       for head in ("classification", "token_classification", "masked_lm")},
    **{f"{family}, {head}": {"family": family, "head": head} for family in RECURRENT
       for head in ("generation", "classification", "token_classification")},
    **{family: {"family": family, "head": "classification"} for family in IMAGE_FAMILIES},
    "patches, rotary": {"family": "vit", "head": "classification", "positions": "rotary"},
}  # fmt: skip


def config_of(network: str, **settings: Any) -> ModelConfig:
    return ModelConfig(**{**SIZES, **NETWORKS[network], **settings})


def fill(model: torch.nn.Module) -> None:
    """Set every weight by its name and shape only, so that networks can be compared."""
    with torch.no_grad():
        for name, weight in named_weights(model).items():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {tuple(weight.shape)}".encode()))
            weight.copy_(torch.rand(weight.shape, generator=generator) - 0.4)


def inputs(config: ModelConfig) -> tuple[Tensor, ...]:
    """Return the arguments of the network."""
    ids_NT = torch.tensor([[4, 9, 7, 22, 6, 11, 3], [8, 5, 13, 3, 0, 0, 0]])
    source = torch.linspace(-1, 1, 128).view(2, 1, 8, 8) if config.reads_images else ids_NT
    if config.head == "masked_lm":
        return source, ids_NT == 7
    return (source, ids_NT) if config.head == "generation" and config.family != "decoder" else (source,)


def behavior(config: ModelConfig) -> list[Any]:
    """Return everything observable of a network: outputs, initial weights and sizes."""
    try:
        model = build_model(config)
    except ConfigError as error:
        return [str(error)]
    fill(model)
    values: list[Any] = []
    for is_training in (True, False):
        with torch.no_grad(), dropout_seed(1):
            result = model.train(is_training)(*inputs(config))
            values += (model.logits(result) if hasattr(model, "logits") else result).flatten().tolist()
    if hasattr(model, "start"):
        prompt = torch.tensor([[4, 9, 7]]) if not config.reads_images else inputs(config)[0]
        with torch.no_grad():
            values += model.start(model.encode(prompt), 1)[0].flatten().tolist()
    values.append(max_input_tokens(Config(model=config)) if config.has_text else None)
    values.append(num_patches(config) if config.reads_images else None)
    return values


@pytest.mark.parametrize("network", NETWORKS)
def test_every_field_changes_something_or_is_refused(network: str) -> None:
    before = config_of(network)
    usual = behavior(before)
    for field, value in OTHERS.items():
        assert getattr(before, field) != value or field == "input"
        if field == "input" and before.input == "image":
            continue
        try:
            changed = config_of(network, **{field: value})
        except ValidationError as error:
            assert f"model.{field} " in str(error) and before.unused_reason(field), f"{field}: {error}"
            continue
        changed_behavior = behavior(changed)
        is_used = changed_behavior != usual and f"model.{field}={value} has no meaning" not in str(changed_behavior[0])
        assert is_used == (not changed.unused_reason(field)), f"{field}: {'used' if is_used else 'of no effect'}"


def test_no_field_is_left_out() -> None:
    fields = set(ModelConfig.model_fields)
    assert fields == set(OTHERS) | NAMES | IMPORTED | TOKENIZERS | set(FROM_THE_DATA)
