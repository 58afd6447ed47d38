"""From a checkpoint of another toolkit to a bundle: recognise, convert, save."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead.config import Config
from clearhead.errors import BundleError, InteropError
from clearhead.interop import huggingface
from clearhead.interop.huggingface import Foreign


@dataclass(frozen=True)
class Source:
    """What a user wants to import."""

    path: Path
    dictionaries: Sequence[Path] = ()
    codes: Path | None = None
    settings: Mapping[str, Any] | None = None  # on top of what the checkpoint says


@dataclass(frozen=True)
class Imported:
    """What was written."""

    folder: Path
    config: Config
    format: str
    parameters: int
    left_out: list[str]


def import_checkpoint(source: Source, out: Path, overwrite: bool = False) -> Imported:
    """Converts a checkpoint into a bundle."""
    if bundle.exists(out) and not overwrite:
        raise BundleError(f"{out} holds a model already; choose another folder, or give --overwrite")
    foreign = read(source)
    parameters = sum(tensor.numel() for tensor in foreign.weights.values())
    bundle.save(
        out,
        weights=foreign.weights,
        config=foreign.config.model_dump(mode="json"),
        tokenizer=foreign.tokenizer.to_json() if foreign.tokenizer else bundle.NO_TOKENIZER,
        weights_kind="imported",
        data={},
        training={"imported_from": source.path.name, "format": foreign.format, "parameters": parameters},
    )
    return Imported(out, foreign.config, foreign.format, parameters, foreign.left_out)


def read(source: Source) -> Foreign:
    """The checkpoint, whatever format it has."""
    path = source.path
    if not path.exists():
        raise InteropError(f"there is no {path}; expected a folder or file on this machine, not a name on a hub")
    if huggingface.is_folder(path):
        return huggingface.read_folder(path, source.settings or {})
    raise InteropError(f"{path} is no checkpoint of a known format; expected a Hugging Face folder with config.json")
