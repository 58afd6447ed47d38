"""From presets, recipes and assignments to one checked config; every mistake comes back as one sentence."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import ModelConfig
from clearhead.config.presets import PRESETS
from clearhead.config.section import Section
from clearhead.config.tokenizer import TokenizerConfig
from clearhead.config.training import DataConfig, TrainingConfig
from clearhead.errors import ConfigError

TaskName = Literal["translate", "classify", "tag", "mlm", "lm", "denoise", "image", "caption", "embed"]


class Config(Section):
    """A whole run; `config.json` of a bundle."""

    task: TaskName = Field("translate", description="what the model is for")
    labels: tuple[str, ...] = Field((), description="what labels or tags are called; taken from the data")
    preset: str = Field("", description="the preset that the settings started from")
    model: ModelConfig = Field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)


def build(*layers: Mapping[str, Any], preset: str = "", base: Mapping[str, Any] | None = None) -> Config:
    """The config from a task's base, a preset, and then each layer (a recipe, the user's settings) on top of it."""
    if preset and preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}; {_suggest(preset, PRESETS)}")
    merged: dict[str, Any] = merge(base or {}, {"preset": preset})
    for layer in ((PRESETS[preset] if preset else {}), *layers):
        merged = merge(merged, layer)
    head = (base or {}).get("model", {}).get("head")
    if head:  # the task decides what comes out: a preset's own head gives way, a user's is a mistake
        for layer in layers:
            if layer.get("model", {}).get("head", head) != head:
                raise ConfigError(f"model.head={layer['model']['head']} does not fit the task, whose head is {head}.")
        merged = merge(merged, {"model": {"head": head}})
    return parse(merged)


def parse(settings: Mapping[str, Any]) -> Config:
    """A config from plain settings; every fault is one sentence."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested settings, the second on top."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["model.dropout=0.3"]` as nested settings; types are the fields' own."""
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
    """The config with some settings replaced, checked again."""
    return parse(merge(config.model_dump(), settings))


def override_decoding(config: Config, settings: Mapping[str, Any]) -> DecodingConfig:
    """The decoding section with some settings replaced. The others are not checked again: this runs for every text."""
    try:
        return DecodingConfig.model_validate(merge(config.decoding.model_dump(), settings))
    except ValidationError as error:
        raise ConfigError(_explain(error, ("decoding",))) from None


def _suggest(wrong: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(wrong.replace("_", ""), [*known], n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(wrong, [*known], n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."


def _fields_at(path: tuple[str | int, ...]) -> dict[str, Any]:
    """The fields of the section that a path leads into."""
    section: type[BaseModel] = Config
    for key in path:
        section = section.model_fields[str(key)].annotation  # type: ignore[assignment]
    return section.model_fields


def _explain(error: ValidationError, section: tuple[str, ...] = ()) -> str:
    """The first fault of a validation, of all settings or of a section, in our words."""
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
