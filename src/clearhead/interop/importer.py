"""Import of checkpoints: detection of the format, conversion, and saving as a bundle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead import bundle
from clearhead.bundle.writer import save as save_bundle
from clearhead.config import Config
from clearhead.errors import BundleError, InteropError
from clearhead.interop import fairseq, pytorch_state_dicts
from clearhead.interop.checkpoint_tensors import InMemoryTensors, SafetensorsFiles, load_pickle
from clearhead.interop.huggingface import folders
from clearhead.interop.weight_mapping import ImportedModel
from clearhead.model.registry import with_tied_names

STATE_DICT_KEYS = ("model_state_dict", "state_dict", "model")
"""Keys under which training scripts save the state dict."""


@dataclass(frozen=True)
class ImportSource:
    """A checkpoint to import, with the options of the user."""

    path: Path
    dictionaries: Sequence[Path] = ()
    codes: Path | None = None
    settings: Mapping[str, Any] | None = None
    """Settings that override those of the checkpoint."""


@dataclass(frozen=True)
class ImportResult:
    """Summary of an imported model."""

    folder: Path
    config: Config
    format: str
    parameters: int
    unused_tensors: list[str]
    notes: list[str]


def import_checkpoint(source: ImportSource, out: Path, overwrite: bool = False) -> ImportResult:
    """Convert a checkpoint into a bundle and return a summary."""
    if bundle.exists(out) and not overwrite:
        raise BundleError(f"{out} already contains a model; choose another folder, or add --overwrite to replace it")
    imported = read_checkpoint(source)
    parameters = sum(tensor.numel() for tensor in imported.weights.values())
    save_bundle(
        out,
        weights=with_tied_names(imported.config.model, imported.weights),
        config=imported.config.model_dump(mode="json"),
        tokenizer=imported.tokenizer.to_json() if imported.tokenizer else bundle.NO_TOKENIZER,
        weights_kind="imported",
        data=imported.config.data.language_settings(),
        training={"imported_from": source.path.name, "format": imported.format, "parameters": parameters},
    )
    return ImportResult(out, imported.config, imported.format, parameters, imported.unused_tensors, imported.notes)


def read_checkpoint(source: ImportSource) -> ImportedModel:
    """Return the model of a checkpoint in any supported format, or raise InteropError."""
    path, settings = source.path, dict(source.settings or {})
    if not path.exists():
        raise InteropError(
            f"{path} does not exist; expected a local folder or file (no model is downloaded from the Hugging Face Hub)"
        )
    if folders.is_folder(path):
        if source.dictionaries or source.codes:
            raise InteropError(f"--dict and --codes have no effect for {path}, which has a tokenizer; leave them out")
        return folders.read_folder(path, settings)
    if path.is_dir():
        raise InteropError(
            f"{path} is not a Hugging Face folder, because it has no config.json; for another toolkit, name the "
            "checkpoint file itself, such as checkpoint_best.pt"
        )
    if path.suffix == ".safetensors":
        return _read_state_dict(SafetensorsFiles.open_file(path), source, settings)
    content = load_pickle(path)
    if fairseq.is_checkpoint(content):
        return fairseq.read_checkpoint(content, path, source.dictionaries, source.codes, settings)
    return _read_state_dict(InMemoryTensors(_find_state_dict(content, path)), source, settings)


def _read_state_dict(
    tensors: InMemoryTensors | SafetensorsFiles, source: ImportSource, settings: dict[str, Any]
) -> ImportedModel:
    if not pytorch_state_dicts.is_state_dict(list(tensors.shapes)):
        raise InteropError(
            f"{source.path}: the tensor names match none of the supported formats (fairseq, nn.Transformer, Annotated "
            f"Transformer); found {', '.join(list(tensors.shapes)[:4]) or 'no tensors'}"
        )
    if source.codes:
        raise InteropError(
            "--codes has no effect for a state dict, because its vocabulary consists of words; leave it out"
        )
    return pytorch_state_dicts.read_state_dict(tensors, source.path, source.dictionaries, settings)


def _find_state_dict(content: object, path: Path) -> dict[str, Tensor]:
    """Return the state dict in the content of a file, directly or under a key of STATE_DICT_KEYS.

    Raise InteropError if there is none.
    """
    for key in STATE_DICT_KEYS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    items = content.items() if isinstance(content, dict) else ()
    tensors = {str(name): value for name, value in items if isinstance(value, Tensor)}
    if not tensors:
        raise InteropError(f"{path} does not contain a state dict; save model.state_dict() with torch.save")
    return tensors
