"""Nesting of decoding settings, and errors for settings that contradict each other or have no effect."""

from collections.abc import Mapping
from typing import Any

from clearhead.config import DecodingConfig, merge
from clearhead.config.decoding import SamplingConfig
from clearhead.errors import ConfigError

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "seed")
"""Fields of `decoding.sampling` that only sampling uses; the others also apply to search."""
SEARCH_FIELDS = ("beam_size", "beam_groups", "include")
"""Fields of `decoding` that only search uses."""
TEXT_TO_TEXT_VERB = "translate"
# Fields of the decoding section that each command uses; other commands neither search nor sample. `generate` has no
# source to cover, its prefix is the prompt, and `sampling.max_tokens` limits its length.
FIELDS_BY_VERB = {
    TEXT_TO_TEXT_VERB: tuple(DecodingConfig.model_fields),
    "score": ("length_penalty", "length_penalty_form"),
    "generate": tuple(
        name for name in DecodingConfig.model_fields if name not in ("max_length", "coverage_penalty", "prefix")
    ),
}


def nest_sampling_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `stop`, `seed` and the other sampling fields nested under `sampling`."""
    sampling = {name: value for name, value in settings.items() if name in SamplingConfig.model_fields}
    others = {name: value for name, value in settings.items() if name not in sampling}
    return merge(others, {"sampling": sampling} if sampling else {})


def infer_method(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `method` added if they imply one, such as "search" for `beam_size`."""
    if "method" in settings:
        return dict(settings)
    if any(name in settings for name in SEARCH_FIELDS):
        return {**settings, "method": "search"}
    is_sampled = any(name in settings.get("sampling", {}) for name in SAMPLING_FIELDS)
    return {**settings, "method": "sample"} if is_sampled else dict(settings)


def check_decoding(settings: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str) -> None:
    """Raise ConfigError for settings that have no effect for a command.

    `merged` is the complete decoding section after these settings were applied. `user` names the command or task in
    messages.
    """
    used = FIELDS_BY_VERB.get(verb, ())
    for name in settings:
        if name in DecodingConfig.model_fields and name not in used:  # the config itself reports unknown fields
            fields = f"which uses {', '.join(used)}" if used else "which does not search"
            raise ConfigError(f"decoding.{name} has no meaning for {user}, {fields}; leave it out")
    if merged.length_penalty_form == "none" and "length_penalty" in settings:
        raise ConfigError(
            "decoding.length_penalty has no meaning with decoding.length_penalty_form=none; leave one of them out"
        )
    if "diversity_penalty" in settings and merged.beam_groups == 1:
        raise ConfigError("decoding.diversity_penalty has no meaning without decoding.beam_groups; set both")
    sampling = settings.get("sampling", {})
    if verb in (TEXT_TO_TEXT_VERB, "generate"):
        _check_method(settings, sampling, merged, verb, user)
    for name in ("top_k", "top_p", "min_p", "seed"):
        if name in sampling and merged.sampling.temperature == 0:
            raise ConfigError(
                f"decoding.sampling.{name} has no meaning with temperature 0, which selects the most probable token"
            )


def _check_method(
    settings: Mapping[str, Any], sampling: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str
) -> None:
    """Raise ConfigError for sampling settings of a search, and for search settings of sampling."""
    unused = [name for name in sampling if verb == TEXT_TO_TEXT_VERB or name in SAMPLING_FIELDS]
    if unused and merged.method != "sample":
        name = "decoding.sampling" if verb == TEXT_TO_TEXT_VERB else f"decoding.sampling.{unused[0]}"
        raise ConfigError(f"{name} has no meaning for {user} without decoding.method=sample; set both")
    for name in ("max_tokens", "stop", "add_start_token"):
        if name in sampling and verb == TEXT_TO_TEXT_VERB:
            raise ConfigError(f"decoding.sampling.{name} is for clearhead generate; here set decoding.max_length")
    for name in ("beam_size", "stopping_rule"):
        if name in settings and merged.method == "sample":
            raise ConfigError(f"decoding.{name} has no meaning with decoding.method=sample; leave one of them out")
