"""Registry of export formats: each writes a model into a new folder, or lists the settings that it does not support."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import BundleError, InteropError
from clearhead.files import create_folder, write_new
from clearhead.interop import ctranslate2
from clearhead.interop.huggingface import folders
from clearhead.interop.onnx import encoders, generators
from clearhead.model.parameters import named_weights


class ExportSource(Protocol):
    """Model to be exported."""

    @property
    def config(self) -> Config: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def network(self) -> Any: ...


@dataclass(frozen=True)
class Exporter:
    """One export format."""

    title: Callable[[Config], str]
    """Name of the format for this model, in messages."""
    unsupported: Callable[[Config], list[str]]
    """Return the settings that the format does not support, each with the expected value; if empty, `write` succeeds.
    """
    write: Callable[[ExportSource, Path, str], list[str]]
    """Write a model into an empty folder with weights in float32 or int8; return notes for the user."""


def export(
    model: ExportSource, out: Path, to: str, compute_type: str = "float32", overwrite: bool = False
) -> list[str]:
    """Write a model into the new folder `out`, or with `overwrite` replace the folder; return notes for the user.

    Raise InteropError if the format does not support the model; the message lists the settings, and other formats.
    """
    if to not in EXPORTERS:
        raise InteropError(f"unknown export format {to!r}; expected one of {', '.join(EXPORTERS)}")
    if unsupported := EXPORTERS[to].unsupported(model.config):
        title = EXPORTERS[to].title(model.config)
        raise InteropError(f"{title} cannot express {', '.join(unsupported)}; {_alternative(model.config)}")
    if out.exists() and not overwrite:
        raise BundleError(f"{out} already exists; choose another folder, or add --overwrite to replace it")
    try:
        with create_folder(out, overwrite) as folder:
            return EXPORTERS[to].write(model, folder, compute_type)
    except OSError as error:
        raise BundleError(f"cannot write {out}: {error.strerror or error}; nothing was written") from error


def _alternative(config: Config) -> str:
    """Return the end of an error message: the formats that support the model, or the advice to use clearhead itself."""
    working = [name for name, exporter in EXPORTERS.items() if not exporter.unsupported(config)]
    if not working:
        return "no export format can express this model; run it with clearhead itself, for example `clearhead serve`"
    return f"{' and '.join(f'export --to {name}' for name in working)} work{'s' * (len(working) == 1)} for this model"


def _to_ctranslate2(model: ExportSource, folder: Path, compute_type: str) -> list[str]:
    vocabulary = ctranslate2.vocabulary_of(model.tokenizer)
    ctranslate2.convert(model.network, vocabulary, folder, compute_type)  # type: ignore[arg-type]
    return _add_tokenizer(model, folder)


def _to_onnx(model: ExportSource, folder: Path, compute_type: str) -> list[str]:
    _require_float32("onnx", compute_type)
    if model.config.model.head == "generation":
        generators.write_generator(model.network, folder)
        return _add_tokenizer(model, folder)
    tokenizer = model.tokenizer if model.config.model.has_text else None
    encoders.write_encoder(model.config, model.network, tokenizer, folder)
    return []


def _to_huggingface(model: ExportSource, folder: Path, compute_type: str) -> list[str]:
    _require_float32("huggingface", compute_type)
    tokenizer = model.tokenizer if model.config.model.has_text else None
    return folders.write_folder(model.config, named_weights(model.network), tokenizer, folder)


def _huggingface_title(config: Config) -> str:
    model_format, _ = folders.choose_format(config)
    return f"Hugging Face {model_format.title}" if model_format else "Hugging Face"


def _require_float32(to: str, compute_type: str) -> None:
    if compute_type != "float32":
        raise InteropError(f"--to {to} writes float32, not {compute_type}; leave out --compute-type")


def _add_tokenizer(model: ExportSource, folder: Path) -> list[str]:
    """Write the tokenizer in clearhead's own format."""
    write_new(folder / "tokenizer.json", model.tokenizer.to_json().encode())
    return []


EXPORTERS: dict[str, Exporter] = {
    "ctranslate2": Exporter(
        lambda config: "CTranslate2", lambda config: ctranslate2.unsupported(config.model), _to_ctranslate2
    ),
    "onnx": Exporter(lambda config: "ONNX", lambda config: generators.unsupported(config.model), _to_onnx),
    "huggingface": Exporter(_huggingface_title, lambda config: folders.choose_format(config)[1], _to_huggingface),
}
