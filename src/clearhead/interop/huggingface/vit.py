"""ViT: images as patches, with a class token and a classification head."""

from collections.abc import Collection, Iterator

from clearhead.config import Config, ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ConfigKey, EncoderLayerNames, ModelFormat
from clearhead.interop.settings import Settings, SettingsReader, equal_head_widths
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, linear_links

_LAYER = EncoderLayerNames(
    "attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense",
    "layernorm_before", "intermediate.dense", "output.dense", "layernorm_after",
)  # fmt: skip


def _read_settings(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
    options.require(qkv_bias=True)
    channels = options.positive_int("num_channels", 3)
    if channels not in (1, 3):
        raise InteropError(f"{options.name}: num_channels {channels} is not supported; expected 1 or 3")
    return {"model": {"scale_embeddings": False}}


def _weight_mapping(config: Config, tensor_names: Collection[str] = ()) -> WeightMapping:
    links = [*_embedding_links(config.model), *_LAYER.links("vit.encoder.layer", config.model.num_encoder_layers)]
    links += linear_links("backbone.encoder.norm", "vit.layernorm")
    links += linear_links("output", "classifier")
    return WeightMapping(links, unused=r"vit\.pooler\..*")


def _embedding_links(model: ModelConfig) -> Iterator[TensorLink]:
    size, width = model.patch_size, model.model_dim
    num_positions = (model.image_size // size) ** 2 + 1
    local, external = "backbone.embedding", "vit.embeddings"
    yield TensorLink(f"{local}.class_token", f"{external}.cls_token", "reshaped", (1, 1, width))
    shape: tuple[int, ...] = 1, num_positions, width
    yield TensorLink(f"{local}.positions.weight", f"{external}.position_embeddings", "reshaped", shape)
    projection = f"{external}.patch_embeddings.projection"
    shape = width, model.image_channels, size, size
    yield TensorLink(f"{local}.projection.weight", f"{projection}.weight", "reshaped", shape)
    yield TensorLink(f"{local}.projection.bias", f"{projection}.bias")


VIT = ModelFormat(
    "vit",
    "ViT",
    architectures={"ViTForImageClassification": "image"},
    constants={
        "family": "vit",
        "head": "classification",
        "norm": "layer",
        "norm_placement": "pre",
        "embedding_norm": False,
        "positions": "learned",
        "scale_attention": True,
        "pooling": "first",
        "gated": False,
        "bias": True,
    },
    keys={
        "num_encoder_layers": ConfigKey("num_hidden_layers", 12),
        "model_dim": ConfigKey("hidden_size", 768),
        "feed_forward_dim": ConfigKey("intermediate_size", 3072),
        "num_heads": ConfigKey("num_attention_heads", 12),
        "dropout": ConfigKey("hidden_dropout_prob", 0.0, "number"),
        "norm_epsilon": ConfigKey("layer_norm_eps", 1e-12, "number"),
        "activation": ConfigKey("hidden_act", "gelu", "activation"),
        "image_size": ConfigKey("image_size", 224),
        "patch_size": ConfigKey("patch_size", 16),
        "image_channels": ConfigKey("num_channels", 3),
    },
    read_settings=_read_settings,
    write_settings=lambda config: {},
    supported_settings=lambda config: {"final_norm": (None, True), **equal_head_widths(config.model)},
    weight_mapping=_weight_mapping,
    attention_dropout_key="attention_probs_dropout_prob",
)
