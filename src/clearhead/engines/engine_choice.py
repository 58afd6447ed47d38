"""Choice of the engine that runs a model: the native one, unless only torch can."""

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from typing import Literal

from clearhead.config import ModelConfig
from clearhead.errors import DecodingError, MissingPackageError
from clearhead.extras import install_command

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
        name, reason = self.to_json().values()
        return f"{name} ({reason})" if reason else name

    def to_json(self) -> dict[str, str]:
        """Return name and reason; the name is none if the engine cannot be used on this machine."""
        problem = self.problem()
        return {"name": "none", "reason": problem} if problem else {"name": self.name, "reason": self.reason}

    def problem(self) -> str:
        """Return why the engine cannot be used on this machine: torch is not installed, or may not replace a missing
        core. Empty if it can."""
        if self.name != "torch":
            return ""
        if not has_torch():
            return NEITHER if self._is_fallback() else f"{self.reason}; {install_command('train')}"
        return _why_no_fallback() if self._is_fallback() else ""

    def require(self, compute_type: str = "float32") -> None:
        """Raise MissingPackageError if the engine cannot be used here, DecodingError if it has no such compute type.

        The first time that torch replaces a missing core, this is reported on stderr.
        """
        if self.name == "torch" and compute_type != "float32":
            reason = self.reason.rstrip(".")
            raise DecodingError(f"{compute_type} needs the native engine, which cannot run this model: {reason}")
        if problem := self.problem():
            raise MissingPackageError(problem)
        if self._is_fallback():
            _report_fallback(self.reason)

    def _is_fallback(self) -> bool:
        """Return whether torch replaces a missing core."""
        return self.name == "torch" and self.reason == _why_unavailable() != ""


def choose_engine(model: ModelConfig, is_changed: bool = False) -> EngineChoice:
    """Return the default engine; `is_changed`: the network differs from its weights, such as by an ablation."""
    if is_changed:
        return EngineChoice("torch", "the network was changed")
    if reason := _why_unsupported(model) or _why_unavailable():
        return EngineChoice("torch", reason)
    return EngineChoice("native")


def check_engine(name: str, compute_type: str) -> None:
    """Raise DecodingError for unknown names, and for int8 with torch. `name`: empty for the default engine."""
    if name not in ("", *ENGINES) or compute_type not in COMPUTE_TYPES:
        raise DecodingError(
            f"expected an engine of {', '.join(ENGINES)} and a compute type of {', '.join(COMPUTE_TYPES)}, "
            f"found {name} and {compute_type}"
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


def _why_no_fallback() -> str:
    """Return why torch may not replace a missing core; empty if it may."""
    from clearhead.runtime.availability import why_no_fallback

    return why_no_fallback()


def _why_unsupported(model: ModelConfig) -> str:
    """Return why the core cannot run this architecture; empty if it can."""
    from clearhead.runtime.prepare import why_unsupported

    return why_unsupported(model)
