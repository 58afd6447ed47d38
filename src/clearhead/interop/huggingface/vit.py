"""ViT: pictures as patches, with a class token and a head for labels."""

from collections.abc import Collection, Iterator

from clearhead.config import Config, ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.bert import ACTIVATIONS
from clearhead.interop.huggingface.model_format import (
    ModelFormat,
    Settings,
    architecture,
    attention_dropout,
    equal_head_widths,
    label_settings,
    read_labels,
)
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links


def read(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings."""
    architecture(options, {"ViTForImageClassification": "image"})
    options.only(qkv_bias=True)
    labels = read_labels(options)
    channels = options.number("num_channels", 3)
    if channels not in (1, 3):
        raise InteropError(f"num_channels {channels} is not supported, only 1 or 3; {options.name} asks for it")
    return {
        "task": "image",
        "labels": labels,
        "model": {
            "family": "vit",
            "head": "classification",
            "num_encoder_layers": options.number("num_hidden_layers", 12),
            "model_dim": options.number("hidden_size", 768),
            "feed_forward_dim": options.number("intermediate_size", 3072),
            "num_heads": options.number("num_attention_heads", 12),
            "dropout": options.small("hidden_dropout_prob", 0.0),
            "norm_placement": "pre",
            "norm_epsilon": options.small("layer_norm_eps", 1e-12),
            "activation": options.activation("hidden_act", "gelu"),
            "positions": "learned",
            "scale_embeddings": False,
            "pooling": "first",
            "image_size": options.number("image_size", 224),
            "patch_size": options.number("patch_size", 16),
            "image_channels": channels,
            "num_labels": len(labels),
        },
    }


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names."""
    return WeightMapping([*_links(config.model)], left_out=r"vit\.pooler\..*")


def _links(model: ModelConfig) -> Iterator[TensorLink]:
    size, width = model.patch_size, model.model_dim
    places = (model.image_size // size) ** 2 + 1
    embedding = "vit.embeddings"
    yield TensorLink("backbone.embedding.class_token", f"{embedding}.cls_token", "reshaped", (1, 1, width))
    yield TensorLink(
        "backbone.embedding.positions.weight", f"{embedding}.position_embeddings", "reshaped", (1, places, width)
    )
    project = f"{embedding}.patch_embeddings.projection"
    shape = width, model.image_channels, size, size
    yield TensorLink("backbone.embedding.projection.weight", f"{project}.weight", "reshaped", shape)
    yield TensorLink("backbone.embedding.projection.bias", f"{project}.bias")
    for number in range(model.num_encoder_layers):
        ours, theirs = f"backbone.encoder.layers.{number}", f"vit.encoder.layer.{number}"
        parts = [f"{theirs}.attention.attention.{name}" for name in ("query", "key", "value")]
        yield from attention_links(f"{ours}.self_attention", parts, f"{theirs}.attention.output.dense")
        yield from linear_links(f"{ours}.self_attention_residual.norm", f"{theirs}.layernorm_before")
        yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.intermediate.dense")
        yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.output.dense")
        yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.layernorm_after")
    yield from linear_links("backbone.encoder.norm", "vit.layernorm")
    yield from linear_links("output", "classifier")


def required(config: Config) -> Settings:
    """Return what ViT requires of the model section."""
    return {
        "family": "vit",
        "head": "classification",
        "norm": "layer",
        "norm_placement": "pre",
        "final_norm": (None, True),
        "embedding_norm": False,
        "positions": "learned",
        "scale_attention": True,
        "pooling": "first",
        "gated": False,
        "bias": True,
        **equal_head_widths(config.model),
    }


def write(config: Config) -> Settings:
    """Their settings."""
    model = config.model
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": model.model_dim,
        "num_hidden_layers": model.num_encoder_layers,
        "num_attention_heads": model.num_heads,
        "intermediate_size": model.feed_forward_dim,
        "hidden_act": ACTIVATIONS[model.activation],
        "hidden_dropout_prob": model.dropout,
        **attention_dropout(model, "attention_probs_dropout_prob"),
        "layer_norm_eps": model.norm_epsilon,
        "image_size": model.image_size,
        "patch_size": model.patch_size,
        "num_channels": model.image_channels,
        **label_settings(config),
    }


FORMAT = ModelFormat("vit", "ViT", required, read, table, write)
