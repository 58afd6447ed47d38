"""Choice of the engine that runs a model: the native one, unless only torch can."""

import importlib.util
import sys
from dataclasses import dataclass
from typing import Literal

from clearhead.config import ModelConfig
from clearhead.data.extras import install_command
from clearhead.errors import DecodingError, MissingPackageError

EngineName = Literal["native", "torch", "ctranslate2"]
ENGINES: tuple[EngineName, ...] = ("native", "torch", "ctranslate2")
COMPUTE_TYPES = ("float32", "int8")


@dataclass(frozen=True)
class EngineChoice:
    """The default engine of a model."""

    name: EngineName
    reason: str
    """Why the native engine cannot run the model; empty if it does."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def choose_engine(model: ModelConfig, is_changed: bool = False) -> EngineChoice:
    """Return the default engine; `is_changed`: the network differs from its weights, such as by an ablation.

    Raises MissingPackageError if torch is needed and not installed. The first time that torch is chosen because the
    core is missing, say so on stderr.
    """
    if is_changed:
        return EngineChoice("torch", "the network was changed")
    return EngineChoice("torch", "the native engine is not wired yet")


def check_engine(name: str, compute_type: str) -> None:
    """Raise DecodingError for unknown names, and for int8 with torch."""
    if name not in ENGINES or compute_type not in COMPUTE_TYPES:
        raise DecodingError(
            f"expected an engine of {', '.join(ENGINES)} and a compute type of {', '.join(COMPUTE_TYPES)}, "
            f"not {name} and {compute_type}"
        )
    if name == "torch" and compute_type != "float32":
        raise DecodingError(f"the torch engine computes in float32, not in {compute_type}; use --engine native")


def check_native(model: ModelConfig) -> None:
    """Raise DecodingError if the native engine cannot run this model."""
    raise DecodingError("the native engine cannot run this model; use --engine torch")


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def require_torch(problem: str) -> None:
    """Raise MissingPackageError if torch is not installed."""
    if not has_torch():
        raise MissingPackageError(f"{problem}, or {install_command('train')}")
