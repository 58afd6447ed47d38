"""Replay: examples of earlier training data mixed into every batch, so that fine-tuning forgets less.

Two tasks of the same kind, one over the new and one over the replayed data, become one. An index of 0 or more is an
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
from clearhead.tasks.trainable.task import (
    MIN_RECORDS,
    Decode,
    PreparedTask,
    TaskRecords,
    TrainingFiles,
    TrainingTask,
    Validation,
)

NO_INDICES = np.zeros(0, np.int64)


class ReplayTask:
    """A task whose batches hold `share` of their predictions from the replayed data.

    A prediction is what the task counts as one: a target token, a masked token, a word to tag, a text to classify.
    Epochs, sizes and validation are those of the new data. Each epoch continues about where the one before it stopped
    in the replayed data, at a position that follows from the epoch alone, so a resumed run draws the same examples.
    """

    def __init__(self, new: TrainingTask[Any], old: TrainingTask[Any], share: float, name: str) -> None:
        """`name` stands for the replay files in messages about single examples."""
        self.new, self.old, self.name = new, old, name
        self.unit = new.unit
        self.ratio = share / (1 - share)  # replayed predictions per new one
        self._new_tokens = _count(new, new.plan(0))
        self._old_tokens = _count(old, old.plan(0))
        self._round: tuple[int, list[Indices]] | None = None

    def sizes(self) -> tuple[int, int]:
        """Return the number of new examples to train on, and of those to validate on."""
        return self.new.sizes()

    def plan(self, epoch: int) -> list[Indices]:
        """Return the batches of the new data, each with its share of replayed examples."""
        drawn = self._draw(epoch)
        owed = 0.0
        batches = []
        for batch in self.new.plan(epoch):
            owed += self.ratio * self.new.tokens(batch)
            replayed = []
            while owed > 0:
                index = next(drawn)
                owed -= self.old.tokens(np.array([index]))
                replayed.append(~index)
            batches.append(np.concatenate([batch, np.array(replayed, np.int64)]))
        return batches

    def _draw(self, epoch: int) -> Iterator[int]:
        """Yield replayed examples without end, from the position at which this epoch starts."""
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
        """Return one pass over the replayed data; the last one is cached, for a pass may last many epochs."""
        if self._round is None or self._round[0] != number:
            self._round = number, self.old.plan(number)
        return self._round[1]

    def batch(self, indices: Indices, epoch: int) -> tuple[Any, Any]:
        """Return the tensors of the new examples and of the replayed ones; None where there are none."""
        new, old = _apart(indices)
        return (
            self.new.batch(new, epoch) if len(new) else None,
            self.old.batch(old, epoch) if len(old) else None,
        )

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Divide both kinds of examples, so that each part has its share of either."""
        new, old = _apart(indices)
        both = zip_longest(
            self.new.split(new, parts) if len(new) else [],
            self.old.split(old, parts) if len(old) else [],
            fillvalue=NO_INDICES,
        )
        return [np.concatenate([mine, ~theirs]) for mine, theirs in both]

    def tokens(self, indices: Indices) -> int:
        """Return the number of predictions of all examples."""
        new, old = _apart(indices)
        return self.new.tokens(new) + self.old.tokens(old)

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Return the lines of the training files, and those of the replay files with their name."""
        new, old = _apart(indices)
        theirs = (line if isinstance(line, str) else f"{self.name}:{line}" for line in self.old.lines(old))
        return [*self.new.lines(new), *theirs]

    def loss(self, model: Any, batch: tuple[Any, Any]) -> Loss:
        """Return the summed loss of both; each is one forward pass, so neither is padded to the other's length."""
        new, old = batch
        losses = [task.loss(model, part) for task, part in ((self.new, new), (self.old, old)) if part is not None]
        if len(losses) == 1:
            return losses[0]
        first, second = losses
        return Loss(first.smoothed + second.smoothed, first.nll + second.nll, first.tokens + second.tokens)

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Validate on the new data."""
        return self.new.validate(model, decode)


def _apart(indices: Indices) -> tuple[Indices, Indices]:
    """Return the indices of the new examples and those of the replayed ones, each in its own task's numbers."""
    return indices[indices >= 0], ~indices[indices < 0]


def _count(task: TrainingTask[Any], plan: Sequence[Indices]) -> int:
    return sum(task.tokens(batch) for batch in plan)


@dataclass(frozen=True)
class Replay:
    """Earlier training data to mix into the batches."""

    records: TaskRecords[Any]
    tags: tuple[str, ...]
    """The tag of each file; none: no tags."""

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return names and fingerprint of the files, which a resumed run must find unchanged."""
        fingerprint = "@".join([self.records.corpus.fingerprint, *self.tags])
        return {"replay_files": [path.name for path in files], "replay_fingerprint": fingerprint}


def read_replay(
    chosen: Task, files: TrainingFiles, tags: Sequence[str], config: Config, validation: Set[float], tell: Log
) -> Replay:
    """Read replay files whole, without the records whose input hashes to one of `validation`."""
    if bool(tags) != bool(config.data.source_tags):
        have = "have tags, the replay files none" if config.data.source_tags else "have no tags, the replay files do"
        raise ConfigError(f"the training files {have}; give every file a tag, as in FILE@de, or none")
    names = ", ".join(map(str, files.train))
    records = chosen.read(files, _config_of(config, tags), lambda _: None)
    for line in records.corpus.skips.messages():
        tell(f"replay: {line}")
    found = records.corpus.records if len(records.corpus.records) >= MIN_RECORDS else records.train
    kept = _without(found, validation)
    if not len(kept):
        raise DataError(
            f"{names}: expected {chosen.record_name} to replay, all of them are in a validation set; add others"
        )
    left_out = len(found) - len(kept)
    also = f"; {left_out:,} left out, which are in a validation set" if left_out else ""
    share = f"{100 * config.data.replay_share:g} % of each batch"
    tell(f"replay: {len(kept):,} {chosen.record_name} of {names}, {share}{also}")
    return Replay(replace(records, train=kept), tuple(tags))


def _without(records: Sequence[Any], hashes: Set[float]) -> Sequence[Any]:
    """Return the records whose input does not hash to one of these numbers."""
    if isinstance(records, DiskRecords):
        return records.select(~np.isin(records.places(), list(hashes)))
    return [record for record in records if hash_fraction(record.parts[0].encode()) not in hashes]


def make_task(
    chosen: Task,
    config: Config,
    records: TaskRecords[Any],
    replay: Replay | None,
    tokenizer: Tokenizer | None,
    tell: Log,
) -> PreparedTask:
    """Return the task, with replay if there is some; `training.batch_tokens` then limits both parts together."""
    if replay is None:
        return chosen.make(config, records, tokenizer, tell)
    share, budget = config.data.replay_share, config.training.batch_tokens
    labelled = configs.override(config, {"labels": _all_labels(chosen, config, records, replay.records, tokenizer)})
    made = chosen.make(_limited(labelled, (1 - share) * budget), records, tokenizer, tell)
    old = _limited(_config_of(labelled, replay.tags), share * budget)
    past = chosen.make(old, replay.records, tokenizer, lambda text: tell(f"replay: {text}"))
    if past.config.model != made.config.model:
        raise DataError("the replay data does not fit the training data: its examples have another shape; convert them")
    name = " and ".join(replay.records.names) or "replay data"
    task = ReplayTask(made.task, past.task, share, name)
    return replace(made, config=_limited(made.config, budget), task=task)


def _all_labels(
    chosen: Task, config: Config, new: TaskRecords[Any], old: TaskRecords[Any], tokenizer: Tokenizer | None
) -> tuple[str, ...]:
    """Return the labels of both files, as the task lists them; none for a task without labels."""
    if config.model.head not in ("classification", "token_classification"):
        return ()
    every = [*new.corpus.records, *old.corpus.records]
    both = replace(new, corpus=Corpus(every, SkipReport(), len(every)))
    return chosen.make(config, both, tokenizer, lambda _: None).config.labels


def _limited(config: Config, batch_tokens: float) -> Config:
    return configs.override(config, {"training": {"batch_tokens": max(1, round(batch_tokens))}})


def _config_of(config: Config, tags: Sequence[str]) -> Config:
    """Return the settings under which replay files are read: their own tags, each record once per pass."""
    own = {"source_tags": tuple(tags), "validation_tags": (), "file_weights": (), "sampling_temperature": 1.0}
    return configs.override(config, {"data": own})
