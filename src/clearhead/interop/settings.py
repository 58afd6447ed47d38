"""Settings of other toolkits: validation on import, and the check that an export format supports a model's settings.

A setting that clearhead or the format does not support is refused; it is never approximated.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InteropError

Settings = dict[str, Any]

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Hugging Face's name of each activation function -> clearhead's name."""


class SettingsReader:
    """Settings of a model of another toolkit, and the name of the file that contains them."""

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self.settings, self.name = settings, name

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting; if it is missing or null, the default of the other toolkit."""
        value = self.settings.get(key)
        return default if value is None else value

    def positive_int(self, key: str, default: int | None = None) -> int:
        """Return an integer above 0, or raise InteropError."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InteropError(f"{self.name}: expected a positive integer for {key}, found {value!r}")
        return value

    def token_id(self, key: str, default: int | None = None) -> int:
        """Return an integer of 0 or more, such as a token id, or the first of a list; raise InteropError otherwise."""
        value = self.get(key, default)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InteropError(f"{self.name}: expected an integer of 0 or more for {key}, found {value!r}")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a number, such as a dropout probability, or raise InteropError."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InteropError(f"{self.name}: expected a number for {key}, found {value!r}")
        return float(value)

    def activation(self, key: str, default: str) -> str:
        """Return clearhead's name of an activation function, or raise InteropError."""
        return self.choice(key, default, ACTIVATIONS, "activation")

    def choice(self, key: str, default: str, supported: Mapping[str, str], label: str = "") -> str:
        """Return the value of `supported` for an option, or raise InteropError; `label` is its name in the message."""
        value = str(self.get(key, default))
        if value not in supported:
            raise InteropError(
                f"{self.name}: {label or key} {value} is not supported; expected one of {', '.join(supported)}"
            )
        return supported[value]

    def require(self, **expected: Any) -> None:
        """Raise InteropError for a setting with another value than expected; missing settings are accepted."""
        for key, value in expected.items():
            found = self.get(key, value)
            if found != value:
                raise InteropError(f"{self.name}: {key} {found} is not supported; expected {value}")


def unsupported_settings(model: ModelConfig, supported: Mapping[str, Any]) -> list[str]:
    """Return every setting whose value is not supported, in the form `model.norm=rms (expected layer)`.

    The values of `supported` are the supported value of a setting, or a tuple of several.
    """
    unsupported = []
    for name, values in supported.items():
        values = values if isinstance(values, tuple) else (values,)
        if (value := getattr(model, name)) not in values:
            unsupported.append(f"model.{name}={value} (expected {' or '.join(map(str, values))})")
    return unsupported


def equal_head_widths(model: ModelConfig) -> Settings:
    """Return the supported head widths for a format that has none: the model width divided by the number of heads."""
    width = model.model_dim // model.num_heads
    return {"key_dim": (0, width), "value_dim": (0, width)}


def require_unchanged(network: nn.Module) -> None:
    """Raise InteropError if hooks are attached, such as those of an ablation, since an export contains only weights."""
    if any(module._forward_hooks or module._forward_pre_hooks for module in network.modules()):
        raise InteropError(
            "the network has forward hooks, such as those of an ablation, which cannot be exported; export the model "
            "without them"
        )
