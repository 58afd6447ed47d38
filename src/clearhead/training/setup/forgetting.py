"""Forgetting in fine-tuning: the old model's validation records, scored before and after the training.

    DIR/training/validation/        up to 500 validation records of the run, for runs that start from its model
    DIR/training/old_validation/    those of the model that the run started from; before.json holds its score on them

Both are JSONL, or CoNLL for tagged sentences. They stay in `training/`, which no export copies.
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
FACTS = "before.json"
MAX_DROP = 1.0
"""Largest drop without a warning, of a score from 0 to 100."""
MAX_DROP_LOG_PROB = 0.05
"""Largest drop without a warning, of a log-probability per token."""
NAMES = {"bleu": "BLEU", "chrf2": "chrF2", "f1": "F1", "log_prob": "log-probability per token"}


@dataclass(frozen=True)
class OldValidation:
    """Validation records of the model that training starts from, and its score on them."""

    config: Config
    """The old model's, with the tags of these records."""
    records: Sequence[Record]
    before: Validation | None = None
    """The old model's score; none where the new one has other labels and cannot be compared."""

    def is_comparable_to(self, config: Config) -> bool:
        """Whether a model with these settings has the old labels, and so can be scored on the records."""
        return config.labels == self.config.labels

    def check_labels(self, config: Config, is_given: bool, tell: Log) -> None:
        """Refuse files given with --old-valid if the new model has other labels; say so of kept records."""
        if self.is_comparable_to(config):
            return
        problem = "the labels of the new data are not those of the old model"
        if is_given:
            raise ConfigError(f"--old-valid cannot be scored before and after: {problem}; leave it out")
        tell(f"forgetting is not measured: {problem}")

    @property
    def hashes(self) -> frozenset[float]:
        """The hashes of the records' inputs, by which replay leaves them out."""
        return frozenset(hash_fraction(record.fields[0].encode()) for record in self.records)

    def task(self, model: ModelConfig, tokenizer: Tokenizer | None) -> TrainingTask[Any]:
        """Return the task that validates a model of this shape on the records."""
        changed = {"model": model.model_dump(), "training": {"validate_lines": len(self.records)}}
        config = configs.override(self.config, changed)
        records = TaskRecords(self.records, self.records, Corpus(self.records, SkipReport(), len(self.records)))
        return get_task(config.task).prepare(config, records, tokenizer, lambda _: None).task

    def measure_before(self, start: Path, tokenizer: Tokenizer | None, threads: int, tell: Log) -> "OldValidation":
        """Score the old model and return this with its score."""
        tell(f"scoring {self.description} with the old model; this time is not part of --minutes")
        found = bundle.load(start)
        network = build_model(configs.parse(found.config).model)
        restore(network, found.tensors())
        network.eval()
        began = time.monotonic()
        with torch_threads(threads):
            before = self.task(self.config.model, tokenizer).validate(network)
        tell(f"{self.description}: {shown(before)} before the training ({time.monotonic() - began:.0f} s)")
        return replace(self, before=before)

    @property
    def description(self) -> str:
        """The name and size of the set in messages."""
        return f"old validation set ({len(self.records):,} {get_task(self.config.task).record_name})"

    def save(self, training: Path) -> None:
        """Write records and score below a run's `training/`; the score last, which makes them count."""
        folder = training / OLD_VALIDATION
        tags = self.config.data.source_tags
        facts = {
            "config": self.config.model_dump(),
            "before": asdict(self.before) if self.before else None,
        }
        write_records(folder, self.records, tags)
        write_atomically(folder / FACTS, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, training: Path) -> "OldValidation | None":
        """Return what `save` wrote; nothing where the run has no old validation set."""
        path = training / OLD_VALIDATION / FACTS
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            before = Validation.from_text(json.dumps(facts["before"])) if facts["before"] else None
            config = configs.parse(facts["config"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise BundleError(f"{path} is damaged ({error}); restore it from a copy, or begin anew") from error
        found = _read(_config_of_kept(config), _record_files(path.parent, config), lambda _: None)
        return replace(found, before=before)


@dataclass(frozen=True)
class ForgettingReport:
    """Scores of one validation set before and after a training."""

    description: str
    records: int
    before: Validation
    after: Validation

    @property
    def change(self) -> float:
        """The difference of the scores; negative where the model became worse."""
        assert self.after.score is not None and self.before.score is not None, "old records are always decoded"
        return self.after.score - self.before.score

    @property
    def is_worse(self) -> bool:
        """Whether the score dropped by more than the limit for a warning."""
        return -self.change > (MAX_DROP_LOG_PROB if self.before.score_name == "log_prob" else MAX_DROP)

    def __str__(self) -> str:
        digits = _digits(self.before)
        return (
            f"{self.description}: {shown(self.before)} before, {self.after.score:.{digits}f} after "
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


def find_old(start: PretrainedModel, task: str, given: Sequence[Path], tell: Log) -> OldValidation | None:
    """Read the validation records of the old model: the given files, or those that its run kept.

    Where there are none, or its task is another, one sentence is told and nothing returned; given files that cannot be
    scored are refused.
    """
    problem = ""
    if start.config.task != task:
        problem = f"{start.folder} was trained for the task {start.config.task}, this run is for {task}"
    elif start.config.model.reads_images:
        problem = f"the task {task} reads images, and runs keep text only"
    if problem and given:
        raise ConfigError(f"--old-valid cannot be scored before and after: {problem}; leave it out")
    config = start.config if given else _config_of_kept(start.config)
    named = parse_file_arguments(given) if given else _record_files(start.folder / "training" / VALIDATION, config)
    if not problem and not named.files:
        problem = f"{start.folder} has no validation records; give some with --old-valid FILE"
    if problem:
        tell(f"forgetting is not measured: {problem}")
        return None
    try:
        return _sampled(_read(config, named, tell), tell)
    except DataError as error:
        if given:
            raise
        tell(f"forgetting is not measured: {error}")
        return None


def _read(config: Config, named: WeightedFiles, tell: Log) -> OldValidation:
    """Read validation files of the old model's task."""
    if named.weights:
        raise ConfigError("a weight has no meaning behind --old-valid; leave it out")
    if bool(named.tags) != bool(config.data.source_tags):
        needed = (
            f"a tag, such as {named.files[0]}@{config.data.source_tags[0]}" if config.data.source_tags else "no tags"
        )
        raise ConfigError(
            f"the old model was trained with{'' if config.data.source_tags else 'out'} tags; give --old-valid {needed}"
        )
    own = {
        "source_tags": tuple(named.tags),
        "validation_tags": tuple(named.tags),
        "file_weights": (),
        "sampling_temperature": 1.0,
    }
    config = configs.override(config, {"data": own})
    files = TrainingFiles(named.files, named.files, minimum=1)
    records = get_task(config.task).load_records(files, config, lambda _: None)
    for line in records.corpus.skips.messages():
        tell(f"old validation set: {line}")
    return OldValidation(config, records.valid)


def _sampled(old: OldValidation, tell: Log) -> OldValidation:
    """Return at most 500 of the records."""
    chosen = sample_records(old.records)
    if len(chosen) < len(old.records):
        tell(f"old validation set: {len(chosen):,} of {len(old.records):,} records, evenly spaced")
    return replace(old, records=chosen)


def _config_of_kept(config: Config) -> Config:
    """Return the settings under which kept records are read: the columns are those that `write_records` wrote."""
    columns = "text=text,label=label" if config.task == "classify" else ""
    kept = {"columns": columns, "header": "auto", "quoting": False, "delimiter": "auto"}
    return configs.override(config, {"data": kept})


def _record_files(folder: Path, config: Config) -> WeightedFiles:
    """Return the files that `write_records` wrote, with the tags that they are named after."""
    files = sorted(path for path in folder.glob("*") if path.suffix in (".jsonl", ".conll"))
    return WeightedFiles(files, [], [path.stem for path in files] if config.data.source_tags else [])


def given_facts(given: Sequence[Path]) -> dict[str, Any]:
    """Return names and fingerprint of the files of --old-valid, which a resumed run must find unchanged."""
    if not given:
        return {}
    named, digest = parse_file_arguments(given), blake2b(digest_size=16)
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
    """Write records into a folder, each file atomically; nothing where they are images."""
    try:
        folder.mkdir(exist_ok=True)
        for name, text in format_files(records, tags).items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise TrainingError(
            f"cannot write to {folder}: {error.strerror or error}; mend that, then start again"
        ) from error


def compare(
    old: OldValidation, task: TrainingTask[Any], after: Validation, has_replay: bool, tell: Log
) -> Mapping[str, Any]:
    """Report both scores, with a warning where the model became worse, and return the summary for the manifest."""
    assert old.before is not None
    count = min(len(old.records), task.num_examples()[1])
    found = ForgettingReport(old.description, count, old.before, after)
    tell(str(found))
    if found.is_worse:
        noun = get_task(old.config.task).record_name
        remedy = f"--replay FILE mixes earlier training {noun} into each batch (--replay-share 0.2)"
        if has_replay:
            remedy = "a higher --replay-share keeps more of it"
        tell(
            f"warning: the model forgot part of what it had learned; {remedy}; a shorter training or a lower "
            "training.learning_rate forgets less too"
        )
    return {OLD_VALIDATION: found.to_json()}


def shown(validation: Validation) -> str:
    """Return the name and value of a score."""
    name = NAMES.get(validation.score_name, validation.score_name.replace("_", " "))
    return f"{name} {validation.score:.{_digits(validation)}f}"


def _digits(validation: Validation) -> int:
    return 3 if validation.score_name == "log_prob" else 1
