"""Going on with a run: what it left, what must be as it was, and how long it goes on."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.errors import ConfigError, TrainingError
from clearhead.model.parameters import Weights
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, CheckpointState, RunOrigin
from clearhead.training.checkpoint.run_folder import TRAINING
from clearhead.training.distributed.process_group import ProcessGroup
from clearhead.training.loop.callbacks import Callback
from clearhead.training.setup.auto_config import LENGTH, steps_of_epochs
from clearhead.training.setup.forgetting import OldValidation
from clearhead.training.setup.validate_config import check_length

ANEW = "or begin anew with --overwrite"
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class RestoredRun:
    """What a run left: its state, and the config that it goes on with."""

    out: Path
    folder: CheckpointFolder
    state: CheckpointState
    config: Config
    tokenizer: str
    old: OldValidation | None
    """Validation set of the model that the run started from; the first process alone has it."""
    old_hashes: frozenset[float]
    """Hashes of its inputs, which are never replayed."""

    @classmethod
    def load(cls, out: Path) -> "RestoredRun | None":
        """The state in the folder of a run, every file checked; nothing where none was saved yet."""
        folder = CheckpointFolder.load(out / TRAINING)
        if folder is None or folder.state is None:
            return None
        old = OldValidation.load(out / TRAINING)
        hashes = old.hashes if old else frozenset[float]()
        config = configs.parse(folder.state.origin.config)
        return cls(out, folder, folder.state, config, folder.tokenizer(), old, hashes)

    def to_text(self) -> str:
        """All but the tensors, for the other processes."""
        facts = {"state": self.state.model_dump(), "tokenizer": self.tokenizer, "old_hashes": sorted(self.old_hashes)}
        return json.dumps(facts)

    @classmethod
    def from_text(cls, out: Path, text: str) -> "RestoredRun":
        """What the first process found; the folder may be on its machine only, and is not looked at."""
        told = json.loads(text)
        state, hashes = CheckpointState.model_validate(told["state"]), frozenset[float](told["old_hashes"])
        config = configs.parse(state.origin.config)
        return cls(out, CheckpointFolder(out / TRAINING), state, config, told["tokenizer"], None, hashes)

    def tensors(self, name: str, processes: ProcessGroup) -> Weights:
        """The tensors of a file, which the first process reads for all."""
        return processes.share(self.folder.tensors(name) if processes.is_first else {})

    @property
    def origin(self) -> RunOrigin:
        """What the run began with."""
        return self.state.origin

    def warn(self, threads: int, processes: ProcessGroup, watcher: Callback) -> None:
        """Says what makes the numbers come out otherwise in their last digits."""
        for before, now, kind in (
            (self.origin.processes, processes.count, "processes"),
            (self.origin.threads, threads, "cores"),
        ):
            if before != now:
                watcher.message(f"the run began on {before} {kind} and goes on with {now}: sums are rounded otherwise")
        if torch.__version__ != self.origin.torch:
            watcher.message(f"the run began with torch {self.origin.torch}: {torch.__version__} may round otherwise")


@dataclass(frozen=True)
class OriginalRun:
    """What a run began with, and what must be the same when somebody comes back to it."""

    out: Path
    config: Config
    data: Mapping[str, Any]
    start: str | None
    """The fingerprint of the model that it started from, nothing, or None where that is not known any more."""

    @classmethod
    def of(cls, out: Path, kept: RestoredRun | None) -> "OriginalRun":
        """From its state, or, where that was removed, from its model."""
        if kept is not None:
            return cls(out, kept.config, kept.origin.data, kept.origin.start)
        return cls(out, configs.parse(bundle.load(out).config), bundle.read_manifest(out).data, None)

    def check_settings(self, given: Settings, preset: str, task: str) -> None:
        """Refuses settings that contradict those that the run began with; its length may change."""
        _length(self.config, given)
        now = configs.override(self.config, _without_length(given))
        found = [f"task was {self.config.task}, is {task}"] if task and task != self.config.task else []
        if preset and preset != self.config.preset:
            found.append(f"preset was {self.config.preset or 'none'}, is {preset}")
        found += differences(self.config, now)
        if found:
            raise ConfigError(
                f"{self.out} cannot go on with other settings: {'; '.join(found)}. Leave them as they were, {ANEW}"
            )

    def check_start(self, start: Path | None) -> None:
        """Refuses another model to start from."""
        if start is None or self.start is None:
            return
        if not self.start:
            raise ConfigError(f"{self.out} did not start from a model; leave out --from, {ANEW}")
        if bundle.read_manifest(start).fingerprint != self.start:
            raise ConfigError(f"{self.out} started from another model than {start} is now; leave out --from, {ANEW}")

    def check_data(self, now: Mapping[str, Any]) -> None:
        """Refuses other data."""
        for kind, name in (("training", "fingerprint"), ("validation", "valid_fingerprint")):
            if self.data.get(name, now[name]) != now[name]:
                raise TrainingError(
                    f"the {kind} data of {self.out} changed: it began with {_described(self.data, kind)}, fingerprint "
                    f"{self.data[name][:8]}; now it is {_described(now, kind)}, fingerprint {now[name][:8]}. "
                    f"Restore the files, {ANEW}"
                )
        for option, name in (("--replay", "replay_fingerprint"), ("--old-valid", "old_valid_fingerprint")):
            before, after = self.data.get(name), now.get(name)
            if before and not after and option == "--replay":
                raise TrainingError(f"{self.out} replays {', '.join(self.data['replay_files'])}; give --replay again")
            if after and not before:
                raise TrainingError(f"{self.out} began without {option}; leave it out, {ANEW}")
            if before and after and before != after:
                raise TrainingError(
                    f"the files of {option} changed: {self.out} began with fingerprint {before[:8]}, now it is "
                    f"{after[:8]}. Restore them, {ANEW}"
                )


def _described(data: Mapping[str, Any], kind: str) -> str:
    """Which files data came from."""
    train, valid = ", ".join(data["files"]), ", ".join(data.get("valid_files", ()))
    if kind == "validation":
        return valid or f"what is held out of {train}"
    return f"{train} of {data['records']:,} records"


def asks_for_more(config: Config, given: Settings, planned: int) -> bool:
    """Return whether settings ask for a longer run than the one of `planned` updates."""
    before, now = config.training, _length(config, given)
    return now.steps > planned or bool(now.epochs and now.epochs != before.epochs)


def planned_steps(
    state: CheckpointState, config: Config, given: Settings, updates_an_epoch: Callable[[], float]
) -> int:
    """Return the number of updates of the whole run: as planned, unless the settings name another length."""
    before, now = config.training, _length(config, given)
    steps, done = state.steps, state.counts.step
    if now.steps:
        steps = now.steps
    elif now.epochs and now.epochs != before.epochs:
        steps = steps_of_epochs(now.epochs, updates_an_epoch())
    if steps < done:
        raise ConfigError(f"{steps:,} updates are asked for, {done:,} are done already; give more --steps")
    return steps


def differences(before: Config, now: Config) -> list[str]:
    """The settings in which two configs differ, with both values."""
    then, today = dict(_flat(before.model_dump())), dict(_flat(now.model_dump()))
    return [f"{name} was {then.get(name)}, is {today.get(name)}"
            for name in then | today if then.get(name) != today.get(name)]  # fmt: skip


def _flat(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _without_length(given: Settings) -> dict[str, Any]:
    training = {name: value for name, value in given.get("training", {}).items() if name not in LENGTH}
    return {**given, "training": training}


def _length(config: Config, given: Settings) -> configs.TrainingConfig:
    """The training section with the length that is given, and no other. Minutes were made into updates once."""
    asked = {name: value for name, value in given.get("training", {}).items() if name in LENGTH}
    training = configs.override(config, {"training": {**dict.fromkeys(LENGTH, 0), **asked}}).training
    check_length(training)
    if training.minutes and training.minutes != config.training.minutes:
        raise ConfigError(
            f"the number of updates was fixed when the run began, at {config.training.steps:,}; "
            f"--minutes {training.minutes:g} cannot change it: give more --steps, or leave it as it was"
        )
    return training
