"""Interfaces of inference engines, and the default engine of a model: native, or torch for models that need it.

Does not import torch.

H heads, T target length, S source length, N texts, D model width, L labels, M masked positions, V vocabulary
"""

import importlib.util
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.decoding.requests import Hypothesis, Request
from clearhead.errors import DecodingError, MissingPackageError
from clearhead.extras import install_command

Floats = NDArray[np.float32]


class Engine(Protocol):
    """Engine that generates token sequences."""

    @property
    def max_positions(self) -> int:
        """Largest number of tokens of a source, and of an output."""

    def run(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, best first; none for a request that is cancelled.

        Raises NoOutputError if the model returns no finite probabilities.
        """

    def stream(self, request: Request, settings: DecodingConfig) -> Generator[tuple[int, ...], None, Hypothesis]:
        """Yield ever longer beginnings of the best output, and return the hypothesis."""


class ScoringEngine(Protocol):
    """Engine that computes the probabilities of given outputs (forced decoding)."""

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention_layer: int | None = None,
    ) -> list[tuple[Floats, Floats | None]]:
        """Return for each pair the log-probabilities of the target tokens and, if a decoder layer is given, its
        cross-attention [H, T, S].

        A translator predicts target token t from the source and the target tokens before t; source and target have
        their end token. A language model predicts target token t from source tokens 0 to t.
        """


class EncoderEngine(Protocol):
    """Engine that encodes texts: classification, tagging, embedding, masked language modelling."""

    def pooled(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return one vector [D] per text, pooled as the model is configured."""

    def mean_states(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the mean of the encoder states [D] per text."""

    def logits(self, rows: Sequence[Sequence[int]]) -> list[Any]:
        """Return the logits of the labels: [L] per text, or [S, L] for token classification."""

    def masked_lm(self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probabilities [M, V] at the given positions of each text."""


class ImageEngine(Protocol):
    """Engine that classifies images."""

    def image_logits(self, pixels_NCYX: Floats) -> Floats:
        """Return the logits [L] of each image of a batch; pixels are from -1 to 1."""


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
        """Return why the engine cannot be used on this machine, "" if it can: torch is not installed, or it may not
        replace a missing core."""
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
    """Return the default engine; `is_changed`: the torch network was modified after loading, such as by an ablation."""
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
