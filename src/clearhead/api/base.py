"""Base class of a loaded model: settings, engines, and checks of the task and the input."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from clearhead import config as configs
from clearhead.bundle import Manifest
from clearhead.config import Config, DecodingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import require_encodable
from clearhead.decoding.generator import Generator
from clearhead.engines.engine import (
    EncoderEngine,
    Engine,
    EngineChoice,
    ImageEngine,
    ScoringEngine,
    check_engine,
    check_native,
    choose_engine,
)
from clearhead.engines.model_weights import ModelWeights
from clearhead.engines.native_engine import NativeEncoderEngine, NativeScoringEngine
from clearhead.engines.native_generator import NativeGenerator
from clearhead.engines.threads import num_threads
from clearhead.errors import ConfigError, DataError, DecodingError, TaskError
from clearhead.extras import require_package
from clearhead.runtime import ComputeType, NativeModel
from clearhead.tasks.decoding_settings import check_decoding
from clearhead.tasks.engines import open_engine
from clearhead.tasks.lexical_constraints import resolve_constraints
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Task

if TYPE_CHECKING:
    from clearhead.engines.torch_forward import TorchEncoderEngine


StrPath = str | Path


@dataclass(frozen=True)
class ModelBase:
    """Weights, tokenizer, settings and manifest of a model folder, with the engines that run the model."""

    folder: Path
    config: Config
    tokenizer: Tokenizer
    weights: ModelWeights
    manifest: Manifest
    engine_name: str = ""
    """native or torch; empty: native for models that it supports, else torch."""
    compute_type: str = "float32"
    _engines: dict[Any, Engine] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def task(self) -> Task:
        """The task of the model."""
        return get_task(self.config.task)

    def require_task(self, verb: str, *, images: bool = False, purpose: str = "") -> None:
        """Raise TaskError if the model was not trained for this command or this kind of input.

        The error names `purpose`, by default the command.
        """
        if verb != self.task.verb:
            raise TaskError(
                f"{self.folder} was trained for the task {self.config.task}: it cannot {purpose or verb}. "
                f"Use clearhead {self.task.verb} {self.folder}"
            )
        self._require_input(images=images)

    def _require_input(self, *, images: bool) -> None:
        """Raise TaskError for text given to an image model, or images given to a text model."""
        verb = self.task.verb
        if images and not self.config.model.reads_images:
            raise TaskError(
                f"{self.folder} reads text, not image files: expected lines on standard input, as in "
                f"clearhead {verb} {self.folder} < input.txt"
            )
        if not images and self.config.model.reads_images:
            raise TaskError(
                f"{self.folder} reads images, not text: expected image files, as in "
                f"clearhead {verb} {self.folder} image.png"
            )
        self.require_tag()

    def require_tag(self) -> None:
        """Raise TaskError if the model was trained with a tag before every source and none is set."""
        tags = self.config.data.source_tags
        if tags and not self.tokenizer.tag:
            raise TaskError(
                f"{self.folder} was trained with a tag before every source: choose one of "
                f"{', '.join(sorted(set(tags)))} with --tag, or with_tag in Python"
            )

    def with_tag(self, tag: str) -> Self:
        """Return this model with a tag, such as a language or a domain, before every source.

        Raise TaskError if the model was not trained with this tag.
        """
        tags = sorted(set(self.config.data.source_tags))
        if tag not in tags:
            if not tags:
                raise TaskError(f"{self.folder} was trained without tags; leave out the tag {tag!r}")
            raise TaskError(
                f"{self.folder} was trained with the tags {', '.join(tags)}, not {tag!r}; choose one of its tags"
            )
        return replace(self, tokenizer=self.tokenizer.with_tag(tag))

    def with_table(self, settings: Mapping[str, Any]) -> Self:
        """Return this model with other settings for reading tables, such as {"columns": "text=2,label=1"}."""
        if not settings:
            return self
        if "columns" not in self.task.data_fields:
            raise ConfigError(
                f"{self.folder} was trained for the task {self.config.task}, whose files are not tables; leave out "
                f"{', '.join(settings)}"
            )
        return replace(self, config=configs.override(self.config, {"data": settings}))

    def decoding(self, verb: str = "", **overrides: Any) -> DecodingConfig:
        """Return the decoding settings of the model with the given ones replaced; a value of None replaces nothing.

        Raise ConfigError for a setting that has no effect for the command `verb` (default: that of the task), or in
        combination with the others.
        """
        overrides = {name: value for name, value in overrides.items() if value is not None}
        merged = configs.override_decoding(self.config, overrides)
        verb = verb or self.task.verb
        check_decoding(overrides, merged, verb, f"clearhead {verb}")
        return merged

    def _resolve_settings(
        self, settings: DecodingConfig | None, build: Callable[..., DecodingConfig], **overrides: Any
    ) -> DecodingConfig:
        """Return `settings`, or by default `build(**overrides)`; raise ConfigError for settings and overrides."""
        names = [name for name, value in overrides.items() if value is not None]
        if settings is not None and names:
            raise ConfigError(f"expected settings or {', '.join(names)}, got both; set {', '.join(names)} in settings")
        return settings or build(**overrides)

    @property
    def network(self) -> Any:
        """The torch network, built on first use."""
        return self.weights.torch_network

    def with_network(self, network: Any) -> Self:
        """Return this model with another torch network, such as one with heads ablated; torch is its engine."""
        weights = ModelWeights(self.config.model, network=network)
        return replace(self, weights=weights, engine_name="", compute_type="float32")

    @property
    def engine_choice(self) -> EngineChoice:
        """The default engine of this model with the reason."""
        return choose_engine(self.config.model, self.weights.is_changed)

    def engine(self, name: str = "", compute_type: str = "", token_log_probs: bool = True) -> Engine:
        """Return an engine that generates text: native or torch; by default that of this model.

        Only the native engine computes in int8. Without `token_log_probs` its greedy search omits the softmax,
        and scores are NaN.
        """
        name, compute_type = self._resolve_engine(name, compute_type)
        key = (name, compute_type, token_log_probs, num_threads())
        if name == "torch" or key not in self._engines:  # torch's number of threads may have changed
            self._engines[key] = open_engine(self, name, compute_type, token_log_probs)
        return self._engines[key]

    def _resolve_engine(self, name: str = "", compute_type: str = "") -> tuple[str, str]:
        """Return the name of the engine and the compute type; raise an error if they do not fit the model."""
        compute_type = compute_type or self.compute_type
        name = name or self.engine_name
        check_engine(name, compute_type)
        if not name:
            choice = self.engine_choice
            choice.require(compute_type)
            name = choice.name
        if name == "native" and self.weights.is_changed:
            raise DecodingError(
                "the native engine runs saved models only, but this model was changed in memory; use the torch engine"
            )
        return name, compute_type

    @property
    def generating_engine(self) -> Engine:
        """The engine that generates text, at once or as a stream of tokens."""
        return self.engine()

    @property
    def generator(self) -> Generator:
        """The decoding steps of the engine, for a search that is recorded or follows a given output."""
        if self._uses_native():
            return NativeGenerator(self._native())
        from clearhead.engines.torch_forward import TorchGenerator

        return TorchGenerator(self.network, self.config.model.pad_id)

    @property
    def encoder_engine(self) -> EncoderEngine:
        """The engine that encodes texts."""
        if self._uses_native():
            return NativeEncoderEngine(self._native(), num_threads())
        return self._torch_encoder_engine()

    @property
    def image_engine(self) -> ImageEngine:
        """The engine that classifies images."""
        return self._torch_encoder_engine()

    @property
    def scoring_engine(self) -> ScoringEngine:
        """The engine that computes the probabilities of given outputs."""
        if self._uses_native():
            return NativeScoringEngine(self._native(), num_threads())
        from clearhead.engines.torch_forward import TorchScoringEngine

        return TorchScoringEngine(self.network)

    def require_engine(self) -> None:
        """Raise MissingPackageError or DecodingError if the engine of this model cannot be used on this machine."""
        if not self._uses_native():
            require_package("torch", "the torch engine")

    def _uses_native(self) -> bool:
        """Return whether the engine of this model is native; raise DecodingError if it cannot run the model."""
        name, _ = self._resolve_engine()
        if name == "native":
            check_native(self.config.model)
        return name == "native"

    def _native(self) -> NativeModel:
        """Return the native model with the compute type of this model."""
        return self.weights.native_model(cast(ComputeType, self._resolve_engine()[1]))

    def _torch_encoder_engine(self) -> "TorchEncoderEngine":
        from clearhead.engines.torch_forward import TorchEncoderEngine

        return TorchEncoderEngine(self.network)

    def export(self, out: StrPath, to: str, *, compute_type: str = "float32", overwrite: bool = False) -> list[str]:
        """Export to the format `to`, one of ctranslate2, onnx and huggingface, and return notes for the user."""
        from clearhead.interop.exporter import export

        return export(self, Path(out), to, compute_type, overwrite)

    def check_n_best(self, n_best: int, settings: DecodingConfig) -> None:
        """Raise DecodingError if more hypotheses are requested than the beam size, or for unsatisfiable constraints."""
        if n_best > settings.beam_size and settings.method == "search":
            raise DecodingError(
                f"n_best={n_best} needs a beam size of at least {n_best}, not {settings.beam_size}; increase it"
            )
        resolve_constraints(settings, self.tokenizer.target)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.task.codec.encode(self.tokenizer, texts)


def paths_of(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    """Return a path or several paths as a list."""
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def check_text(text: Any) -> str:
    """Return the text; raise DataError if it is not a str, TokenizerError if it contains an unpaired surrogate."""
    if not isinstance(text, str):
        raise DataError(f"expected a text (str), got {type(text).__name__}")
    return require_encodable(text)


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list; raise DataError unless they are a sequence of str."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise DataError(f"expected a text (str) or a list of texts, got {type(texts).__name__}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"expected a list of texts, but item {number} has the type {type(text).__name__}")
        require_encodable(text)
    return list(texts)
