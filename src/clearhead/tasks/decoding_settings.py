"""Decoding settings that contradict each other, or that a command would ignore."""

from collections.abc import Mapping
from typing import Any

from clearhead.config import DecodingConfig
from clearhead.errors import ConfigError
from clearhead.tasks.language_modeling.inference import SAMPLING_FIELDS

TEXT_TO_TEXT_VERB = "translate"
# What a verb takes from the decoding section; verbs that are not here neither search nor draw. Behind a prompt there
# is no source to cover, the prompt is the prefix, and `sampling.max_tokens` is the limit.
FIELDS_BY_VERB = {
    TEXT_TO_TEXT_VERB: tuple(DecodingConfig.model_fields),
    "score": ("length_penalty", "length_penalty_form"),
    "generate": tuple(
        name for name in DecodingConfig.model_fields if name not in ("max_length", "coverage_penalty", "prefix")
    ),
}


def check_decoding(given: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str) -> None:
    """Refuses what would change nothing; `merged` is the given fields laid over those that hold otherwise."""
    used = FIELDS_BY_VERB.get(verb, ())
    for name in given:
        if name in DecodingConfig.model_fields and name not in used:  # unknown ones are told by the config itself
            fitting = f"which uses {', '.join(used)}" if used else "which does not search"
            raise ConfigError(f"decoding.{name} has no meaning for {user}, {fitting}; leave it out")
    if merged.length_penalty_form == "none" and "length_penalty" in given:
        raise ConfigError(
            "decoding.length_penalty has no meaning with decoding.length_penalty_form=none; leave one of them out"
        )
    if "diversity_penalty" in given and merged.beam_groups == 1:
        raise ConfigError("decoding.diversity_penalty has no meaning without decoding.beam_groups; set both")
    drawn = given.get("sampling", {})
    if verb in (TEXT_TO_TEXT_VERB, "generate"):
        _check_method(given, drawn, merged, verb, user)
    for name in ("top_k", "top_p", "min_p", "seed"):
        if name in drawn and merged.sampling.temperature == 0:
            raise ConfigError(f"decoding.sampling.{name} has no meaning with temperature 0, which takes the likeliest")


def _check_method(
    given: Mapping[str, Any], drawn: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str
) -> None:
    """Settings of drawing where outputs are searched for, and the other way round."""
    idle = [name for name in drawn if verb == TEXT_TO_TEXT_VERB or name in SAMPLING_FIELDS]
    if idle and merged.method != "sample":
        name = "decoding.sampling" if verb == TEXT_TO_TEXT_VERB else f"decoding.sampling.{idle[0]}"
        raise ConfigError(f"{name} has no meaning for {user} without decoding.method=sample; set both")
    for name in ("max_tokens", "stop", "add_start_token"):
        if name in drawn and verb == TEXT_TO_TEXT_VERB:
            raise ConfigError(f"decoding.sampling.{name} is for clearhead generate; here set decoding.max_length")
    for name in ("beam_size", "stopping_rule"):
        if name in given and merged.method == "sample":
            raise ConfigError(f"decoding.{name} has no meaning with decoding.method=sample; leave one of them out")
