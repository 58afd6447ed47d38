"""From a checkpoint of another toolkit to a bundle: recognise, convert, save."""

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
from clearhead.interop.huggingface.model_format import ImportedModel
from clearhead.model.registry import with_tied_names

STATE_DICT_KEYS = ("model_state_dict", "state_dict", "model")  # where training scripts put the state dict


@dataclass(frozen=True)
class ImportSource:
    """What a user wants to import."""

    path: Path
    dictionaries: Sequence[Path] = ()
    codes: Path | None = None
    settings: Mapping[str, Any] | None = None  # on top of what the checkpoint says


@dataclass(frozen=True)
class ImportResult:
    """What was written."""

    folder: Path
    config: Config
    format: str
    parameters: int
    left_out: list[str]
    notes: list[str]


def import_checkpoint(source: ImportSource, out: Path, overwrite: bool = False) -> ImportResult:
    """Converts a checkpoint into a bundle."""
    if bundle.exists(out) and not overwrite:
        raise BundleError(f"{out} holds a model already; choose another folder, or give --overwrite")
    foreign = read_checkpoint(source)
    parameters = sum(tensor.numel() for tensor in foreign.weights.values())
    save_bundle(
        out,
        weights=with_tied_names(foreign.config.model, foreign.weights),
        config=foreign.config.model_dump(mode="json"),
        tokenizer=foreign.tokenizer.to_json() if foreign.tokenizer else bundle.NO_TOKENIZER,
        weights_kind="imported",
        data=foreign.config.data.language_facts(),
        training={"imported_from": source.path.name, "format": foreign.format, "parameters": parameters},
    )
    return ImportResult(out, foreign.config, foreign.format, parameters, foreign.left_out, foreign.notes)


def read_checkpoint(source: ImportSource) -> ImportedModel:
    """The checkpoint, whatever format it has."""
    path, settings = source.path, dict(source.settings or {})
    if not path.exists():
        raise InteropError(f"there is no {path}; expected a folder or file on this machine, not a name on a hub")
    if folders.is_folder(path):
        if source.dictionaries or source.codes:
            raise InteropError(f"--dict and --codes have no meaning for {path}, which has a tokenizer of its own")
        return folders.read_folder(path, settings)
    if path.is_dir():
        raise InteropError(
            f"{path} has no config.json, so it is no Hugging Face folder; name the checkpoint file itself, such as "
            "checkpoint_best.pt"
        )
    if path.suffix == ".safetensors":
        return _read_state_dict(SafetensorsFiles.open_file(path), source, settings)
    found = load_pickle(path)
    if fairseq.is_checkpoint(found):
        return fairseq.read_checkpoint(found, path, source.dictionaries, source.codes, settings)
    return _read_state_dict(InMemoryTensors(_state_dict(found, path)), source, settings)


def _read_state_dict(
    tensors: InMemoryTensors | SafetensorsFiles, source: ImportSource, settings: dict[str, Any]
) -> ImportedModel:
    if not pytorch_state_dicts.is_state_dict(list(tensors.shapes)):
        raise InteropError(
            f"{source.path} has names of no known layout (fairseq, nn.Transformer, Annotated Transformer): "
            f"{', '.join(list(tensors.shapes)[:4]) or 'no tensor at all'}"
        )
    if source.codes:
        raise InteropError("--codes has no meaning for a state dict, whose vocabulary is words; leave it out")
    return pytorch_state_dicts.read_state_dict(tensors, source.path, source.dictionaries, settings)


def _state_dict(found: object, path: Path) -> dict[str, Tensor]:
    """The tensors by name, also where a training script put them beside its other state."""
    for name in STATE_DICT_KEYS:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    tensors = (
        {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        if isinstance(found, dict)
        else {}
    )
    if not tensors:
        raise InteropError(f"{path} holds no tensors by name; save the model's state_dict()")
    return tensors
