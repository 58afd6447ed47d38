"""Hugging Face folders: config.json says which family, each of which has a table of names. Local paths only."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError, InteropError
from clearhead.interop import bert
from clearhead.interop.formats import Format
from clearhead.interop.options import Options
from clearhead.interop.tables import apply, check_size
from clearhead.interop.tensors import SafetensorsFiles
from clearhead.interop.vocabularies import read_json, read_tokenizer
from clearhead.model.weights import Weights

FORMATS: dict[str, Format] = {each.name: each for each in (bert.FORMAT,)}
CONFIG = "config.json"
POOLING = Path("1_Pooling") / "config.json"  # of sentence-transformers


@dataclass(frozen=True)
class Foreign:
    """A checkpoint of another toolkit in our terms."""

    config: Config
    weights: Weights
    tokenizer: Tokenizer | None
    left_out: list[str]
    format: str


def is_folder(path: Path) -> bool:
    """Whether this is a Hugging Face folder."""
    return (path / CONFIG).is_file()


def read_folder(folder: Path, settings: Mapping[str, Any]) -> Foreign:
    """The model of a folder; `settings` lie on top of what its config says."""
    options = Options(read_json(folder / CONFIG), str(folder / CONFIG))
    form = _format(options)
    tensors = SafetensorsFiles.open(folder)
    found = configs.merge(form.read(options, tensors), _sentence_pooling(folder))
    config = _parse(configs.merge(found, settings), options.name)
    check_size(config.model, tensors)
    tokenizer = None
    if config.model.has_text:
        tokenizer = read_tokenizer(folder, config.model.family, config.model.vocab_size)
        config = _with_ids(config, tokenizer)
    applied = apply(form.table(config, tensors.shapes.keys()), tensors, config.model)
    return Foreign(config, applied.weights, tokenizer, applied.left_out, f"Hugging Face {form.name}")


def _format(options: Options) -> Format:
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
    ids = {"pad_id": tokenizer.pad_id, "end_id": tokenizer.eos_id}
    if config.model.family != "transformer":
        ids["start_id"] = tokenizer.bos_id
    size = {"kind": "imported", "vocab_size": tokenizer.vocab_size, "specials": tokenizer.config.specials}
    return configs.override(config, {"model": ids, "tokenizer": size})


def _sentence_pooling(folder: Path) -> dict[str, Any]:
    """How a model for sentence embeddings pools, where it says so."""
    if not (folder / POOLING).is_file():
        return {}
    options = Options(read_json(folder / POOLING), str(folder / POOLING))
    options.only(pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)
    pooling = "mean" if options.get("pooling_mode_mean_tokens") else "first"
    return {"model": {"pooling": pooling, "pooler": False}}
