"""Choice of the engine that runs a model: the native one, unless only torch can."""

import importlib.util
import sys
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from clearhead.config import ModelConfig
from clearhead.data.extras import install_command
from clearhead.errors import DecodingError, MissingPackageError

EngineName = Literal["native", "torch"]
ENGINES: tuple[EngineName, ...] = ("native", "torch")
COMPUTE_TYPES = ("float32", "int8")
NEITHER = (
    "neither the C++ core nor torch is installed; install a C++17 compiler (g++ or clang++) and reinstall clearhead, "
    f"or {install_command('train')}"
)


@dataclass(frozen=True)
class EngineChoice:
    """The default engine of a model."""

    name: EngineName
    reason: str = ""
    """Why the native engine cannot run the model; empty if it does."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    def require(self) -> None:
        """Raise MissingPackageError if this is torch and torch is not installed, or may not replace a missing core.

        The first time that torch is used because the core is missing, say so on stderr; with CI set that is an error.
        """
        if self.name != "torch":
            return
        core_problem = _why_unavailable()
        is_fallback = self.reason == core_problem != ""
        if not has_torch():
            raise MissingPackageError(NEITHER if is_fallback else f"{self.reason}; {install_command('train')}")
        if is_fallback:
            _check_fallback()
            _report_fallback(core_problem)


def choose_engine(model: ModelConfig, is_changed: bool = False) -> EngineChoice:
    """Return the default engine; `is_changed`: the network differs from its weights, such as by an ablation."""
    if is_changed:
        return EngineChoice("torch", "the network was changed")
    if reason := _why_unsupported(model) or _why_unavailable():
        return EngineChoice("torch", reason)
    return EngineChoice("native")


def check_engine(name: str, compute_type: str) -> None:
    """Raise DecodingError for unknown names, and for int8 with torch."""
    if name not in ENGINES or compute_type not in COMPUTE_TYPES:
        raise DecodingError(
            f"expected an engine of {', '.join(ENGINES)} and a compute type of {', '.join(COMPUTE_TYPES)}, "
            f"not {name} and {compute_type}"
        )
    if name == "torch" and compute_type != "float32":
        raise DecodingError(f"the torch engine computes in float32, not in {compute_type}; use the native engine")


def check_native(model: ModelConfig) -> None:
    """Raise DecodingError if the native engine cannot run this model."""
    if reason := _why_unavailable() or _why_unsupported(model):
        raise DecodingError(f"the native engine cannot run this model: {reason.rstrip('.')}; use --engine torch")


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return sys.modules.get("torch") is not None or importlib.util.find_spec("torch") is not None


@cache
def _report_fallback(reason: str) -> None:
    print(f"The slower torch engine is used. {reason}", file=sys.stderr)


def _why_unavailable() -> str:
    """Return why the core cannot be used on this machine; empty if it can. Imports the runtime on first use."""
    from clearhead.runtime.availability import why_unavailable

    return why_unavailable()


def _check_fallback() -> None:
    """Raise MissingPackageError if torch may not replace a missing core."""
    from clearhead.runtime.availability import check_fallback

    check_fallback()


def _why_unsupported(model: ModelConfig) -> str:
    """Return why the core cannot run this architecture; empty if it can."""
    from clearhead.runtime.prepare import why_unsupported

    return why_unsupported(model)
