"""From a bundle to a folder of another toolkit: every format that `clearhead export --to` knows."""

import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import BundleError, InteropError
from clearhead.interop.huggingface import CONFIG, FORMATS
from clearhead.interop.tables import invert
from clearhead.interop.tensors import WEIGHTS
from clearhead.interop.tokenizer_files import tokenizer_files


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    format: str
    notes: list[str]
    """What could not come along, for the user to know."""


def export_huggingface(folder: Path, out: Path) -> Exported:
    """A folder that `transformers` loads and that gives the same logits."""
    found = bundle.load(folder)
    config = configs.parse(found.config)
    form = FORMATS[_family(config)]
    settings = form.write(config)
    tensors = {**invert(form.table(config, ()), found.weights), **form.extra(config)}
    texts: dict[str, dict[str, Any]] = {CONFIG: settings}
    notes: list[str] = []
    if found.tokenizer.strip() != bundle.NO_TOKENIZER:
        files, notes = tokenizer_files(Tokenizer.from_json(found.tokenizer), config)
        texts |= files
    if config.model.head == "text":
        texts["generation_config.json"] = _generation(config, notes)

    def write(inside: Path) -> None:
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, inside / WEIGHTS, {"format": "pt"})
        for name, text in texts.items():
            (inside / name).write_text(json.dumps(text, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    make_folder(out, write)
    return Exported(out, form.name, notes)


EXPORTERS: dict[str, Callable[[Path, Path], Exported]] = {"huggingface": export_huggingface}


def make_folder(out: Path, write: Callable[[Path], None]) -> None:
    """A new folder that `write` fills; it is there whole or not at all."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError(f"{out} is there already; choose another folder")
    aside = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        aside.mkdir(parents=True)
        write(aside)
        aside.replace(out)
    except OSError as error:
        raise BundleError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _family(config: Config) -> str:
    """Their family that can hold a network like this one."""
    model = config.model
    if model.family == "encoder":
        return "bert" if model.num_segments else "distilbert"
    if model.family == "decoder":
        return "gpt2"
    if model.family == "patches":
        return "vit"
    if model.family == "transformer":
        return "t5" if model.positions == "relative" else "marian" if model.norm_placement == "post" else "pegasus"
    raise InteropError(f"model.family={model.family} has no counterpart among {', '.join(FORMATS)}")


def _generation(config: Config, notes: list[str]) -> dict[str, Any]:
    """The decoding settings in their words."""
    decoding, model = config.decoding, config.model
    settings: dict[str, Any] = {"eos_token_id": model.end_id, "num_beams": decoding.beam}
    if decoding.length_norm == "paper":
        notes.append("decoding.length_norm=paper has no counterpart; length_penalty is left out")
    else:
        settings["length_penalty"] = decoding.alpha if decoding.length_norm == "length" else 0.0
    settings["early_stopping"] = {"beam_finished": True, "cannot_improve": "never"}.get(decoding.stop, False)
    return settings
