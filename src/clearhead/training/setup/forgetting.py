"""Measurement of forgetting in fine-tuning: the old model's validation records, scored before and after the training.

    DIR/training/validation/        up to 500 validation records of the run, for runs that start from its model
    DIR/training/old_validation/    records of the model that the run started from, and its score in before.json

Records are stored as JSONL, or as CoNLL for tagged sentences. No export copies the folder `training/`.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config, ModelConfig
from clearhead.data.corpus.held_out import hash_fraction
from clearhead.data.corpus.sampling_weights import WeightedFiles, parse_file_arguments
from clearhead.data.readers.record_files import format_files, sample_records
from clearhead.data.records import Corpus, Record, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import BundleError, ConfigError, DataError, TrainingError
from clearhead.files import write_atomically
from clearhead.model.parameters import restore
from clearhead.model.registry import build_model
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles
from clearhead.tasks.trainable.task import TrainingTask, Validation
from clearhead.training.distributed.thread_data_parallel import torch_threads
from clearhead.training.setup.finetune import PretrainedModel

VALIDATION = "validation"
OLD_VALIDATION = "old_validation"
BEFORE = "before.json"
MAX_DROP = 1.0
"""Largest drop without a warning, of a score from 0 to 100."""
MAX_DROP_LOG_PROB = 0.05
"""Largest drop without a warning, of a log-probability per token."""
SCORE_NAMES = {"bleu": "BLEU", "chrf2": "chrF2", "f1": "F1", "log_prob": "log-probability per token"}


@dataclass(frozen=True)
class OldValidation:
    """Validation records of the model that training starts from, and its score on them."""

    config: Config
    """Settings of the old model, with the language tags of these records."""
    records: Sequence[Record]
    before: Validation | None = None
    """Validation of the old model; None if the models have different labels and cannot be compared."""

    def is_comparable_to(self, config: Config) -> bool:
        """Return whether a model with these settings has the old labels and can be scored on the records."""
        return config.labels == self.config.labels

    def check_labels(self, config: Config, is_explicit: bool, log: Log) -> None:
        """Raise ConfigError if the new model has other labels and --old-valid was given; else log a message."""
        if self.is_comparable_to(config):
            return
        problem = "the labels of the new data are not those of the old model"
        if is_explicit:
            raise ConfigError(f"--old-valid cannot be scored before and after: {problem}; leave it out")
        log(f"forgetting is not measured: {problem}")

    @property
    def hashes(self) -> frozenset[float]:
        """Hashes of the records' inputs, by which they are excluded from replay."""
        return frozenset(hash_fraction(record.fields[0].encode()) for record in self.records)

    def task(self, model: ModelConfig, tokenizer: Tokenizer | None) -> TrainingTask[Any]:
        """Return the task that validates a model of this shape on the records."""
        changes = {"model": model.model_dump(), "training": {"validate_lines": len(self.records)}}
        config = configs.override(self.config, changes)
        records = TaskRecords(self.records, self.records, Corpus(self.records, SkipReport(), len(self.records)))
        return get_task(config.task).prepare(config, records, tokenizer, lambda _: None).task

    def score_old_model(self, folder: Path, tokenizer: Tokenizer | None, threads: int, log: Log) -> "OldValidation":
        """Return the validation set with the score of the old model, which is loaded from `folder`."""
        log(f"scoring {self.description} with the old model; this time is not part of --minutes")
        loaded = bundle.load(folder)
        model = build_model(configs.parse(loaded.config).model)
        restore(model, loaded.tensors())
        model.eval()
        start = time.monotonic()
        with torch_threads(threads):
            before = self.task(self.config.model, tokenizer).validate(model)
        log(f"{self.description}: {format_score(before)} before the training ({time.monotonic() - start:.0f} s)")
        return replace(self, before=before)

    @property
    def description(self) -> str:
        """Name and size of the set in messages."""
        return f"old validation set ({len(self.records):,} {get_task(self.config.task).record_name})"

    def save(self, training: Path) -> None:
        """Write records and score into a run's `training/`; the score is last, because it makes the set valid."""
        folder = training / OLD_VALIDATION
        facts = {
            "config": self.config.model_dump(),
            "before": asdict(self.before) if self.before else None,
        }
        write_records(folder, self.records, self.config.data.source_tags)
        write_atomically(folder / BEFORE, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, training: Path) -> "OldValidation | None":
        """Return the validation set that `save` wrote; None if the run has none."""
        path = training / OLD_VALIDATION / BEFORE
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            before = Validation.from_text(json.dumps(facts["before"])) if facts["before"] else None
            config = configs.parse(facts["config"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise BundleError(f"{path} is damaged ({error}); restore it from a copy, or start again") from error
        old = _read(_config_for_written_records(config), _written_files(path.parent, config), lambda _: None)
        return replace(old, before=before)


@dataclass(frozen=True)
class ForgettingReport:
    """Scores of one validation set before and after a training."""

    description: str
    records: int
    before: Validation
    after: Validation

    @property
    def change(self) -> float:
        """Difference of the scores, negative if the model became worse."""
        assert self.after.score is not None and self.before.score is not None, "old records are always decoded"
        return self.after.score - self.before.score

    @property
    def is_worse(self) -> bool:
        """Whether the score dropped by more than the limit for a warning."""
        return -self.change > (MAX_DROP_LOG_PROB if self.before.score_name == "log_prob" else MAX_DROP)

    def __str__(self) -> str:
        digits = _digits(self.before)
        return (
            f"{self.description}: {format_score(self.before)} before, {self.after.score:.{digits}f} after "
            f"({self.change:+.{digits}f})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the summary for the manifest."""
        return {
            "score": self.before.score_name,
            "before": self.before.score,
            "after": self.after.score,
            "change": self.change,
            "records": self.records,
            "signature": self.before.signature,
        }


def find_old_validation(
    pretrained: PretrainedModel, task: str, paths: Sequence[Path], log: Log
) -> OldValidation | None:
    """Return the validation set of the old model, from the files of --old-valid or from its run folder.

    Without records, or for another task, log the reason and return None. Raise ConfigError or DataError if the files of
    --old-valid cannot be scored.
    """
    problem = ""
    if pretrained.config.task != task:
        problem = f"{pretrained.folder} was trained for the task {pretrained.config.task}, this run is for {task}"
    elif pretrained.config.model.reads_images:
        problem = f"the task {task} reads images, and runs save validation records of text only"
    if problem and paths:
        raise ConfigError(f"--old-valid cannot be scored before and after: {problem}; leave it out")
    if not problem:
        try:
            old = _read_old(pretrained, paths, log)
        except DataError as error:
            if paths:
                raise
            problem = str(error)
        else:
            if old:
                return old
            problem = f"{pretrained.folder} has no validation records; add --old-valid FILE"
    log(f"forgetting is not measured: {problem}")
    return None


def _read_old(pretrained: PretrainedModel, paths: Sequence[Path], log: Log) -> OldValidation | None:
    """Return a validation set of at most 500 records; None if there are no files."""
    if paths:
        old = _read(pretrained.config, parse_file_arguments(paths), log)
    else:
        config = _config_for_written_records(pretrained.config)
        written = _written_files(pretrained.folder / "training" / VALIDATION, config)
        if not written.files:
            return None
        old = _read(config, written, log)
    sample = sample_records(old.records)
    if len(sample) < len(old.records):
        log(f"old validation set: {len(sample):,} of {len(old.records):,} records, evenly spaced")
    return replace(old, records=sample)


def _read(config: Config, named: WeightedFiles, log: Log) -> OldValidation:
    """Read validation files of the old model's task."""
    if named.weights:
        raise ConfigError("--old-valid files cannot have a weight; leave it out")
    tags = config.data.source_tags
    if bool(named.tags) != bool(tags):
        expected = f"a tag, such as {named.files[0]}@{tags[0]}" if tags else "no tags"
        raise ConfigError(f"the old model was trained with{'' if tags else 'out'} tags; give --old-valid {expected}")
    changes = {
        "source_tags": tuple(named.tags),
        "validation_tags": tuple(named.tags),
        "file_weights": (),
        "sampling_temperature": 1.0,
    }
    config = configs.override(config, {"data": changes})
    files = TrainingFiles(named.files, named.files, minimum=1)
    records = get_task(config.task).load_records(files, config, lambda _: None)
    for line in records.corpus.skips.messages():
        log(f"old validation set: {line}")
    return OldValidation(config, records.valid)


def _config_for_written_records(config: Config) -> Config:
    """Return the settings for reading the files of `write_records`, which differ in their table format."""
    columns = "text=text,label=label" if config.task == "classify" else ""
    data = {"columns": columns, "header": "auto", "quoting": False, "delimiter": "auto"}
    return configs.override(config, {"data": data})


def _written_files(folder: Path, config: Config) -> WeightedFiles:
    """Return the files that `write_records` wrote, with the tags in their names."""
    files = sorted(path for path in folder.glob("*") if path.suffix in (".jsonl", ".conll"))
    return WeightedFiles(files, [], [path.stem for path in files] if config.data.source_tags else [])


def old_valid_facts(paths: Sequence[Path]) -> dict[str, Any]:
    """Return names and fingerprint of the --old-valid files, which must be unchanged when the run is resumed."""
    if not paths:
        return {}
    named, digest = parse_file_arguments(paths), blake2b(digest_size=16)
    for path in named.files:
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    fingerprint = "@".join([digest.hexdigest(), *named.tags])
    return {"old_valid_files": [path.name for path in named.files], "old_valid_fingerprint": fingerprint}


def write_records(folder: Path, records: Sequence[Record], tags: Sequence[str]) -> None:
    """Write records into a folder, each file atomically; images are not written."""
    try:
        folder.mkdir(exist_ok=True)
        for name, text in format_files(records, tags).items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise TrainingError(
            f"cannot write to {folder}: {error.strerror or error}; fix the cause, then start again"
        ) from error


def report_forgetting(
    old: OldValidation, task: TrainingTask[Any], after: Validation, has_replay: bool, log: Log
) -> Mapping[str, Any]:
    """Report both scores, with a warning if the model became worse, and return the summary for the manifest."""
    assert old.before is not None
    count = min(len(old.records), task.num_examples()[1])
    report = ForgettingReport(old.description, count, old.before, after)
    log(str(report))
    if report.is_worse:
        noun = get_task(old.config.task).record_name
        remedy = f"--replay FILE mixes earlier training {noun} into each batch (--replay-share 0.2)"
        if has_replay:
            remedy = "a higher --replay-share retains more of it"
        log(
            f"warning: the model forgot part of what it had learned; {remedy}; a shorter training or a lower "
            "training.learning_rate forgets less too"
        )
    return {OLD_VALIDATION: report.to_json()}


def format_score(validation: Validation) -> str:
    """Return the name and value of a score."""
    name = SCORE_NAMES.get(validation.score_name, validation.score_name.replace("_", " "))
    return f"{name} {validation.score:.{_digits(validation)}f}"


def _digits(validation: Validation) -> int:
    """Return the number of decimals with which a score is displayed."""
    return 3 if validation.score_name == "log_prob" else 1
