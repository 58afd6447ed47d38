"""Settings that contradict each other or would be ignored: refused before the data is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import RECURRENT, Config, DecodingConfig, ModelConfig, TrainingConfig
from clearhead.errors import ConfigError
from clearhead.tasks.task import Made, Purpose
from clearhead.tasks.writing import DRAWING

FROM_THE_DATA = ("vocab_size", "num_labels", "image_size", "image_channels")
EVERY_TASK = ("validation_share", "validation_max")
REPLAY_SHARE = "replay_share"
WRITERS_VERB = "translate"
# What a verb takes from the decoding section; verbs that are not here neither search nor draw. Behind a prompt there
# is no source to cover, the prompt is the prefix, and `sampling.max_tokens` is the limit.
DECODING = {
    WRITERS_VERB: tuple(DecodingConfig.model_fields),
    "score": ("length_penalty", "length_penalty_form"),
    "generate": tuple(
        name for name in DecodingConfig.model_fields if name not in ("max_length", "coverage_penalty", "prefix")
    ),
}


def check_settings(chosen: Purpose, given: Mapping[str, Any], draft: Config) -> None:
    """What a user set is used, or it is a mistake."""
    check_length(draft.training)
    if "labels" in given:
        raise ConfigError("labels are taken from the data; leave them out")
    _check_model(chosen, given.get("model", {}), draft.model)
    _check_data(chosen, given.get("data", {}), draft)
    _check_training(draft)
    if given.get("tokenizer") and not draft.model.has_text:
        raise ConfigError(f"the task {chosen.name} has no tokenizer; leave the tokenizer settings out")
    if "validate_lines" in given.get("training", {}) and chosen.verb != WRITERS_VERB:
        raise ConfigError(
            f"training.validate_lines has no meaning for the task {chosen.name}, which validates on all; "
            "data.validation_max sets how many are held out"
        )
    check_decoding(given.get("decoding", {}), draft.decoding, chosen.verb, f"the task {chosen.name}")


def check_decoding(given: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str) -> None:
    """Refuses what would change nothing; `merged` is the given fields laid over those that hold otherwise."""
    used = DECODING.get(verb, ())
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
    if verb in (WRITERS_VERB, "generate"):
        _check_method(given, drawn, merged, verb, user)
    for name in ("top_k", "top_p", "min_p", "seed"):
        if name in drawn and merged.sampling.temperature == 0:
            raise ConfigError(f"decoding.sampling.{name} has no meaning with temperature 0, which takes the likeliest")


def _check_method(
    given: Mapping[str, Any], drawn: Mapping[str, Any], merged: DecodingConfig, verb: str, user: str
) -> None:
    """Settings of drawing where outputs are searched for, and the other way round."""
    idle = [name for name in drawn if verb == WRITERS_VERB or name in DRAWING]
    if idle and merged.method != "sample":
        name = "decoding.sampling" if verb == WRITERS_VERB else f"decoding.sampling.{idle[0]}"
        raise ConfigError(f"{name} has no meaning for {user} without decoding.method=sample; set both")
    for name in ("max_tokens", "stop", "add_start_token"):
        if name in drawn and verb == WRITERS_VERB:
            raise ConfigError(f"decoding.sampling.{name} is for clearhead generate; here set decoding.max_length")
    for name in ("beam_size", "stopping_rule"):
        if name in given and merged.method == "sample":
            raise ConfigError(f"decoding.{name} has no meaning with decoding.method=sample; leave one of them out")


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


def _check_model(chosen: Purpose, given: Mapping[str, Any], model: ModelConfig) -> None:
    if not model.has_text and configs.build(base=chosen.base).model.has_text:
        raise ConfigError(f"model.family={model.family} reads pictures, the task {chosen.name} text; leave it out")
    for name in given:
        if name in FROM_THE_DATA:
            raise ConfigError(f"model.{name} is taken from the data; leave it out")
        if why := model.why_unused(name):
            raise ConfigError(f"model.{name} {why}; leave it out")


def _check_training(draft: Config) -> None:
    """Ways to train that some networks cannot be trained in."""
    model, training = draft.model, draft.training
    if training.activation_checkpointing and (why := model.why_unused("num_heads")):
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


def _check_data(chosen: Purpose, given: Mapping[str, Any], draft: Config) -> None:
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


def check_ids(made: Made) -> None:
    """The decoder may start from any piece, such as the end; padding and the end are the tokenizer's."""
    model, tokenizer = made.config.model, made.tokenizer
    if tokenizer and (model.pad_id, model.eos_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise ConfigError(
            f"model.pad_id={model.pad_id} and model.eos_id={model.eos_id} must be the tokenizer's, "
            f"{tokenizer.pad_id} and {tokenizer.eos_id}; leave them out"
        )
    if tokenizer and model.decoder_start_id >= model.vocab_size:
        raise ConfigError(
            f"model.decoder_start_id={model.decoder_start_id} is no piece; there are {model.vocab_size:,}"
        )


def check_length(training: TrainingConfig) -> None:
    """A training is so many updates, passes over the data or minutes long; two of them contradict each other."""
    given = [name for name in ("steps", "epochs", "minutes") if getattr(training, name)]
    if len(given) > 1:
        raise ConfigError(f"the length of a training is given twice, by {' and '.join(given)}; keep one")
