"""Decoding settings of Hugging Face folders; missing ones have the defaults of `generate`.

A file that clearhead wrote also contains clearhead's decoding section, because `generate` lacks some of its settings.
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
"""Option `early_stopping` of `generate` -> `decoding.stopping_rule`."""
CLEARHEAD_SECTION = "clearhead"
"""Key in generation_config.json with clearhead's decoding section."""
UNSUPPORTED_OPTIONS: dict[str, Any] = {
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "min_length": 0,
    "min_new_tokens": None, "diversity_penalty": 0.0, "forced_bos_token_id": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "num_beam_groups": 1,
}  # fmt: skip
"""Options of `generate` that are not imported, each with the value that disables it."""


def read_generation(folder: Path, task: str, notes: list[str]) -> dict[str, Any]:
    """Return the decoding section of a folder; append a note for each setting that is not imported.

    Older folders contain these settings in config.json.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        path = folder / "config.json"
    options = SettingsReader(read_json(path), str(path))
    exported = _clearhead_section(options.settings)
    if exported is not None and _is_unchanged(options.settings, exported, task):
        return exported.model_dump(mode="json")
    start = {} if exported is None else {"add_start_token": exported.sampling.add_start_token}
    for name, disabled in UNSUPPORTED_OPTIONS.items():
        if options.get(name, disabled) not in (disabled, None):
            notes.append(f"not imported: {name}={options.get(name)}")
    if task == "lm" and options.get("do_sample", False):
        return {"method": "sample", "sampling": _sampling(options) | start}
    if options.get("do_sample", False):
        notes.append("not imported: do_sample=True; translations use beam search")
    settings = _search(options)
    if task == "lm":
        return {**settings, "method": "search", "sampling": _max_tokens(options) | start}
    if options.get("max_new_tokens") is not None:
        limit = options.positive_int("max_new_tokens")
    else:
        limit = options.positive_int("max_length", 1) - 1  # max_length also counts the start token
    return settings | ({"max_length": str(limit)} if limit > 0 else {})


def _search(options: SettingsReader) -> dict[str, Any]:
    """Return the settings of beam search, or raise InteropError if one is not supported."""
    early_stopping = str(options.get("early_stopping", False))
    if early_stopping not in STOPPING_RULES:
        raise InteropError(
            f"{options.name}: early_stopping {early_stopping} is not supported; "
            f"expected one of {', '.join(STOPPING_RULES)}"
        )
    length_penalty = options.number("length_penalty", 1.0)
    if length_penalty < 0:
        raise InteropError(f"{options.name}: length_penalty {length_penalty} is not supported; expected 0 or more")
    return {
        "beam_size": options.positive_int("num_beams", 1),
        "length_penalty_form": "length",
        "length_penalty": length_penalty,
        "stopping_rule": STOPPING_RULES[early_stopping],
    }


def _sampling(options: SettingsReader) -> dict[str, Any]:
    """Return the settings of sampling."""
    return {
        "temperature": options.number("temperature", 1.0),
        "top_k": options.token_id("top_k", 50),
        "top_p": options.number("top_p", 1.0),
        "min_p": options.number("min_p", 0.0),
        **_max_tokens(options),
    }


def _max_tokens(options: SettingsReader) -> dict[str, Any]:
    """Return the setting that limits the output; empty if the output is unlimited."""
    return {"max_tokens": options.positive_int("max_new_tokens")} if options.get("max_new_tokens") else {}


def write_generation(config: Config, notes: list[str]) -> dict[str, Any]:
    """Return the content of generation_config.json; append a note for a setting that `generate` lacks."""
    decoding = config.decoding
    if decoding.method == "search" and decoding.length_penalty_form == "gnmt":
        notes.append("decoding.length_penalty_form=gnmt has no counterpart in transformers; length_penalty is left out")
    return {
        "eos_token_id": config.model.eos_id,
        **_generate_options(decoding, config.task),
        CLEARHEAD_SECTION: decoding.model_dump(mode="json"),
    }


def _generate_options(decoding: DecodingConfig, task: str) -> dict[str, Any]:
    """Return the decoding settings as options of `generate`."""
    options: dict[str, Any] = {}
    if task == "lm":
        options["max_new_tokens"] = decoding.sampling.max_tokens
    if decoding.method == "sample":
        sampling = decoding.sampling
        options |= {"num_beams": 1, "do_sample": sampling.temperature > 0}
        names = ("temperature", "top_k", "top_p", "min_p") if sampling.temperature else ()
        return options | {name: getattr(sampling, name) for name in names}
    options["num_beams"] = decoding.beam_size
    if decoding.length_penalty_form != "gnmt":
        options["length_penalty"] = decoding.length_penalty if decoding.length_penalty_form == "length" else 0.0
    options["early_stopping"] = {"beam_finished": True, "cannot_improve": "never"}.get(decoding.stopping_rule, False)
    return options


def _clearhead_section(settings: Mapping[str, Any]) -> DecodingConfig | None:
    """Return the decoding section that clearhead wrote, or None."""
    try:
        return DecodingConfig.model_validate(settings[CLEARHEAD_SECTION])
    except (KeyError, ValidationError):
        return None


def _is_unchanged(settings: Mapping[str, Any], exported: DecodingConfig, task: str) -> bool:
    """Return whether the options of the file still equal those that clearhead exported for its decoding section."""
    return all(settings.get(name) == value for name, value in _generate_options(exported, task).items())
