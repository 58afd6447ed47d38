"""Hugging Face folders: config.json says which family, each of which has a table of names. Local paths only.

Hugging Face folders that `transformers` loads with the same logits, and that can be imported again.
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
from clearhead.interop.huggingface import bert, distilbert, gpt2, marian, t5, vit
from clearhead.interop.huggingface.generation_config import read_generation, write_generation
from clearhead.interop.huggingface.model_format import ImportedModel, ModelFormat
from clearhead.interop.huggingface.tokenizers import read_json, read_tokenizer, tokenizer_files
from clearhead.interop.settings import SettingsReader
from clearhead.interop.weight_mapping import check_parameter_count, export_weights, import_weights
from clearhead.model.parameters import Weights

_ALL = bert.FORMAT, distilbert.FORMAT, gpt2.FORMAT, t5.FORMAT, marian.MARIAN, marian.PEGASUS, vit.FORMAT
FORMATS: dict[str, ModelFormat] = {each.name: each for each in _ALL}
CONFIG = "config.json"
POOLING = Path("1_Pooling") / "config.json"  # of sentence-transformers


def is_folder(path: Path) -> bool:
    """Whether this is a Hugging Face folder."""
    return (path / CONFIG).is_file()


def read_folder(folder: Path, settings: Mapping[str, Any]) -> ImportedModel:
    """The model of a folder; `settings` lie on top of what its config says."""
    options = SettingsReader(read_json(folder / CONFIG), str(folder / CONFIG))
    form = _format(options)
    tensors = SafetensorsFiles.open(folder)
    found = configs.merge(form.read(options, tensors), _sentence_pooling(folder))
    found = configs.merge(found, _languages(folder) if found["task"] == "translate" else {})
    notes: list[str] = []
    if found["task"] in ("translate", "lm"):
        found = configs.merge(found, {"decoding": read_generation(folder, found["task"], notes)})
    _check_image_scaling(folder)
    config = _parse(configs.merge(found, settings), options.name)
    check_parameter_count(config.model, tensors)
    tokenizer = None
    if config.model.has_text:
        model = config.model
        tokenizer = read_tokenizer(folder, model.family, model.vocab_size, model.source_vocab_size)
        config = _with_ids(config, tokenizer)
    applied = import_weights(form.table(config, tensors.shapes.keys()), tensors, config.model)
    return ImportedModel(config, applied.weights, tokenizer, applied.left_out, f"Hugging Face {form.name}", notes)


def _languages(folder: Path) -> dict[str, Any]:
    """Return the languages in the settings of Marian's tokenizer, as a setting; nothing if there are none."""
    path = folder / "tokenizer_config.json"
    record = read_json(path) if path.is_file() else {}
    codes = language_pair(record.get("source_lang"), record.get("target_lang"))
    return {"data": {"languages": codes}} if codes else {}


def _format(options: SettingsReader) -> ModelFormat:
    name = options.get("model_type", "")
    if name not in FORMATS:
        raise InteropError(
            f"model_type {name!r} is not supported; {options.name} asks for it. Known: {', '.join(FORMATS)}"
        )
    return FORMATS[name]


def _parse(settings: Mapping[str, Any], name: str) -> Config:
    try:
        return configs.parse(settings)
    except ConfigError as error:
        raise InteropError(f"{name}: {error}") from error


def _with_ids(config: Config, tokenizer: Tokenizer) -> Config:
    """The ids that the tokenizer knows, where the network follows it."""
    model, ids = config.model, {"pad_id": tokenizer.pad_id, "eos_id": tokenizer.eos_id}
    if model.family != "transformer":
        ids["decoder_start_id"] = tokenizer.bos_id
    elif (model.pad_id, model.eos_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise InteropError(
            f"the tokenizer pads with {tokenizer.pad_id} and ends with {tokenizer.eos_id}, the config says "
            f"{model.pad_id} and {model.eos_id}; they do not belong together"
        )
    return configs.override(config, {"model": ids, "tokenizer": tokenizer.config.model_dump()})


def _check_image_scaling(folder: Path) -> None:
    """Pixels are read from -1 to 1 here; another scale is refused."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        options = SettingsReader(read_json(path), str(path))
        options.only(do_normalize=True, do_rescale=True)
        for name in ("image_mean", "image_std"):
            if any(value != 0.5 for value in options.get(name, [0.5])):
                raise InteropError(f"{name} {options.get(name)} is not supported, only 0.5; {path} asks for it")


def _sentence_pooling(folder: Path) -> dict[str, Any]:
    """How a model for sentence embeddings pools, where it says so."""
    if not (folder / POOLING).is_file():
        return {}
    options = SettingsReader(read_json(folder / POOLING), str(folder / POOLING))
    options.only(pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)
    pooling = "mean" if options.get("pooling_mode_mean_tokens") else "first"
    return {"model": {"pooling": pooling, "pooler": False}}


# The architectures that may hold each family; of several without blocking settings, the first is written.
_CANDIDATES = {
    "encoder": ("distilbert", "bert"),
    "decoder": ("gpt2",),
    "vit": ("vit",),
    "transformer": ("t5", "marian", "pegasus"),
}


def choose_format(config: Config) -> tuple[ModelFormat | None, list[str]]:
    """Return the architecture with the fewest blocking settings, and those settings.

    Without one for the family, return None and the family as the blocking setting.
    """
    names = _CANDIDATES.get(config.model.family)
    if names is None:
        expected = " or ".join(_CANDIDATES)
        return None, [f"model.family={config.model.family} (expected {expected})"]
    found = [(FORMATS[name], FORMATS[name].blocking(config)) for name in names]
    return min(found, key=lambda each: len(each[1]))


def write_folder(config: Config, weights: Weights, tokenizer: Tokenizer | None, folder: Path) -> list[str]:
    """Write a model without blocking settings into an empty folder; return notes on what could not be included."""
    form, blocking = choose_format(config)
    assert form is not None and not blocking
    texts: dict[str, dict[str, Any]] = {CONFIG: form.write(config)}
    table = form.table(config, ())
    tensors = {**export_weights(table, weights), **form.extra(config)}
    notes: list[str] = []
    if unused := sorted(weights.keys() - {link.ours for link in table.links}):
        notes.append(f"left out, because {texts[CONFIG]['architectures'][0]} has no such weights: {', '.join(unused)}")
    if tokenizer is not None:
        files, more = tokenizer_files(tokenizer, config)
        texts |= files
        notes += more
    if config.model.head == "generation":
        texts["generation_config.json"] = write_generation(config, notes)
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(own, folder / WEIGHTS, {"format": "pt"})
    for name, text in texts.items():
        (folder / name).write_text(json.dumps(text, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes
