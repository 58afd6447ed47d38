"""BERT and DistilBERT: post-norm encoders, alone or with a head for masked words, labels or tags.

DistilBERT has no segments and no pooler; instead of a pooler, its classifier has one more layer, with ReLU.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.config import Config
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.huggingface.model_format import ConfigKey, EncoderLayerNames, ModelFormat
from clearhead.interop.settings import Settings, SettingsReader, equal_head_widths
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, linear_links

HEADS = {"embed": "embedding", "mlm": "masked_lm", "classify": "classification", "tag": "token_classification"}
_POSITIONS_KEY = ConfigKey("max_position_embeddings", 512)
_CONSTANTS = {
    "family": "encoder",
    "norm": "layer",
    "norm_placement": "post",
    "embedding_norm": True,
    "positions": "learned",
    "scale_embeddings": False,
    "scale_attention": True,
    "gated": False,
    "bias": True,
}


@dataclass(frozen=True)
class _TensorNames:
    """Tensor names of BERT or DistilBERT."""

    prefix: str
    """Prefix of the encoder in models with a head."""
    layers: str
    layer: EncoderLayerNames
    transform: str
    transform_norm: str
    output_bias: str
    copies: dict[str, str]
    """Tied tensor -> its original; `{embedding}` is replaced by the name of the token embedding."""
    pooler: str
    pooler_tasks: tuple[str, ...]
    unused: str
    """Pattern of weights that no task uses."""
    unused_heads: str
    """Pattern of the weights of heads, if only the encoder is imported."""
    unused_pooler: str
    """Pattern of the weights of the pooler, if the task does not use it."""

    def has_pooler(self, config: Config) -> bool:
        """Return whether the architecture of the task contains the pooler of the model."""
        return config.model.pooler and config.task in self.pooler_tasks

    def mapping(self, config: Config, tensor_names: Collection[str]) -> WeightMapping:
        """Return the weight mapping; the tensors of an encoder without a head may have the prefix or not."""
        task = config.task
        has_prefix = task != "embed" or any(name.startswith(self.prefix) for name in tensor_names)
        prefix = self.prefix if has_prefix else ""
        links = [*_embedding_links(f"{prefix}embeddings", bool(config.model.num_segments))]
        links += self.layer.links(prefix + self.layers, config.model.num_encoder_layers)
        if self.has_pooler(config):
            links += linear_links("backbone.pooler", self.pooler.format(prefix=prefix))
        if task == "mlm":
            links += linear_links("transform", self.transform)
            links += linear_links("norm", self.transform_norm)
            links.append(TensorLink("output.bias", self.output_bias))
        elif task != "embed":
            links += linear_links("output", "classifier")
        embedding = f"{prefix}embeddings.word_embeddings.weight"
        copies = {name: original.format(embedding=embedding) for name, original in self.copies.items()}
        unused = [self.unused, *[self.unused_heads] * (task == "embed")]
        unused += [self.unused_pooler] * (not self.has_pooler(config))
        return WeightMapping(links, copies, r".*\.position_ids", "|".join(unused))


def _embedding_links(external: str, has_segments: bool) -> Iterator[TensorLink]:
    yield TensorLink("backbone.embedding.tokens.weight", f"{external}.word_embeddings.weight")
    yield TensorLink("backbone.embedding.positions.weight", f"{external}.position_embeddings.weight")
    if has_segments:
        yield TensorLink("backbone.embedding.segments.weight", f"{external}.token_type_embeddings.weight")
    yield from linear_links("backbone.embedding.norm", f"{external}.LayerNorm")


_BERT_NAMES = _TensorNames(
    prefix="bert.",
    layers="encoder.layer",
    layer=EncoderLayerNames(
        "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
        "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
    ),
    transform="cls.predictions.transform.dense",
    transform_norm="cls.predictions.transform.LayerNorm",
    output_bias="cls.predictions.bias",
    copies={
        "cls.predictions.decoder.bias": "cls.predictions.bias", "cls.predictions.decoder.weight": "{embedding}"
    },
    pooler="{prefix}pooler.dense",
    pooler_tasks=("embed", "classify"),
    unused=r"cls\.seq_relationship\..*",
    unused_heads=r"cls\..*",
    unused_pooler=r"(bert\.)?pooler\.dense\.(weight|bias)",
)  # fmt: skip
_DISTILBERT_NAMES = _TensorNames(
    prefix="distilbert.",
    layers="transformer.layer",
    layer=EncoderLayerNames(
        "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
        "ffn.lin1", "ffn.lin2", "output_layer_norm",
    ),
    transform="vocab_transform",
    transform_norm="vocab_layer_norm",
    output_bias="vocab_projector.bias",
    copies={"vocab_projector.weight": "{embedding}"},
    pooler="pre_classifier",
    pooler_tasks=("classify",),
    unused=r"(?!)",
    unused_heads=r"vocab_.*",
    unused_pooler=r"(?!)",
)  # fmt: skip


def _encoder_settings(options: SettingsReader, task: str) -> Settings:
    """Return the settings that BERT and DistilBERT read in the same way."""
    return {
        "data": {"max_tokens": _POSITIONS_KEY.read(options)},
        "model": {"head": HEADS[task], "pooling": "first"},
    }


def _read_bert(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
    """Return the settings of BERT; clearhead's head for masked words always uses GELU, so another one is refused."""
    options.require(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    if task == "mlm":
        options.require(hidden_act="gelu", tie_word_embeddings=True)
    settings = _encoder_settings(options, task)
    has_pooler = task in _BERT_NAMES.pooler_tasks and any("pooler.dense" in name for name in tensors.shapes)
    settings["model"]["pooler"] = has_pooler
    return settings


def _read_distilbert(options: SettingsReader, tensors: CheckpointTensors, task: str) -> Settings:
    """Return the settings of DistilBERT; its sinusoidal positions are stored as a table, which is read as learned."""
    if task == "mlm":
        options.require(activation="gelu", tie_word_embeddings=True)
    settings = _encoder_settings(options, task)
    is_classifier = task == "classify"
    activation = "relu" if is_classifier else "tanh"
    settings["model"] |= {"pooler": is_classifier, "pooler_activation": activation}
    return settings


def _supported_by_both(config: Config) -> Settings:
    return {
        "head": tuple(HEADS.values()),
        "final_norm": (None, False),
        **equal_head_widths(config.model),
        **({"activation": "gelu"} if config.task == "mlm" else {}),
        **({"pooling": "first", "pooler": True} if config.task == "classify" else {}),
    }


def _supported_by_bert(config: Config) -> Settings:
    return _supported_by_both(config) | ({"pooler_activation": "tanh"} if _BERT_NAMES.has_pooler(config) else {})


def _supported_by_distilbert(config: Config) -> Settings:
    is_classifier = config.task == "classify"
    return {
        "activation": ("relu", "gelu"),
        **_supported_by_both(config),
        **({"pooler_activation": "relu"} if is_classifier else {}),
    }


def _zero_segments(config: Config) -> dict[str, Tensor]:
    """Return a segment table of zeros for a model without segments."""
    if config.model.num_segments:
        return {}
    prefix = "" if config.task == "embed" else _BERT_NAMES.prefix
    return {f"{prefix}embeddings.token_type_embeddings.weight": torch.zeros(1, config.model.model_dim)}


BERT = ModelFormat(
    "bert",
    "BERT",
    architectures={
        "BertModel": "embed",
        "BertForMaskedLM": "mlm",
        "BertForPreTraining": "mlm",
        "BertForSequenceClassification": "classify",
        "BertForTokenClassification": "tag",
    },
    constants=_CONSTANTS,
    keys={
        "num_encoder_layers": ConfigKey("num_hidden_layers"),
        "model_dim": ConfigKey("hidden_size"),
        "feed_forward_dim": ConfigKey("intermediate_size"),
        "num_heads": ConfigKey("num_attention_heads"),
        "dropout": ConfigKey("hidden_dropout_prob", 0.1, "number"),
        "norm_epsilon": ConfigKey("layer_norm_eps", 1e-12, "number"),
        "activation": ConfigKey("hidden_act", "gelu", "activation"),
        "max_positions": _POSITIONS_KEY,
        "num_segments": ConfigKey("type_vocab_size", 2),
        "vocab_size": ConfigKey("vocab_size"),
        "pad_id": ConfigKey("pad_token_id", 0, "token_id"),
    },
    read_settings=_read_bert,
    write_settings=lambda config: {"type_vocab_size": config.model.num_segments or 1},
    supported_settings=_supported_by_bert,
    weight_mapping=_BERT_NAMES.mapping,
    derived_tensors=_zero_segments,
    attention_dropout_key="attention_probs_dropout_prob",
)
DISTILBERT = ModelFormat(
    "distilbert",
    "DistilBERT",
    architectures={
        "DistilBertModel": "embed",
        "DistilBertForMaskedLM": "mlm",
        "DistilBertForSequenceClassification": "classify",
        "DistilBertForTokenClassification": "tag",
    },
    constants=_CONSTANTS | {"num_segments": 0, "norm_epsilon": 1e-12},
    keys={
        "num_encoder_layers": ConfigKey("n_layers", 6),
        "model_dim": ConfigKey("dim", 768),
        "feed_forward_dim": ConfigKey("hidden_dim", 3072),
        "num_heads": ConfigKey("n_heads", 12),
        "dropout": ConfigKey("dropout", 0.1, "number"),
        "activation": ConfigKey("activation", "gelu", "activation"),
        "max_positions": _POSITIONS_KEY,
        "vocab_size": ConfigKey("vocab_size"),
        "pad_id": ConfigKey("pad_token_id", 0, "token_id"),
    },
    read_settings=_read_distilbert,
    write_settings=lambda config: {},
    supported_settings=_supported_by_distilbert,
    weight_mapping=_DISTILBERT_NAMES.mapping,
    attention_dropout_key="attention_dropout",
)
