"""Hugging Face folders: import of any supported family, and export of folders that `transformers` loads.

Only local paths are read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.segmentation import language_pair
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError, InteropError
from clearhead.interop.checkpoint_tensors import WEIGHTS, SafetensorsFiles
from clearhead.interop.huggingface.bert import BERT, DISTILBERT
from clearhead.interop.huggingface.generation_config import read_generation, write_generation
from clearhead.interop.huggingface.gpt2 import GPT2
from clearhead.interop.huggingface.marian import MARIAN, PEGASUS
from clearhead.interop.huggingface.model_format import ModelFormat
from clearhead.interop.huggingface.t5 import T5
from clearhead.interop.huggingface.tokenizers import read_json, read_tokenizer, tokenizer_files
from clearhead.interop.huggingface.vit import VIT
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import ImportedModel, check_parameter_count, export_weights, import_weights
from clearhead.model.parameters import Weights

FORMATS: dict[str, ModelFormat] = {
    model_format.name: model_format for model_format in (BERT, DISTILBERT, GPT2, T5, MARIAN, PEGASUS, VIT)
}
CONFIG = "config.json"
POOLING = Path("1_Pooling") / "config.json"
"""Settings of the pooling in folders of sentence-transformers."""

_EXPORT_FORMATS = {
    "encoder": (DISTILBERT, BERT),
    "decoder": (GPT2,),
    "vit": (VIT,),
    "transformer": (T5, MARIAN, PEGASUS),
}
"""Formats for the models of each family; the first without unsupported settings is written."""


def is_folder(path: Path) -> bool:
    """Return whether the path is a Hugging Face folder."""
    return (path / CONFIG).is_file()


def read_folder(folder: Path, settings: Mapping[str, Any]) -> ImportedModel:
    """Return the model of a folder; `settings` override those of its config.json."""
    options = SettingsReader(read_json(folder / CONFIG), str(folder / CONFIG))
    model_format = _format_of(options)
    tensors = SafetensorsFiles.open(folder)
    merged = configs.merge(model_format.read(options, tensors), _read_pooling(folder))
    merged = configs.merge(merged, _read_languages(folder) if merged["task"] == "translate" else {})
    notes: list[str] = []
    if merged["task"] in ("translate", "lm"):
        merged = configs.merge(merged, {"decoding": read_generation(folder, merged["task"], notes)})
    _check_image_scaling(folder)
    config = _parse(configs.merge(merged, settings), options.name)
    check_parameter_count(config.model, tensors)
    tokenizer = None
    if config.model.has_text:
        model = config.model
        tokenizer = read_tokenizer(folder, model.family, model.vocab_size, model.source_vocab_size)
        config = _with_token_ids(config, tokenizer)
    mapped = import_weights(model_format.weight_mapping(config, tensors.shapes.keys()), tensors, config.model)
    title = f"Hugging Face {model_format.name}"
    return ImportedModel(config, mapped.weights, tokenizer, mapped.unused_tensors, title, notes)


def _read_languages(folder: Path) -> dict[str, Any]:
    """Return the setting `data.languages` from the settings of Marian's tokenizer; empty if it names no languages."""
    path = folder / "tokenizer_config.json"
    record = read_json(path) if path.is_file() else {}
    codes = language_pair(record.get("source_lang"), record.get("target_lang"))
    return {"data": {"languages": codes}} if codes else {}


def _format_of(options: SettingsReader) -> ModelFormat:
    """Return the format of `model_type`, or raise InteropError."""
    name = options.get("model_type", "")
    if name not in FORMATS:
        raise InteropError(
            f"{options.name}: model_type {name!r} is not supported; expected one of {', '.join(FORMATS)}"
        )
    return FORMATS[name]


def _parse(settings: Mapping[str, Any], name: str) -> Config:
    try:
        return configs.parse(settings)
    except ConfigError as error:
        raise InteropError(f"{name}: {error}") from error


def _with_token_ids(config: Config, tokenizer: Tokenizer) -> Config:
    """Return the config with the special token ids of the tokenizer.

    Raise InteropError if those of an encoder-decoder differ from the ids in config.json.
    """
    model, ids = config.model, {"pad_id": tokenizer.pad_id, "eos_id": tokenizer.eos_id}
    if model.family != "transformer":
        ids["decoder_start_id"] = tokenizer.bos_id
    elif (model.pad_id, model.eos_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise InteropError(
            f"the tokenizer has the padding id {tokenizer.pad_id} and the end id {tokenizer.eos_id}, but config.json "
            f"has {model.pad_id} and {model.eos_id}; use the tokenizer and the config of one model"
        )
    return configs.override(config, {"model": ids, "tokenizer": tokenizer.config.model_dump()})


def _check_image_scaling(folder: Path) -> None:
    """Raise InteropError if the preprocessor does not scale pixels to the range from -1 to 1."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        options = SettingsReader(read_json(path), str(path))
        options.require(do_normalize=True, do_rescale=True)
        for name in ("image_mean", "image_std"):
            if any(value != 0.5 for value in options.get(name, [0.5])):
                raise InteropError(f"{path}: {name} {options.get(name)} is not supported; expected 0.5")


def _read_pooling(folder: Path) -> dict[str, Any]:
    """Return the pooling of a sentence-transformers folder as settings; empty for other folders."""
    if not (folder / POOLING).is_file():
        return {}
    options = SettingsReader(read_json(folder / POOLING), str(folder / POOLING))
    options.require(pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)
    pooling = "mean" if options.get("pooling_mode_mean_tokens") else "first"
    return {"model": {"pooling": pooling, "pooler": False}}


def choose_format(config: Config) -> tuple[ModelFormat | None, list[str]]:
    """Return the format with the fewest unsupported settings, and those settings.

    If no format exists for the model family, return None and the family as the unsupported setting.
    """
    formats = _EXPORT_FORMATS.get(config.model.family)
    if formats is None:
        expected = " or ".join(_EXPORT_FORMATS)
        return None, [f"model.family={config.model.family} (expected {expected})"]
    candidates = [(model_format, model_format.unsupported(config)) for model_format in formats]
    return min(candidates, key=lambda candidate: len(candidate[1]))


def write_folder(config: Config, weights: Weights, tokenizer: Tokenizer | None, folder: Path) -> list[str]:
    """Write a model into an empty folder and return notes on what could not be included.

    The format that `choose_format` returns must support all settings of the model.
    """
    model_format, unsupported = choose_format(config)
    assert model_format is not None and not unsupported
    files: dict[str, dict[str, Any]] = {CONFIG: model_format.write(config)}
    mapping = model_format.weight_mapping(config, ())
    tensors = {**export_weights(mapping, weights), **model_format.derived_tensors(config)}
    notes: list[str] = []
    if unused := sorted(weights.keys() - {link.local for link in mapping.links}):
        architecture = files[CONFIG]["architectures"][0]
        notes.append(f"left out, because {architecture} has no such weights: {', '.join(unused)}")
    if tokenizer is not None:
        new_files, new_notes = tokenizer_files(tokenizer, config)
        files |= new_files
        notes += new_notes
    if config.model.head == "generation":
        files["generation_config.json"] = write_generation(config, notes)
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(copies, folder / WEIGHTS, {"format": "pt"})
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes
