"""Settings that contradict each other or would be ignored: refused before the data is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig, ModelConfig
from clearhead.errors import ConfigError
from clearhead.tasks.task import Made, Purpose

FROM_THE_DATA = ("vocab_size", "num_labels", "image_size", "channels")
EVERY_TASK = ("valid_share", "valid_max")
WRITERS_VERB = "translate"
# What a verb takes from the decoding section; verbs that are not here neither search nor draw.
DECODING = {
    WRITERS_VERB: tuple(DecodingConfig.model_fields),
    "score": ("alpha", "length_norm"),
    "generate": ("sampling",),
}


def check_settings(chosen: Purpose, given: Mapping[str, Any], draft: Config) -> None:
    """What a user set is used, or it is a mistake."""
    _check_length(draft)
    if "labels" in given:
        raise ConfigError("labels are taken from the data; leave them out")
    _check_model(chosen, given.get("model", {}), draft.model)
    _check_data(chosen, given.get("data", {}), draft)
    if given.get("tokenizer") and not draft.model.has_text:
        raise ConfigError(f"the task {chosen.name} has no tokenizer; leave the tokenizer settings out")
    if "validate_lines" in given.get("training", {}) and chosen.verb != WRITERS_VERB:
        raise ConfigError(
            f"training.validate_lines has no meaning for the task {chosen.name}, which validates on all; "
            "data.valid_max sets how many are held out"
        )
    check_decoding(given.get("decoding", {}), chosen.verb, f"the task {chosen.name}")


def check_decoding(given: Mapping[str, Any], verb: str, user: str) -> None:
    """Refuses settings of search where text is drawn or nothing is written, and the other way round."""
    method = given.get("method", "search")
    used = DECODING.get(verb, ())
    for name in given:
        if name in DecodingConfig.model_fields and name not in used:  # unknown ones are told by the config itself
            fitting = f"which uses {', '.join(used)}" if used else "which does not search"
            raise ConfigError(f"decoding.{name} has no meaning for {user}, {fitting}; leave it out")
    if given.get("length_norm") == "none" and "alpha" in given:
        raise ConfigError("decoding.alpha has no meaning with decoding.length_norm=none; leave one of them out")
    if verb != WRITERS_VERB:
        return
    if "diversity" in given and given.get("groups", 1) == 1:
        raise ConfigError("decoding.diversity has no meaning without decoding.groups; set both")
    if "sampling" in given and method != "sample":
        raise ConfigError(f"decoding.sampling has no meaning for {user} without decoding.method=sample; set both")
    for name in ("max_tokens", "stop"):
        if name in given.get("sampling", {}):
            raise ConfigError(
                f"decoding.sampling.{name} is for clearhead generate; here decoding.max_length is the limit"
            )


def check_held_out(given: Mapping[str, Any], valid: Sequence[Path]) -> None:
    """Refuses to say how much is held out where nothing is."""
    for name in EVERY_TASK:
        if valid and name in given.get("data", {}):
            raise ConfigError(f"data.{name} has no meaning with --valid: nothing is held out; leave one of them out")


def _check_model(chosen: Purpose, given: Mapping[str, Any], model: ModelConfig) -> None:
    if not model.has_text and configs.build(base=chosen.base).model.has_text:
        raise ConfigError(f"model.family={model.family} reads pictures, the task {chosen.name} text; leave it out")
    for name in given:
        if name in FROM_THE_DATA:
            raise ConfigError(f"model.{name} is taken from the data; leave it out")
        if why := model.why_idle(name):
            raise ConfigError(f"model.{name} {why}; leave it out")


def _check_data(chosen: Purpose, given: Mapping[str, Any], draft: Config) -> None:
    for name in given:
        if name not in (*EVERY_TASK, *chosen.data_fields):
            used = ", ".join((*EVERY_TASK, *chosen.data_fields))
            raise ConfigError(f"data.{name} has no meaning for the task {chosen.name}, which uses {used}")
    pieces, places = draft.data.max_pieces, draft.model.max_positions
    if "max_pieces" in given and pieces > places:
        raise ConfigError(
            f"data.max_pieces={pieces} is more than the network has places for, model.max_positions={places}; "
            "raise that too"
        )


def check_ids(made: Made) -> None:
    """The decoder may start from any piece, such as the end; padding and the end are the tokenizer's."""
    model, tokenizer = made.config.model, made.tokenizer
    if tokenizer and (model.pad_id, model.end_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise ConfigError(
            f"model.pad_id={model.pad_id} and model.end_id={model.end_id} must be the tokenizer's, "
            f"{tokenizer.pad_id} and {tokenizer.eos_id}; leave them out"
        )
    if tokenizer and model.start_id >= model.vocab_size:
        raise ConfigError(f"model.start_id={model.start_id} is no piece; there are {model.vocab_size:,}")


def _check_length(config: Config) -> None:
    given = [name for name in ("steps", "epochs", "minutes") if getattr(config.training, name)]
    if len(given) > 1:
        raise ConfigError(f"the length of a training is given twice, by {' and '.join(given)}; keep one")
