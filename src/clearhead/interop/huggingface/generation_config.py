"""Decoding settings of Hugging Face folders: read with `generate`'s defaults, and written.

A file that clearhead wrote also holds the decoding section itself, because `generate` lacks some of its settings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clearhead.config import Config, DecodingConfig
from clearhead.errors import InteropError
from clearhead.interop.huggingface.tokenizers import read_json
from clearhead.interop.settings import SettingsReader

STOPPING_RULES = {"False": "no_better_now", "True": "beam_finished", "never": "cannot_improve"}
CLEARHEAD_SECTION = "clearhead"
# What `generate` knows and search here does not, each with the value at which it does nothing.
UNSUPPORTED_OPTIONS: dict[str, Any] = {
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "min_length": 0,
    "min_new_tokens": None, "diversity_penalty": 0.0, "forced_bos_token_id": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "num_beam_groups": 1,
}  # fmt: skip


def read_generation(folder: Path, task: str, notes: list[str]) -> dict[str, Any]:
    """The decoding section. Older folders have these settings in config.json."""
    path = folder / "generation_config.json"
    if not path.is_file():
        path = folder / "config.json"
    options = SettingsReader(read_json(path), str(path))
    own = _clearhead_section(options.settings)
    if own is not None and _is_unchanged(options.settings, own, task):
        return own.model_dump(mode="json")
    start = {} if own is None else {"add_start_token": own.sampling.add_start_token}
    for name, idle in UNSUPPORTED_OPTIONS.items():
        if options.get(name, idle) not in (idle, None):
            notes.append(f"not carried over: {name}={options.get(name)}")
    if task == "lm" and options.get("do_sample", False):
        return {"method": "sample", "sampling": _sampling(options) | start}
    if options.get("do_sample", False):
        notes.append("not carried over: do_sample=True; translations are searched for")
    stop = str(options.get("early_stopping", False))
    if stop not in STOPPING_RULES:
        raise InteropError(f"early_stopping {stop} is not supported; {path} asks for it")
    settings: dict[str, Any] = {
        "beam_size": options.number("num_beams", 1),
        "length_penalty_form": "length",
        "length_penalty": options.small("length_penalty", 1.0),
        "stopping_rule": STOPPING_RULES[stop],
    }
    if settings["length_penalty"] < 0:
        raise InteropError(
            f"length_penalty {settings['length_penalty']} is not supported, only 0 and more; {path} asks for it"
        )
    if task == "lm":  # the likeliest text, or piece by piece where the beam is 1
        return {**settings, "method": "search", "sampling": _max_tokens(options) | start}
    is_new = options.get("max_new_tokens") is not None
    longest = options.number("max_new_tokens") if is_new else options.number("max_length", 1) - 1  # with the start
    return settings | ({"max_length": str(longest)} if longest > 0 else {})


def _sampling(options: SettingsReader) -> dict[str, Any]:
    """How text is drawn."""
    return {
        "temperature": options.small("temperature", 1.0),
        "top_k": options.identifier("top_k", 50),
        "top_p": options.small("top_p", 1.0),
        "min_p": options.small("min_p", 0.0),
        **_max_tokens(options),
    }


def _max_tokens(options: SettingsReader) -> dict[str, Any]:
    """How much text is written, where that is said."""
    return {"max_tokens": options.number("max_new_tokens")} if options.get("max_new_tokens") else {}


def write_generation(config: Config, notes: list[str]) -> dict[str, Any]:
    """Return generation_config.json; append a note for a setting that `generate` lacks."""
    decoding = config.decoding
    if decoding.method == "search" and decoding.length_penalty_form == "gnmt":
        notes.append("decoding.length_penalty_form=gnmt has no counterpart in transformers; length_penalty is left out")
    return {
        "eos_token_id": config.model.eos_id,
        **_generation(decoding, config.task),
        CLEARHEAD_SECTION: decoding.model_dump(mode="json"),
    }


def _generation(decoding: DecodingConfig, task: str) -> dict[str, Any]:
    """Return the decoding settings in the terms of `generate`."""
    settings: dict[str, Any] = {}
    if task == "lm":
        settings["max_new_tokens"] = decoding.sampling.max_tokens
    if decoding.method == "sample":
        drawn = decoding.sampling
        how = {"temperature": drawn.temperature, "top_k": drawn.top_k, "top_p": drawn.top_p, "min_p": drawn.min_p}
        return settings | {"num_beams": 1, "do_sample": drawn.temperature > 0} | (how if drawn.temperature else {})
    settings["num_beams"] = decoding.beam_size
    if decoding.length_penalty_form != "gnmt":
        settings["length_penalty"] = decoding.length_penalty if decoding.length_penalty_form == "length" else 0.0
    settings["early_stopping"] = {"beam_finished": True, "cannot_improve": "never"}.get(decoding.stopping_rule, False)
    return settings


def _clearhead_section(settings: Mapping[str, Any]) -> DecodingConfig | None:
    """Return the decoding section that clearhead wrote, or None."""
    try:
        return DecodingConfig.model_validate(settings[CLEARHEAD_SECTION])
    except (KeyError, ValidationError):
        return None


def _is_unchanged(settings: Mapping[str, Any], own: DecodingConfig, task: str) -> bool:
    """Whether the other settings of the file are still those of its decoding section."""
    return all(settings.get(name) == value for name, value in _generation(own, task).items())
