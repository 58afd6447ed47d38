"""Settings that contradict each other or would be ignored: refused before the data is read."""

from collections.abc import Mapping
from typing import Any

from clearhead.config import Config
from clearhead.errors import ConfigError
from clearhead.tasks.task import Made, Purpose

FROM_THE_DATA = ("vocab_size", "num_labels", "image_size", "channels")
EVERY_TASK = ("valid_share", "valid_max")


def check_settings(chosen: Purpose, given: Mapping[str, Any], draft: Config) -> None:
    """What a user set is used, or it is a mistake."""
    _check_length(draft)
    for name in FROM_THE_DATA:
        if name in given.get("model", {}):
            raise ConfigError(f"model.{name} is taken from the data; leave it out")
    for name in given.get("data", {}):
        if name not in (*EVERY_TASK, *chosen.data_fields):
            used = ", ".join((*EVERY_TASK, *chosen.data_fields))
            raise ConfigError(f"data.{name} has no meaning for the task {chosen.name}, which uses {used}")
    if given.get("tokenizer") and not draft.model.has_text:
        raise ConfigError(f"the task {chosen.name} has no tokenizer; leave the tokenizer settings out")


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
