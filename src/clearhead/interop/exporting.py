"""The formats that a model can be written in, by name, each into a new folder of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import BundleError, InteropError
from clearhead.files import filling, write_new
from clearhead.interop import ctranslate2, onnx


class Source(Protocol):
    """A model as a format sees it."""

    @property
    def config(self) -> Config: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def network(self) -> Any: ...


Exporter = Callable[[Source, Path, str], None]
"""Writes a model into an empty folder, with numbers of the kind that is named: float32, or int8 where there is one."""


def export(model: Source, out: Path, to: str, compute_type: str = "float32", overwrite: bool = False) -> None:
    """Writes a model into the folder `out`, which is not there before or is replaced as a whole."""
    if to not in EXPORTERS:
        raise InteropError(f"expected a format of {', '.join(EXPORTERS)}, not {to}")
    if out.exists() and not overwrite:
        raise BundleError(f"{out} exists already; choose another folder, or add --overwrite to replace it")
    try:
        with filling(out, overwrite) as aside:
            EXPORTERS[to](model, aside, compute_type)
            if model.config.model.has_text:
                write_new(aside / "tokenizer.json", model.tokenizer.to_json().encode())
    except OSError as error:
        raise BundleError(f"cannot write {out}: {error.strerror or error}; nothing was written") from error


def _to_ctranslate2(model: Source, folder: Path, compute_type: str) -> None:
    pieces = ctranslate2.vocabulary(model.tokenizer) if model.config.model.has_text else []
    ctranslate2.convert(model.network, pieces, folder, compute_type)  # type: ignore[arg-type]


def _to_onnx(model: Source, folder: Path, compute_type: str) -> None:
    if compute_type != "float32":
        raise InteropError(f"--to onnx writes float32, not {compute_type}; leave --compute-type out")
    onnx.write(model.network, folder)


EXPORTERS: dict[str, Exporter] = {"ctranslate2": _to_ctranslate2, "onnx": _to_onnx}
