"""Description of a Hugging Face model family: the settings in config.json and the names of the tensors.

`ModelFormat.constants` are settings with the same value in all models of the family, and `keys` are settings that
config.json contains unchanged, so they serve import and export. All other settings are read and written by functions.
`EncoderLayerNames` names the tensors of BERT-like layers.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from clearhead.config import Config
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors
from clearhead.interop.settings import Settings, SettingsReader, unsupported_settings
from clearhead.interop.weight_mapping import TensorLink, WeightMapping, attention_links, linear_links

ACTIVATION_NAMES = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
"""clearhead's name of each activation function -> Hugging Face's name."""


@dataclass(frozen=True)
class ConfigKey:
    """Key of config.json for one setting of the model section."""

    key: str
    default: Any = None
    """Value in `transformers` if the key is missing; None: the key is required."""
    kind: Literal["positive_int", "token_id", "number", "activation"] = "positive_int"

    def read(self, options: SettingsReader) -> Any:
        """Return the value for the model section; raise InteropError if it is invalid."""
        read: Callable[[str, Any], Any] = getattr(options, self.kind)
        return read(self.key, self.default)

    def write(self, value: Any) -> Any:
        """Return the value for config.json."""
        return ACTIVATION_NAMES[value] if self.kind == "activation" else value


@dataclass(frozen=True)
class ModelFormat:
    """A model family of Hugging Face."""

    name: str
    """`model_type` in config.json."""
    title: str
    """Name of the family in messages."""
    architectures: Mapping[str, str]
    """Class of `transformers` -> clearhead's task; if several have the same task, the first is used for export."""
    constants: Mapping[str, Any]
    """Settings of the model section that all models of the family have."""
    keys: Mapping[str, ConfigKey]
    """Settings of the model section that config.json contains unchanged."""
    read_settings: Callable[[SettingsReader, CheckpointTensors, str], Settings]
    """Return the other settings of a model for a task, nested as in a recipe."""
    write_settings: Callable[[Config], Settings]
    """Return the other settings of config.json."""
    supported_settings: Callable[[Config], Settings]
    """Return the supported values of settings that are not constant; a tuple lists several values."""
    weight_mapping: Callable[[Config, Collection[str]], WeightMapping]
    """Return the weight mapping; the tensor names of a checkpoint (none: for export) determine the prefix of names."""
    derived_tensors: Callable[[Config], Mapping[str, Tensor]] = lambda config: {}
    """Return tensors that the format stores but clearhead computes, such as sinusoids."""
    attention_dropout_key: str = ""

    def read(self, options: SettingsReader, tensors: CheckpointTensors) -> Settings:
        """Return the settings of a checkpoint, nested as in a recipe."""
        task = _task_of(options, self.architectures)
        settings = self.read_settings(options, tensors, task)
        mapped = {name: key.read(options) for name, key in self.keys.items()}
        if task in ("classify", "tag", "image"):
            labels = _read_labels(options)
            settings = settings | {"labels": labels}
            mapped["num_labels"] = len(labels)
        return {"task": task, **settings, "model": {**self.constants, **mapped, **settings["model"]}}

    def write(self, config: Config) -> Settings:
        """Return the content of config.json for a config whose settings are all supported."""
        model = config.model
        settings = {
            "architectures": [next(name for name, task in self.architectures.items() if task == config.task)],
            "model_type": self.name,
            **{key.key: key.write(getattr(model, name)) for name, key in self.keys.items()},
            **self.write_settings(config),
        }
        if self.attention_dropout_key and model.attention_dropout:  # without it, the default of `transformers` applies
            settings[self.attention_dropout_key] = model.attention_dropout
        if config.labels:
            settings["id2label"] = {str(number): label for number, label in enumerate(config.labels)}
            settings["label2id"] = {label: number for number, label in enumerate(config.labels)}
        return settings

    def unsupported(self, config: Config) -> list[str]:
        """Return the settings that the family does not support; every family has residual connections."""
        return unsupported_settings(
            config.model, {"residual": True, **self.constants, **self.supported_settings(config)}
        )


def _task_of(options: SettingsReader, architectures: Mapping[str, str]) -> str:
    """Return the task of the `transformers` class that saved the weights, or raise InteropError."""
    names = options.get("architectures", [])
    if not isinstance(names, list) or len(names) != 1:
        raise InteropError(f"{options.name}: expected one name in architectures, found {names!r}")
    if names[0] not in architectures:
        raise InteropError(
            f"{options.name}: architecture {names[0]} is not supported; expected one of {', '.join(architectures)}"
        )
    return architectures[names[0]]


def _read_labels(options: SettingsReader) -> list[str]:
    """Return the labels in the order of their ids."""
    labels = options.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    try:
        return [labels[str(number)] for number in range(len(labels))]
    except (KeyError, TypeError) as error:
        raise InteropError(f"{options.name}: id2label must name the labels 0, 1, 2 and so on") from error


@dataclass(frozen=True)
class EncoderLayerNames:
    """Names of the tensors of one encoder layer, relative to the layer."""

    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    w1: str
    w2: str
    feed_forward_norm: str

    def links(self, external: str, num_layers: int) -> Iterator[TensorLink]:
        """Yield the links of all layers; `external`: name of the layers in the checkpoint."""
        for number in range(num_layers):
            local, prefix = f"backbone.encoder.layers.{number}", f"{external}.{number}"
            projections = [f"{prefix}.{name}" for name in (self.query, self.key, self.value)]
            yield from attention_links(f"{local}.self_attention", projections, f"{prefix}.{self.output}")
            yield from linear_links(f"{local}.self_attention_residual.norm", f"{prefix}.{self.attention_norm}")
            yield from linear_links(f"{local}.feed_forward.w1", f"{prefix}.{self.w1}")
            yield from linear_links(f"{local}.feed_forward.w2", f"{prefix}.{self.w2}")
            yield from linear_links(f"{local}.feed_forward_residual.norm", f"{prefix}.{self.feed_forward_norm}")
