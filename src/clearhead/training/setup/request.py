"""Request for a training: files and options, resolved into settings, and checked before the data is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import RECURRENT, Config, ModelConfig, TrainingConfig
from clearhead.data.corpus.sampling_weights import WeightedFiles, parse_file_arguments
from clearhead.errors import ConfigError
from clearhead.tasks.decoding_settings import TEXT_TO_TEXT_VERB, check_decoding
from clearhead.tasks.task import Task
from clearhead.tasks.trainable.task import PreparedTask
from clearhead.training.setup.auto_config import LENGTH

FROM_THE_DATA = ("vocab_size", "num_labels", "image_size", "image_channels")
DATA_FIELDS = ("validation_share", "validation_max")  # of every task
REPLAY_SHARE = "replay_share"


@dataclass(frozen=True)
class TrainRequest:
    """Files and options of a training, as specified by users."""

    files: Sequence[Path]  # with weights and tags: a.tsv@de:2
    out: Path
    valid: Sequence[Path] = ()
    preset: str = ""  # takes precedence over the preset in the settings
    settings: Mapping[str, Any] | None = None  # nested, as in a recipe
    overwrite: bool = False
    threads: int = 0
    task: str = ""  # must not contradict the task in the settings
    start: Path | None = None  # pretrained model, whose weights and tokenizer are used
    old_valid: Sequence[Path] = ()  # validation files of that model, scored before and after
    replay: Sequence[Path] = ()  # earlier training data to mix into each batch
    replay_share: float | None = None  # overrides data.replay_share
    columns: str = ""  # overrides data.columns
    languages: str = ""  # overrides data.languages
    minutes: float | None = None  # minutes, epochs or steps override the length in the settings
    epochs: float | None = None
    steps: int | None = None
    resume: bool = False  # resume the run in `out`, if there is one
    device: str = "auto"  # auto (a GPU if there is one), cpu or cuda
    tensorboard: bool = False  # write TensorBoard event files too

    def resolve(self) -> "ResolvedRequest":
        """Return the request with its options converted to settings; raise ConfigError for contradictions."""
        if self.resume and self.overwrite:
            raise ConfigError("--resume continues a run and --overwrite replaces it; give only one of them")
        train, valid, replay = (parse_file_arguments(paths) for paths in (self.files, self.valid, self.replay))
        if valid.weights:
            raise ConfigError("--valid files cannot have a weight, which is for training files; leave it out")
        if replay.weights:
            raise ConfigError("--replay files cannot have a weight; --replay-share sets their share of each batch")
        settings = configs.merge(self.settings or {}, self._option_settings(train, valid))
        preset, task = str(settings.pop("preset", "")), str(settings.pop("task", ""))
        if task and self.task and task != self.task:
            raise ConfigError(f"--task {self.task} contradicts the recipe, which is for the task {task}; give only one")
        return ResolvedRequest(
            self, train.files, valid.files, replay, self.task or task, self.preset or preset, settings
        )

    def _option_settings(self, train: WeightedFiles, valid: WeightedFiles) -> dict[str, Any]:
        """Return the options that override settings: length, replay share, columns, languages, weights and tags."""
        data = {
            "columns": self.columns,
            "languages": self.languages,
            REPLAY_SHARE: self.replay_share,
            "file_weights": train.weights,
            "source_tags": train.tags,
            "validation_tags": valid.tags,
        }
        data = {name: value for name, value in data.items() if value not in (None, "", [])}
        length = {name: getattr(self, name) for name in LENGTH if getattr(self, name) is not None}
        training = {**dict.fromkeys(LENGTH, 0), **length} if length else {}
        return {name: section for name, section in (("data", data), ("training", training)) if section}


@dataclass(frozen=True)
class ResolvedRequest:
    """Training request with weights and tags separated from the paths, and with options converted to settings."""

    options: TrainRequest
    """The original request, for options that are not settings."""
    files: Sequence[Path]
    valid: Sequence[Path]
    replay: WeightedFiles
    task: str
    preset: str
    settings: Mapping[str, Any]

    @property
    def out(self) -> Path:
        """The run folder."""
        return self.options.out


def check_request(request: ResolvedRequest, task: Task, draft: Config) -> None:
    """Raise ConfigError for contradictory settings and for options that would be ignored."""
    check_settings(task, request.settings, draft)
    check_held_out(request.settings, request.valid)
    options = request.options
    for option, files in (("--old-valid", options.old_valid), ("--replay", options.replay)):
        if files and options.start is None:
            raise ConfigError(f"{option} is for fine-tuning; name the old model with --from DIR, or leave out {option}")
    if REPLAY_SHARE in request.settings.get("data", {}) and not options.replay:
        raise ConfigError(
            "--replay-share (data.replay_share) has no effect without --replay FILE; give both or neither"
        )


def check_settings(task: Task, settings: Mapping[str, Any], draft: Config) -> None:
    """Raise ConfigError if a setting contradicts another or has no effect; `draft` is built from the settings."""
    check_length(draft.training)
    if "labels" in settings:
        raise ConfigError("labels are taken from the data; leave them out")
    _check_model(task, settings.get("model", {}), draft.model)
    _check_data(task, settings.get("data", {}), draft)
    _check_training(draft)
    if settings.get("tokenizer") and not draft.model.has_text:
        raise ConfigError(f"the task {task.name} has no tokenizer; leave the tokenizer settings out")
    if "validate_lines" in settings.get("training", {}) and task.verb != TEXT_TO_TEXT_VERB:
        raise ConfigError(
            f"training.validate_lines has no meaning for the task {task.name}, which validates on all records; "
            "data.validation_max sets how many are held out"
        )
    check_decoding(settings.get("decoding", {}), draft.decoding, task.verb, f"the task {task.name}")


def check_held_out(settings: Mapping[str, Any], valid: Sequence[Path]) -> None:
    """Raise ConfigError for validation settings that have no effect with, or without, validation files."""
    data = settings.get("data", {})
    if data.get("validation_tags") and not valid:
        raise ConfigError("data.validation_tags has no meaning without --valid; leave it out")
    for name in DATA_FIELDS:
        if valid and name in data:
            raise ConfigError(f"data.{name} has no meaning with --valid, because nothing is held out; leave one out")


def check_length(training: TrainingConfig) -> None:
    """Raise ConfigError if more than one of steps, epochs and minutes is set."""
    lengths = [name for name in LENGTH if getattr(training, name)]
    if len(lengths) > 1:
        raise ConfigError(f"the length of the training is set twice, by {' and '.join(lengths)}; give only one")


def check_ids(prepared: PreparedTask) -> None:
    """Raise ConfigError unless the model has the padding and end ids of the tokenizer."""
    model, tokenizer = prepared.config.model, prepared.tokenizer
    if tokenizer and (model.pad_id, model.eos_id) != (tokenizer.pad_id, tokenizer.eos_id):
        raise ConfigError(
            f"model.pad_id={model.pad_id} and model.eos_id={model.eos_id} must be the tokenizer's, "
            f"{tokenizer.pad_id} and {tokenizer.eos_id}; leave them out"
        )


def _check_model(task: Task, settings: Mapping[str, Any], model: ModelConfig) -> None:
    """Raise ConfigError for model settings that come from the data or have no effect."""
    if not model.has_text and configs.build(base=task.base).model.has_text:
        raise ConfigError(
            f"model.family={model.family} reads images, but the task {task.name} reads text; leave it out"
        )
    for name in settings:
        if name in FROM_THE_DATA:
            raise ConfigError(f"model.{name} is taken from the data; leave it out")
        if reason := model.unused_reason(name):
            raise ConfigError(f"model.{name} {reason}; leave it out")


def _check_training(draft: Config) -> None:
    """Raise ConfigError for training settings that the architecture does not support."""
    model, training = draft.model, draft.training
    if training.activation_checkpointing and (reason := model.unused_reason("num_heads")):
        raise ConfigError(f"training.activation_checkpointing {reason}; leave it out")
    if training.activation_checkpointing and model.norm == "batch":
        raise ConfigError(
            "training.activation_checkpointing does not work with model.norm=batch, which would count each batch "
            "twice; leave one of them out"
        )
    if training.precision != "float32" and model.family in RECURRENT:
        raise ConfigError(
            f"training.precision={training.precision} is not for model.family={model.family}, whose kernels support "
            "float32 only; leave it out"
        )


def _check_data(task: Task, settings: Mapping[str, Any], draft: Config) -> None:
    """Raise ConfigError for data settings that contradict others or have no effect for the task."""
    for name in settings:
        if name not in (*DATA_FIELDS, REPLAY_SHARE, *task.data_fields):
            used = ", ".join((*DATA_FIELDS, *task.data_fields))
            raise ConfigError(f"data.{name} has no meaning for the task {task.name}, which uses {used}; leave it out")
    if draft.data.bpe_dropout and draft.tokenizer.kind != "bpe":
        raise ConfigError(
            f"data.bpe_dropout skips merges of BPE, but tokenizer.kind is {draft.tokenizer.kind}; leave one out"
        )
    tokens, positions = draft.data.max_tokens, draft.model.max_positions
    if "max_tokens" in settings and tokens > positions:
        raise ConfigError(
            f"data.max_tokens={tokens} exceeds the positions of the model, model.max_positions={positions}; "
            "raise that too"
        )
