"""Settings that contradict each other or would be ignored: refused before the data is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import RECURRENT, Config, ModelConfig, TrainingConfig
from clearhead.errors import ConfigError
from clearhead.tasks.decoding_settings import TEXT_TO_TEXT_VERB, check_decoding
from clearhead.tasks.task import Task
from clearhead.tasks.trainable.task import PreparedTask

FROM_THE_DATA = ("vocab_size", "num_labels", "image_size", "image_channels")
EVERY_TASK = ("validation_share", "validation_max")
REPLAY_SHARE = "replay_share"


def check_settings(chosen: Task, given: Mapping[str, Any], draft: Config) -> None:
    """What a user set is used, or it is a mistake."""
    check_length(draft.training)
    if "labels" in given:
        raise ConfigError("labels are taken from the data; leave them out")
    _check_model(chosen, given.get("model", {}), draft.model)
    _check_data(chosen, given.get("data", {}), draft)
    _check_training(draft)
    if given.get("tokenizer") and not draft.model.has_text:
        raise ConfigError(f"the task {chosen.name} has no tokenizer; leave the tokenizer settings out")
    if "validate_lines" in given.get("training", {}) and chosen.verb != TEXT_TO_TEXT_VERB:
        raise ConfigError(
            f"training.validate_lines has no meaning for the task {chosen.name}, which validates on all; "
            "data.validation_max sets how many are held out"
        )
    check_decoding(given.get("decoding", {}), draft.decoding, chosen.verb, f"the task {chosen.name}")


def check_held_out(given: Mapping[str, Any], valid: Sequence[Path]) -> None:
    """Refuses to say how much is held out where nothing is."""
    if given.get("data", {}).get("validation_tags") and not valid:
        raise ConfigError("data.validation_tags has no meaning without --valid; leave it out")
    for name in EVERY_TASK:
        if valid and name in given.get("data", {}):
            raise ConfigError(f"data.{name} has no meaning with --valid: nothing is held out; leave one of them out")


def check_fine_tuning(
    given: Mapping[str, Any], start: Path | None, old_valid: Sequence[Path], replay: Sequence[Path]
) -> None:
    """Refuse options of fine-tuning that would be ignored."""
    for option, files in (("--old-valid", old_valid), ("--replay", replay)):
        if files and start is None:
            raise ConfigError(f"{option} is for fine-tuning; name the old model with --from DIR, or leave out {option}")
    if REPLAY_SHARE in given.get("data", {}) and not replay:
        raise ConfigError(
            "--replay-share (data.replay_share) has no effect without --replay FILE; give both or neither"
        )


def _check_model(chosen: Task, given: Mapping[str, Any], model: ModelConfig) -> None:
    if not model.has_text and configs.build(base=chosen.base).model.has_text:
        raise ConfigError(f"model.family={model.family} reads pictures, the task {chosen.name} text; leave it out")
    for name in given:
        if name in FROM_THE_DATA:
            raise ConfigError(f"model.{name} is taken from the data; leave it out")
        if why := model.unused_reason(name):
            raise ConfigError(f"model.{name} {why}; leave it out")


def _check_training(draft: Config) -> None:
    """Ways to train that some networks cannot be trained in."""
    model, training = draft.model, draft.training
    if training.activation_checkpointing and (why := model.unused_reason("num_heads")):
        raise ConfigError(f"training.activation_checkpointing {why}; leave it out")
    if training.activation_checkpointing and model.norm == "batch":
        raise ConfigError(
            "training.activation_checkpointing does not go with model.norm=batch, which would count each batch twice"
        )
    if training.precision != "float32" and model.family in RECURRENT:
        raise ConfigError(
            f"training.precision={training.precision} is not for model.family={model.family}, whose kernels take "
            "float32 only; leave it out"
        )


def _check_data(chosen: Task, given: Mapping[str, Any], draft: Config) -> None:
    for name in given:
        if name not in (*EVERY_TASK, REPLAY_SHARE, *chosen.data_fields):
            used = ", ".join((*EVERY_TASK, *chosen.data_fields))
            raise ConfigError(f"data.{name} has no meaning for the task {chosen.name}, which uses {used}")
    if draft.data.bpe_dropout and draft.tokenizer.kind != "bpe":
        raise ConfigError(
            f"data.bpe_dropout leaves out merges of bpe, and tokenizer.kind is {draft.tokenizer.kind}; leave one out"
        )
    pieces, places = draft.data.max_tokens, draft.model.max_positions
    if "max_tokens" in given and pieces > places:
        raise ConfigError(
            f"data.max_tokens={pieces} is more than the network has places for, model.max_positions={places}; "
            "raise that too"
        )


def check_ids(made: PreparedTask) -> None:
    """Raise ConfigError unless padding and the end are the tokenizer's."""
    model, tokenizer = made.config.model, made.tokenizer
    if tokenizer and (model.pad_id, model.eos_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise ConfigError(
            f"model.pad_id={model.pad_id} and model.eos_id={model.eos_id} must be the tokenizer's, "
            f"{tokenizer.pad_id} and {tokenizer.eos_id}; leave them out"
        )


def check_length(training: TrainingConfig) -> None:
    """A training is so many updates, passes over the data or minutes long; two of them contradict each other."""
    given = [name for name in ("steps", "epochs", "minutes") if getattr(training, name)]
    if len(given) > 1:
        raise ConfigError(f"the length of a training is given twice, by {' and '.join(given)}; keep one")
