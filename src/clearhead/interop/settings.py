"""Reading the settings of another toolkit: what clearhead lacks is refused by name, never approximated.

Which networks are what their weights say.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from clearhead.errors import InteropError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


class SettingsReader:
    """The settings of a foreign model, and the file that they stand in."""

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self.settings, self.name = settings, name

    def get(self, key: str, default: Any = None) -> Any:
        """A setting, or what their toolkit takes where it is left out."""
        value = self.settings.get(key)
        return default if value is None else value

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number above zero."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InteropError(f"{self.name}: expected a whole number for {key}, found {value!r}")
        return value

    def identifier(self, key: str, default: int | None = None) -> int:
        """The id of a piece; of several, the first."""
        value = self.get(key, default)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InteropError(f"{self.name}: expected the id of a piece for {key}, found {value!r}")
        return value

    def small(self, key: str, default: float) -> float:
        """A number, such as a dropout or an epsilon."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InteropError(f"{self.name}: expected a number for {key}, found {value!r}")
        return float(value)

    def activation(self, key: str, default: str) -> str:
        """A non-linearity in our words."""
        return self.choice(key, default, ACTIVATIONS, "activation")

    def choice(self, key: str, default: str, known: Mapping[str, str], what: str = "") -> str:
        """A named option in our words."""
        value = str(self.get(key, default))
        if value not in known:
            raise InteropError(
                f"{what or key} {value} is not supported; {self.name} asks for it. Known: {', '.join(known)}"
            )
        return known[value]

    def only(self, **allowed: Any) -> None:
        """Options that have one value here; any other is refused by name. What is left out has that value there too."""
        for key, value in allowed.items():
            found = self.get(key, value)
            if found != value:
                raise InteropError(f"{key} {found} is not supported, only {value}; {self.name} asks for it")


def require_unchanged(network: nn.Module) -> None:
    """Refuses a network in which parts are switched off or watched: another format would hold its weights alone."""
    if any(module._forward_hooks or module._forward_pre_hooks for module in network.modules()):
        raise InteropError(
            "expected a network as it was saved, got one with parts switched off; export the model as it was loaded"
        )
