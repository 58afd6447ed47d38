"""BERT: an encoder with learned positions and segments, alone or with a head for masked words, labels or tags."""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
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

TASKS = {
    "BertModel": "embed",
    "BertForMaskedLM": "mlm",
    "BertForPreTraining": "mlm",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
}
ARCHITECTURES = {task: name for name, task in TASKS.items() if name != "BertForPreTraining"}
HEADS = {"embed": "embedding", "mlm": "masked_lm", "classify": "classification", "tag": "token_classification"}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
PREFIX = "bert."


def read(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings."""
    task = architecture(options, TASKS)
    options.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    if task == "mlm":
        options.only(hidden_act="gelu", tie_word_embeddings=True)  # the head's own activation is gelu here
    labels = read_labels(options) if task in ("classify", "tag") else []
    limit = options.number("max_position_embeddings", 512)
    has_pooler = task in ("embed", "classify") and any("pooler.dense" in name for name in tensors.shapes)
    return {
        "task": task,
        "labels": labels,
        "data": {"max_tokens": limit},
        "model": {
            "family": "encoder",
            "head": HEADS[task],
            "num_encoder_layers": options.number("num_hidden_layers"),
            "model_dim": options.number("hidden_size"),
            "feed_forward_dim": options.number("intermediate_size"),
            "num_heads": options.number("num_attention_heads"),
            "dropout": options.small("hidden_dropout_prob", 0.1),
            "norm_placement": "post",
            "norm_epsilon": options.small("layer_norm_eps", 1e-12),
            "activation": options.activation("hidden_act", "gelu"),
            "positions": "learned",
            "max_positions": limit,
            "scale_embeddings": False,
            "embedding_norm": True,
            "num_segments": options.number("type_vocab_size", 2),
            "pooling": "first",
            "pooler": has_pooler,
            "num_labels": len(labels),
            "vocab_size": options.number("vocab_size"),
            "pad_id": options.identifier("pad_token_id", 0),
        },
    }


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names; a body alone is saved without a prefix, or with one if it was cut out of a larger model."""
    task, model = config.task, config.model
    prefix = PREFIX if task != "embed" or any(name.startswith(PREFIX) for name in names) else ""
    links = [*_body(prefix, model.num_encoder_layers, bool(model.num_segments))]
    if _has_pooler(config):
        links += linear_links("backbone.pooler", f"{prefix}pooler.dense")
    if task == "mlm":
        head = "cls.predictions"
        links += linear_links("transform", f"{head}.transform.dense")
        links += linear_links("norm", f"{head}.transform.LayerNorm")
        links.append(TensorLink("output.bias", f"{head}.bias"))
    elif task != "embed":
        links += linear_links("output", "classifier")
    copies = {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": f"{prefix}embeddings.word_embeddings.weight",
    }
    pooler = "" if _has_pooler(config) else r"|(bert\.)?pooler\.dense\.(weight|bias)"
    head = r"|cls\..*" if task == "embed" else ""
    return WeightMapping(links, copies, r".*\.position_ids", r"cls\.seq_relationship\..*" + pooler + head)


def _body(prefix: str, num_layers: int, has_segments: bool) -> Iterator[TensorLink]:
    embedding = f"{prefix}embeddings"
    yield TensorLink("backbone.embedding.tokens.weight", f"{embedding}.word_embeddings.weight")
    yield TensorLink("backbone.embedding.positions.weight", f"{embedding}.position_embeddings.weight")
    if has_segments:
        yield TensorLink("backbone.embedding.segments.weight", f"{embedding}.token_type_embeddings.weight")
    yield from linear_links("backbone.embedding.norm", f"{embedding}.LayerNorm")
    for number in range(num_layers):
        ours, theirs = f"backbone.encoder.layers.{number}", f"{prefix}encoder.layer.{number}"
        parts = [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")]
        yield from attention_links(f"{ours}.self_attention", parts, f"{theirs}.attention.output.dense")
        yield from linear_links(f"{ours}.self_attention_residual.norm", f"{theirs}.attention.output.LayerNorm")
        yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.intermediate.dense")
        yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.output.dense")
        yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm")


def required(config: Config) -> Settings:
    """Return what both BERT and DistilBERT require of an encoder."""
    return {
        "family": "encoder",
        "head": tuple(HEADS.values()),
        "norm": "layer",
        "norm_placement": "post",
        "final_norm": (None, False),
        "embedding_norm": True,
        "positions": "learned",
        "scale_embeddings": False,
        "scale_attention": True,
        "gated": False,
        "bias": True,
        **equal_head_widths(config.model),
        **({"activation": "gelu"} if config.task == "mlm" else {}),
        **({"pooling": "first", "pooler": True} if config.task == "classify" else {}),
    }


def _required(config: Config) -> Settings:
    return required(config) | ({"pooler_activation": "tanh"} if _has_pooler(config) else {})


def _has_pooler(config: Config) -> bool:
    """Whether the architecture of the task has the pooler of the model."""
    return config.model.pooler and config.task in ("embed", "classify")


def extra(config: Config) -> dict[str, Tensor]:
    """Return the segment table, all zeros, of a model without segments."""
    if config.model.num_segments:
        return {}
    prefix = "" if config.task == "embed" else PREFIX
    return {f"{prefix}embeddings.token_type_embeddings.weight": torch.zeros(1, config.model.model_dim)}


def write(config: Config) -> Settings:
    """Their settings."""
    model = config.model
    return {
        "architectures": [ARCHITECTURES[config.task]],
        "model_type": "bert",
        "hidden_size": model.model_dim,
        "num_hidden_layers": model.num_encoder_layers,
        "num_attention_heads": model.num_heads,
        "intermediate_size": model.feed_forward_dim,
        "hidden_act": ACTIVATIONS[model.activation],
        "hidden_dropout_prob": model.dropout,
        **attention_dropout(model, "attention_probs_dropout_prob"),
        "layer_norm_eps": model.norm_epsilon,
        "max_position_embeddings": model.max_positions,
        "type_vocab_size": model.num_segments or 1,
        "vocab_size": model.vocab_size,
        "pad_token_id": model.pad_id,
        **(label_settings(config) if config.labels else {}),
    }


FORMAT = ModelFormat("bert", "BERT", _required, read, table, write, extra)
