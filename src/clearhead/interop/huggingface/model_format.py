"""What every Hugging Face family has to say of itself, and what they share: the names of architectures and labels."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import WeightMapping
from clearhead.model.parameters import Weights

Settings = dict[str, Any]


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint of another toolkit in our terms."""

    config: Config
    weights: Weights
    tokenizer: Tokenizer | None
    left_out: list[str]
    format: str
    notes: list[str]
    """Settings that could not come along."""


@dataclass(frozen=True)
class ModelFormat:
    """One family: settings in, a table of names, settings out."""

    name: str
    """`model_type` of its config.json."""
    title: str
    """Name of the architecture in messages."""
    required: Callable[[Config], Settings]
    """Values of the model section that the architecture can express; a tuple lists several allowed values."""
    read: Callable[[SettingsReader, CheckpointTensors], Settings]
    """Our settings, nested as in a recipe."""
    table: Callable[[Config, Collection[str]], WeightMapping]
    """The names; those that the file has tell with which prefix they come."""
    write: Callable[[Config], Settings]
    """Their config.json, for a config that meets `required`."""
    extra: Callable[[Config], Mapping[str, Tensor]] = lambda config: {}
    """What they keep as tensors and we compute."""

    def blocking(self, config: Config) -> list[str]:
        """Return the settings that the architecture cannot express; every architecture has residual connections."""
        return unsupported_settings(config.model, {"residual": True, **self.required(config)})


def architecture(options: SettingsReader, known: Mapping[str, str]) -> str:
    """The class that the weights were saved from, in our words."""
    names = options.get("architectures", [])
    if not isinstance(names, list) or len(names) != 1:
        raise InteropError(f"{options.name}: expected one name in architectures, found {names!r}")
    if names[0] not in known:
        raise InteropError(f"architecture {names[0]} is not supported; known of this family: {', '.join(known)}")
    return known[names[0]]


def read_labels(options: SettingsReader) -> list[str]:
    """What labels are called, in the order of their numbers."""
    named = options.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    try:
        return [named[str(number)] for number in range(len(named))]
    except (KeyError, TypeError) as error:
        raise InteropError(f"{options.name}: id2label must name the labels 0, 1, 2 and so on") from error


def label_settings(config: Config) -> Settings:
    """The labels in their words."""
    return {
        "id2label": {str(number): label for number, label in enumerate(config.labels)},
        "label2id": {label: number for number, label in enumerate(config.labels)},
    }


def attention_dropout(model: ModelConfig, name: str) -> dict[str, float]:
    """The setting of that name where a model has such dropout; else the other family's own default stays."""
    return {name: model.attention_dropout} if model.attention_dropout else {}


def unsupported_settings(model: ModelConfig, required: Mapping[str, Any]) -> list[str]:
    """Return every setting that differs from its required value, as `model.norm=rms (expected layer)`.

    A tuple lists several allowed values.
    """
    found = []
    for name, value in required.items():
        allowed = value if isinstance(value, tuple) else (value,)
        if (given := getattr(model, name)) not in allowed:
            found.append(f"model.{name}={given} (expected {' or '.join(map(str, allowed))})")
    return found


def equal_head_widths(model: ModelConfig) -> Settings:
    """Return the required head widths of formats that divide the model width by the number of heads."""
    width = model.model_dim // model.num_heads
    return {"key_dim": (0, width), "value_dim": (0, width)}
