"""Replay: examples of earlier training data mixed into every batch, so that fine-tuning forgets less.

`ReplayTask` combines two tasks of the same kind, one over the new and one over the replayed data. An index i >= 0 is an
example of the new data; a negative index i is example ~i of the replayed data.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices
from clearhead.data.corpus.held_out import hash_fraction
from clearhead.data.records import Corpus, DiskRecords, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.model.loss import Loss
from clearhead.tasks.task import Log, Task
from clearhead.tasks.trainable.records import MIN_RECORDS, TaskRecords, TrainingFiles
from clearhead.tasks.trainable.task import Decode, PreparedTask, TrainingTask, Validation

NO_INDICES = np.zeros(0, np.int64)


class ReplayTask:
    """Task in whose batches `share` of the predictions belong to replayed examples.

    A prediction is a target token, a masked token, a word to tag or a text to classify. Epochs, numbers of examples and
    validation are those of the new data. In the replayed data, each epoch continues approximately where the previous
    one stopped. The position depends only on the epoch, so a resumed run uses the same examples.
    """

    def __init__(self, new: TrainingTask[Any], old: TrainingTask[Any], share: float, name: str) -> None:
        """`name` is the name of the replay files in messages about single examples."""
        self.new, self.old, self.name = new, old, name
        self.unit = new.unit
        self.ratio = share / (1 - share)  # replayed predictions per new one
        self._new_tokens = _count(new, new.plan(0))
        self._old_tokens = _count(old, old.plan(0))
        self._last_pass: tuple[int, list[Indices]] | None = None

    def num_examples(self) -> tuple[int, int]:
        """Return the number of new training examples and of validation examples."""
        return self.new.num_examples()

    def plan(self, epoch: int) -> list[Indices]:
        """Return the batches of the new data with replayed examples added to each."""
        replay = self._replay(epoch)
        missing = 0.0  # replayed predictions that are still to be added
        batches = []
        for batch in self.new.plan(epoch):
            missing += self.ratio * self.new.tokens(batch)
            replayed = []
            while missing > 0:
                index = next(replay)
                missing -= self.old.tokens(np.array([index]))
                replayed.append(~index)
            batches.append(np.concatenate([batch, np.array(replayed, np.int64)]))
        return batches

    def _replay(self, epoch: int) -> Iterator[int]:
        """Yield an endless sequence of replayed examples, from the position at which this epoch starts."""
        start = int(epoch * self.ratio * self._new_tokens)
        number, skipped = divmod(start, self._old_tokens)
        while True:
            for batch in self._plan_old(number):
                if skipped > 0:
                    skipped -= self.old.tokens(batch)
                else:
                    yield from batch.tolist()
            number, skipped = number + 1, 0

    def _plan_old(self, number: int) -> list[Indices]:
        """Return the batches of one pass over the replayed data, cached because a pass may span many epochs."""
        if self._last_pass is None or self._last_pass[0] != number:
            self._last_pass = number, self.old.plan(number)
        return self._last_pass[1]

    def batch(self, indices: Indices, epoch: int) -> tuple[Any, Any]:
        """Return the tensors of the new and of the replayed examples; None for a kind without examples."""
        new, old = _separate(indices)
        return (
            self.new.batch(new, epoch) if len(new) else None,
            self.old.batch(old, epoch) if len(old) else None,
        )

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Return the batch divided into parts, each of which has a share of both kinds of examples."""
        new, old = _separate(indices)
        pairs = zip_longest(
            self.new.split(new, parts) if len(new) else [],
            self.old.split(old, parts) if len(old) else [],
            fillvalue=NO_INDICES,
        )
        return [np.concatenate([new_part, ~old_part]) for new_part, old_part in pairs]

    def tokens(self, indices: Indices) -> int:
        """Return the number of predictions of all examples."""
        new, old = _separate(indices)
        return self.new.tokens(new) + self.old.tokens(old)

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Return the lines of the training files, and those of the replay files with their name."""
        new, old = _separate(indices)
        old_lines = (line if isinstance(line, str) else f"{self.name}:{line}" for line in self.old.lines(old))
        return [*self.new.lines(new), *old_lines]

    def loss(self, model: Any, batch: tuple[Any, Any]) -> Loss:
        """Return the summed loss of both kinds, each computed in its own forward pass to avoid padding."""
        new, old = batch
        losses = [task.loss(model, part) for task, part in ((self.new, new), (self.old, old)) if part is not None]
        if len(losses) == 1:
            return losses[0]
        first, second = losses
        return Loss(first.smoothed + second.smoothed, first.nll + second.nll, first.tokens + second.tokens)

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Validate on the new data."""
        return self.new.validate(model, decode)


def _separate(indices: Indices) -> tuple[Indices, Indices]:
    """Return the indices of the new and of the replayed examples in their own tasks."""
    return indices[indices >= 0], ~indices[indices < 0]


def _count(task: TrainingTask[Any], plan: Sequence[Indices]) -> int:
    return sum(task.tokens(batch) for batch in plan)


@dataclass(frozen=True)
class Replay:
    """Earlier training data to mix into the batches."""

    records: TaskRecords[Any]
    tags: tuple[str, ...]
    """The tag of each file; empty if the files have no tags."""

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return names and fingerprint of the files, which must be unchanged when the run is resumed."""
        fingerprint = "@".join([self.records.corpus.fingerprint, *self.tags])
        return {"replay_files": [path.name for path in files], "replay_fingerprint": fingerprint}


def read_replay(
    task: Task, files: TrainingFiles, tags: Sequence[str], config: Config, validation: Set[float], log: Log
) -> Replay:
    """Return all records of the replay files except those whose input has a hash in `validation`."""
    if bool(tags) != bool(config.data.source_tags):
        problem = "have tags, the replay files none" if config.data.source_tags else "have no tags, the replay files do"
        raise ConfigError(f"the training files {problem}; give every file a tag, as in FILE@de, or none")
    names = ", ".join(map(str, files.train))
    records = task.load_records(files, _replay_config(config, tags), lambda _: None)
    for line in records.corpus.skips.messages():
        log(f"replay: {line}")
    usable = records.corpus.records if len(records.corpus.records) >= MIN_RECORDS else records.train
    train = _exclude(usable, validation)
    if not len(train):
        raise DataError(
            f"{names}: expected {task.record_name} to replay, but all of them are in a validation set; add others"
        )
    num_excluded = len(usable) - len(train)
    note = f"; {num_excluded:,} are in a validation set and excluded" if num_excluded else ""
    share = f"{100 * config.data.replay_share:g} % of each batch"
    log(f"replay: {len(train):,} {task.record_name} of {names}, {share}{note}")
    return Replay(replace(records, train=train), tuple(tags))


def _exclude(records: Sequence[Any], hashes: Set[float]) -> Sequence[Any]:
    """Return the records whose input does not have one of these hashes."""
    if isinstance(records, DiskRecords):
        return records.select(~np.isin(records.hash_fractions(), list(hashes)))
    return [record for record in records if hash_fraction(record.fields[0].encode()) not in hashes]


def prepare_task(
    task: Task,
    config: Config,
    records: TaskRecords[Any],
    replay: Replay | None,
    tokenizer: Tokenizer | None,
    log: Log,
) -> PreparedTask:
    """Return the prepared task; with replay, `training.batch_tokens` limits both parts of a batch together."""
    if replay is None:
        return task.prepare(config, records, tokenizer, log)
    share, budget = config.data.replay_share, config.training.batch_tokens
    config = configs.override(config, {"labels": _all_labels(task, config, records, replay.records, tokenizer)})
    new = task.prepare(_with_batch_tokens(config, (1 - share) * budget), records, tokenizer, log)
    old_config = _with_batch_tokens(_replay_config(config, replay.tags), share * budget)
    old = task.prepare(old_config, replay.records, tokenizer, lambda text: log(f"replay: {text}"))
    if old.config.model != new.config.model:
        raise DataError("the replay data does not fit the training data: its examples have another shape; convert them")
    name = " and ".join(replay.records.names) or "replay data"
    return replace(new, config=_with_batch_tokens(new.config, budget), task=ReplayTask(new.task, old.task, share, name))


def _all_labels(
    task: Task, config: Config, new: TaskRecords[Any], old: TaskRecords[Any], tokenizer: Tokenizer | None
) -> tuple[str, ...]:
    """Return the labels of the new and the replayed records; none for a task without labels."""
    if config.model.head not in ("classification", "token_classification"):
        return ()
    records = [*new.corpus.records, *old.corpus.records]
    combined = replace(new, corpus=Corpus(records, SkipReport(), len(records)))
    return task.prepare(config, combined, tokenizer, lambda _: None).config.labels


def _with_batch_tokens(config: Config, batch_tokens: float) -> Config:
    return configs.override(config, {"training": {"batch_tokens": max(1, round(batch_tokens))}})


def _replay_config(config: Config, tags: Sequence[str]) -> Config:
    """Return the settings for the replay files: with their tags, and with each record once per pass."""
    changes = {"source_tags": tuple(tags), "validation_tags": (), "file_weights": (), "sampling_temperature": 1.0}
    return configs.override(config, {"data": changes})
