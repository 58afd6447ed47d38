"""Building of a checked config from presets, recipes and assignments; an invalid setting gives a one-line error."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from clearhead.config.base import Section
from clearhead.config.data import DataConfig
from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import ModelConfig
from clearhead.config.presets import PRESETS
from clearhead.config.tokenizer import TokenizerConfig
from clearhead.config.training import TrainingConfig
from clearhead.errors import ConfigError

TaskName = Literal["translate", "classify", "tag", "mlm", "lm", "denoise", "image", "caption", "embed"]


class Config(Section):
    """All settings of a run; `config.json` of a bundle."""

    task: TaskName = Field("translate", description="task of the model")
    labels: tuple[str, ...] = Field((), description="names of the classes or tags; taken from the data")
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
    if head:  # the task determines the head: it overrides the preset's, and another one from the user is an error
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
        raise ConfigError(_explain(error)) from None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings `below`, overridden by those of `above`."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Return `["model.dropout=0.3"]` as nested settings; values stay strings, which the fields convert."""
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
        raise ConfigError(_explain(error, ("decoding",))) from None


def _suggest(wrong: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(wrong.replace("_", ""), [*known], n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(wrong, [*known], n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."


def _fields_at(path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return the fields of the section at a path."""
    section: type[BaseModel] = Config
    for key in path:
        section = section.model_fields[str(key)].annotation  # type: ignore[assignment]
    return section.model_fields


def _explain(error: ValidationError, section: tuple[str, ...] = ()) -> str:
    """Return the first error of a validation, of all settings or of a section, as one sentence."""
    fault = error.errors(include_url=False)[0]
    path = (*section, *fault["loc"])
    name = ".".join(map(str, path))
    if fault["type"] == "extra_forbidden":
        parent = ".".join(map(str, path[:-1]))
        suggestion = _suggest(str(path[-1]), _fields_at(path[:-1]))
        if parent and suggestion.startswith("did"):
            suggestion = suggestion.replace("did you mean ", f"did you mean {parent}.")
        return f"unknown key {name}; {suggestion}"
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        return message if message.startswith("model.") else f"{name}: {message}"
    return f"{name}={fault['input']}: {fault['msg'][0].lower()}{fault['msg'][1:]}."
