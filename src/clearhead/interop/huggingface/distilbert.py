"""DistilBERT: BERT without segments and pooler; its classifier has one more layer with relu."""

from collections.abc import Collection, Iterator

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.bert import ACTIVATIONS, HEADS, required
from clearhead.interop.huggingface.model_format import (
    ModelFormat,
    Settings,
    architecture,
    attention_dropout,
    label_settings,
    read_labels,
)
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links

TASKS = {
    "DistilBertModel": "embed",
    "DistilBertForMaskedLM": "mlm",
    "DistilBertForSequenceClassification": "classify",
    "DistilBertForTokenClassification": "tag",
}
ARCHITECTURES = {task: name for name, task in TASKS.items()}
PREFIX = "distilbert."


def read(options: SettingsReader, tensors: CheckpointTensors) -> Settings:
    """Our settings. Sinusoidal positions are saved as a table like learned ones, and read as such."""
    task = architecture(options, TASKS)
    if task == "mlm":
        options.only(activation="gelu", tie_word_embeddings=True)
    labels = read_labels(options) if task in ("classify", "tag") else []
    limit = options.number("max_position_embeddings", 512)
    return {
        "task": task,
        "labels": labels,
        "data": {"max_tokens": limit},
        "model": {
            "family": "encoder",
            "head": HEADS[task],
            "num_encoder_layers": options.number("n_layers", 6),
            "model_dim": options.number("dim", 768),
            "feed_forward_dim": options.number("hidden_dim", 3072),
            "num_heads": options.number("n_heads", 12),
            "dropout": options.small("dropout", 0.1),
            "norm_placement": "post",
            "norm_epsilon": 1e-12,
            "activation": options.activation("activation", "gelu"),
            "positions": "learned",
            "max_positions": limit,
            "scale_embeddings": False,
            "embedding_norm": True,
            "pooling": "first",
            "pooler": task == "classify",
            "pooler_activation": "relu" if task == "classify" else "tanh",
            "num_labels": len(labels),
            "vocab_size": options.number("vocab_size"),
            "pad_id": options.identifier("pad_token_id", 0),
        },
    }


def table(config: Config, names: Collection[str] = ()) -> WeightMapping:
    """The names; a body alone is saved without a prefix, or with one if it was cut out of a larger model."""
    task = config.task
    prefix = PREFIX if task != "embed" or any(name.startswith(PREFIX) for name in names) else ""
    links = [*_body(prefix, config.model.num_encoder_layers)]
    if task == "mlm":
        links += linear_links("transform", "vocab_transform")
        links += linear_links("norm", "vocab_layer_norm")
        links.append(TensorLink("output.bias", "vocab_projector.bias"))
    elif task != "embed":
        links += linear_links("output", "classifier")
    if task == "classify" and config.model.pooler:
        links += linear_links("backbone.pooler", "pre_classifier")
    copies = {"vocab_projector.weight": f"{prefix}embeddings.word_embeddings.weight"}
    return WeightMapping(links, copies, r".*\.position_ids", r"vocab_.*" if task == "embed" else r"(?!)")


def _body(prefix: str, num_layers: int) -> Iterator[TensorLink]:
    embedding = f"{prefix}embeddings"
    yield TensorLink("backbone.embedding.tokens.weight", f"{embedding}.word_embeddings.weight")
    yield TensorLink("backbone.embedding.positions.weight", f"{embedding}.position_embeddings.weight")
    yield from linear_links("backbone.embedding.norm", f"{embedding}.LayerNorm")
    for number in range(num_layers):
        ours, theirs = f"backbone.encoder.layers.{number}", f"{prefix}transformer.layer.{number}"
        parts = [f"{theirs}.attention.{name}_lin" for name in "qkv"]
        yield from attention_links(f"{ours}.self_attention", parts, f"{theirs}.attention.out_lin")
        yield from linear_links(f"{ours}.self_attention_residual.norm", f"{theirs}.sa_layer_norm")
        yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.ffn.lin1")
        yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.ffn.lin2")
        yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.output_layer_norm")


def _required(config: Config) -> Settings:
    is_classifier = config.task == "classify"
    return {
        "activation": ("relu", "gelu"),
        **required(config),
        "num_segments": 0,
        "norm_epsilon": 1e-12,
        **({"pooler_activation": "relu"} if is_classifier else {}),
    }


def write(config: Config) -> Settings:
    """Their settings."""
    model = config.model
    return {
        "architectures": [ARCHITECTURES[config.task]],
        "model_type": "distilbert",
        "dim": model.model_dim,
        "n_layers": model.num_encoder_layers,
        "n_heads": model.num_heads,
        "hidden_dim": model.feed_forward_dim,
        "activation": ACTIVATIONS[model.activation],
        "dropout": model.dropout,
        **attention_dropout(model, "attention_dropout"),
        "max_position_embeddings": model.max_positions,
        "vocab_size": model.vocab_size,
        "pad_token_id": model.pad_id,
        **(label_settings(config) if config.labels else {}),
    }


FORMAT = ModelFormat("distilbert", "DistilBERT", _required, read, table, write)
