"""The formats that a model can be written in, by name, each into a new folder of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import BundleError, InteropError
from clearhead.files import filling, write_new
from clearhead.interop import ctranslate2, huggingface_folder, onnx
from clearhead.model.weights import named_weights


class Source(Protocol):
    """A model as a format sees it."""

    @property
    def config(self) -> Config: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def network(self) -> Any: ...


Exporter = Callable[[Source, Path, str], list[str]]
"""Writes a model into an empty folder, with numbers of the kind that is named: float32, or int8 where there is one.

Gives what could not come along."""


def export(model: Source, out: Path, to: str, compute_type: str = "float32", overwrite: bool = False) -> list[str]:
    """Writes a model into the folder `out`, which is not there before or is replaced as a whole.

    Gives what could not come along, for the user to know.
    """
    if to not in EXPORTERS:
        raise InteropError(f"expected a format of {', '.join(EXPORTERS)}, not {to}")
    if out.exists() and not overwrite:
        raise BundleError(f"{out} exists already; choose another folder, or add --overwrite to replace it")
    try:
        with filling(out, overwrite) as aside:
            return EXPORTERS[to](model, aside, compute_type)
    except OSError as error:
        raise BundleError(f"cannot write {out}: {error.strerror or error}; nothing was written") from error


def _to_ctranslate2(model: Source, folder: Path, compute_type: str) -> list[str]:
    has_text = model.config.model.has_text
    vocabulary = ctranslate2.vocabulary_of(model.tokenizer) if has_text else ctranslate2.Vocabulary(())
    ctranslate2.convert(model.network, vocabulary, folder, compute_type)  # type: ignore[arg-type]
    return _add_tokenizer(model, folder)


def _to_onnx(model: Source, folder: Path, compute_type: str) -> list[str]:
    _need_float32("onnx", compute_type)
    onnx.write(model.network, folder)
    return _add_tokenizer(model, folder)


def _to_huggingface(model: Source, folder: Path, compute_type: str) -> list[str]:
    _need_float32("huggingface", compute_type)
    tokenizer = model.tokenizer if model.config.model.has_text else None
    return huggingface_folder.write(model.config, named_weights(model.network), tokenizer, folder)


def _need_float32(to: str, compute_type: str) -> None:
    if compute_type != "float32":
        raise InteropError(f"--to {to} writes float32, not {compute_type}; leave --compute-type out")


def _add_tokenizer(model: Source, folder: Path) -> list[str]:
    """Our own tokenizer, where the format has none."""
    if model.config.model.has_text:
        write_new(folder / "tokenizer.json", model.tokenizer.to_json().encode())
    return []


EXPORTERS: dict[str, Exporter] = {
    "ctranslate2": _to_ctranslate2,
    "onnx": _to_onnx,
    "huggingface": _to_huggingface,
}
