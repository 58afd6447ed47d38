"""The presets, and building of a validated config from presets, recipes and `--set` assignments."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from clearhead.config.base import Section
from clearhead.config.data import DataConfig, TokenizerConfig
from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import ModelConfig
from clearhead.config.training import TrainingConfig
from clearhead.errors import ConfigError


def _model_shape(
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
    "tiny": {"model": _model_shape(4, 128, 256, 4, 0.3, "pre"), "training": _SMALL_TRAINING},
    "small": {
        "model": _model_shape(3, 256, 1024, 4, 0.1, "pre"),
        "training": {**_SMALL_TRAINING, "learning_rate": 0.001},
    },
    "paper-base": {**_PAPER, "model": _model_shape(6, 512, 2048, 8, 0.1, "post")},
    "paper-big": {
        **_PAPER,
        "model": _model_shape(6, 1024, 4096, 16, 0.3, "post"),
        "training": {**_PAPER["training"], "average_checkpoints": 20},
    },
    "bert-base": {**_BERT_DATA, "model": {**_model_shape(12, 768, 3072, 12, 0.1, "post"), **_BERT}},
    "bert-large": {**_BERT_DATA, "model": {**_model_shape(24, 1024, 4096, 16, 0.1, "post"), **_BERT}},
    "gpt2": {
        "tokenizer": {"vocab_size": 50257},
        "data": {"max_tokens": 1024},
        "model": {**_model_shape(12, 768, 3072, 12, 0.1, "pre"), **_GPT2},
    },
    "vit-tiny": {"model": {**_model_shape(12, 192, 768, 3, 0.1, "pre"), **_VIT}},
    "t5-small": {"tokenizer": {"vocab_size": 32128}, "model": {**_model_shape(6, 512, 2048, 8, 0.1, "pre"), **_T5}},
}


class Config(Section):
    """All settings of a run, stored as `config.json` in a bundle."""

    task: str = Field("translate", description="task of the model; clearhead.tasks.registry lists all tasks")
    labels: tuple[str, ...] = Field((), description="names of the classes or tags; taken from the training data")
    preset: str = Field("", description="preset that the settings are based on")
    model: ModelConfig = Field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)


def build(*layers: Mapping[str, Any], preset: str = "", base: Mapping[str, Any] | None = None) -> Config:
    """Return the config: the task's base settings, overridden by the preset, then by each layer in order."""
    if preset and preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}; {_suggest(preset, PRESETS)}")
    merged: dict[str, Any] = merge(base or {}, {"preset": preset})
    for layer in ((PRESETS[preset] if preset else {}), *layers):
        merged = merge(merged, layer)
    head = (base or {}).get("model", {}).get("head")
    if head:  # set by the task: overrides the preset; a different value from the user is an error
        for layer in layers:
            if layer.get("model", {}).get("head", head) != head:
                raise ConfigError(f"model.head={layer['model']['head']} does not fit the task, whose head is {head}.")
        merged = merge(merged, {"model": {"head": head}})
    return parse(merged)


def parse(settings: Mapping[str, Any]) -> Config:
    """Return the config of nested settings; raise ConfigError for the first invalid one."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(_format_validation_error(error)) from None


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested settings `base`, overridden by `overrides`."""
    merged = dict(base)
    for key, value in overrides.items():
        current = merged.get(key)
        merged[key] = merge(current, value) if isinstance(current, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Return assignments such as `model.dropout=0.3` as nested settings; validation converts the string values."""
    settings: dict[str, Any] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        names = path.strip().split(".")
        if not equals or len(names) < 2 or not all(names):
            raise ConfigError(f"expected section.field=value, such as model.dropout=0.3, not {text!r}")
        nested: Any = value.strip()
        for name in reversed(names):
            nested = {name: nested}
        settings = merge(settings, nested)
    return settings


def override(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return the config with some settings replaced, validated again."""
    return parse(merge(config.model_dump(), settings))


def override_decoding(config: Config, settings: Mapping[str, Any]) -> DecodingConfig:
    """Return the decoding section with some settings replaced. Only this section is validated: this runs per text."""
    try:
        return DecodingConfig.model_validate(merge(config.decoding.model_dump(), settings))
    except ValidationError as error:
        raise ConfigError(_format_validation_error(error, ("decoding",))) from None


def _suggest(wrong: str, valid_names: Mapping[str, Any]) -> str:
    """Return the known name closest to a wrong one, or all of them, as a sentence."""
    close = difflib.get_close_matches(wrong.replace("_", ""), [*valid_names], n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(wrong, [*valid_names], n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(valid_names)}."


def _fields_at(path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return the fields of the section at a path."""
    section: type[BaseModel] = Config
    for key in path:
        section = section.model_fields[str(key)].annotation  # type: ignore[assignment]
    return section.model_fields


def _format_validation_error(error: ValidationError, section: tuple[str, ...] = ()) -> str:
    """Return the first error of a validation as one sentence; `section` is the path of the validated section."""
    first = error.errors(include_url=False)[0]
    path = (*section, *first["loc"])
    name = ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        parent = ".".join(map(str, path[:-1]))
        suggestion = _suggest(str(path[-1]), _fields_at(path[:-1]))
        if parent and suggestion.startswith("did"):
            suggestion = suggestion.replace("did you mean ", f"did you mean {parent}.")
        return f"unknown key {name}; {suggestion}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return message if message.startswith("model.") else f"{name}: {message}"
    return f"{name}={first['input']}: {first['msg'][0].lower()}{first['msg'][1:]}."
