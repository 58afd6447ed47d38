"""Resuming a run: its saved state, the conditions that must be unchanged, and its new length."""

import json
from collections.abc import Iterator, Mapping
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
from clearhead.training.loop.train_state import TrainState
from clearhead.training.setup.auto_config import LENGTH, steps_of_epochs
from clearhead.training.setup.forgetting import OldValidation
from clearhead.training.setup.request import check_length

START_AGAIN = "or start again with --overwrite"
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class RestoredRun:
    """Saved state of a run, with its settings and tokenizer."""

    out: Path
    folder: CheckpointFolder
    state: CheckpointState
    config: Config
    tokenizer: str
    old: OldValidation | None
    """Validation set of the pretrained model that the run started from; only on rank 0."""
    old_hashes: frozenset[float]
    """Hashes of the inputs in `old`, which are never replayed."""

    @classmethod
    def load(cls, out: Path) -> "RestoredRun | None":
        """Return the saved state of a run after verifying all files; None if nothing was saved yet."""
        folder = CheckpointFolder.load(out / TRAINING)
        if folder is None or folder.state is None:
            return None
        old = OldValidation.load(out / TRAINING)
        hashes = old.hashes if old else frozenset[float]()
        config = configs.parse(folder.state.origin.config)
        return cls(out, folder, folder.state, config, folder.load_tokenizer(), old, hashes)

    def to_text(self) -> str:
        """Return everything except the tensors, for the other processes."""
        facts = {"state": self.state.model_dump(), "tokenizer": self.tokenizer, "old_hashes": sorted(self.old_hashes)}
        return json.dumps(facts)

    @classmethod
    def from_text(cls, out: Path, text: str) -> "RestoredRun":
        """Return the run that `to_text` wrote on rank 0; the folder, maybe on another machine, is not read."""
        facts = json.loads(text)
        state, hashes = CheckpointState.model_validate(facts["state"]), frozenset[float](facts["old_hashes"])
        config = configs.parse(state.origin.config)
        return cls(out, CheckpointFolder(out / TRAINING), state, config, facts["tokenizer"], None, hashes)

    def load_tensors(self, name: str, group: ProcessGroup) -> Weights:
        """Return the tensors of a file, which rank 0 reads for all processes."""
        return group.broadcast_tensors(self.folder.load_tensors(name) if group.is_rank0 else {})

    @property
    def origin(self) -> RunOrigin:
        """Conditions at the start of the run."""
        return self.state.origin

    def train_state(self, steps: int) -> TrainState:
        """Return the state from which the run continues until update `steps`.

        A new number of updates replaces --minutes and its plan, and a higher one resets the patience.
        """
        state = self.state.train_state
        if steps != self.state.steps:
            state = state.model_copy(update={"plan": None, "next_validation_step": 0})
        if steps > self.state.steps:
            state = state.model_copy(update={"validations_without_gain": 0})
        return state

    def warn_about_rounding(self, threads: int, group: ProcessGroup, callback: Callback) -> None:
        """Report changes since the start of the run that may change the rounding of results."""
        for before, now, kind in (
            (self.origin.processes, group.world_size, "processes"),
            (self.origin.threads, threads, "threads"),
        ):
            if before != now:
                callback.message(
                    f"the run started with {before} {kind} and continues with {now}: sums are rounded differently"
                )
        if torch.__version__ != self.origin.torch:
            callback.message(
                f"the run started with torch {self.origin.torch}: torch {torch.__version__} may round differently"
            )


@dataclass(frozen=True)
class OriginalRun:
    """Settings and data at the start of a run, which must be unchanged when it is resumed."""

    out: Path
    config: Config
    data: Mapping[str, Any]
    pretrained: str | None
    """Fingerprint of the pretrained model; empty without one, None if the checkpoint that recorded it was deleted."""

    @classmethod
    def load(cls, out: Path, restored: RestoredRun | None) -> "OriginalRun":
        """Return settings and data from the checkpoint, or from the bundle if the checkpoint was deleted."""
        if restored is not None:
            return cls(out, restored.config, restored.origin.data, restored.origin.pretrained)
        return cls(out, configs.parse(bundle.load(out).config), bundle.read_manifest(out).data, None)

    def check_settings(self, settings: Settings, preset: str, task: str) -> None:
        """Raise ConfigError for settings that differ from the original ones; only the length may change."""
        _length(self.config, settings)
        now = configs.override(self.config, _without_length(settings))
        changes = [f"task was {self.config.task}, is {task}"] if task and task != self.config.task else []
        if preset and preset != self.config.preset:
            changes.append(f"preset was {self.config.preset or 'none'}, is {preset}")
        changes += differences(self.config, now)
        if changes:
            raise ConfigError(
                f"{self.out} cannot be resumed with other settings: {'; '.join(changes)}. Leave them unchanged, "
                f"{START_AGAIN}"
            )

    def check_start(self, start: Path | None) -> None:
        """Raise ConfigError for another pretrained model."""
        if start is None or self.pretrained is None:
            return
        if not self.pretrained:
            raise ConfigError(f"{self.out} did not start from a model; leave out --from, {START_AGAIN}")
        if bundle.read_manifest(start).fingerprint != self.pretrained:
            raise ConfigError(
                f"{self.out} started from another model than {start} is now; leave out --from, {START_AGAIN}"
            )

    def check_data(self, now: Mapping[str, Any]) -> None:
        """Raise TrainingError for other training, validation, replay or --old-valid data."""
        for kind, name in (("training", "fingerprint"), ("validation", "valid_fingerprint")):
            if self.data.get(name, now[name]) != now[name]:
                raise TrainingError(
                    f"the {kind} data of {self.out} changed: it was {_describe(self.data, kind)}, fingerprint "
                    f"{self.data[name][:8]}; now it is {_describe(now, kind)}, fingerprint {now[name][:8]}. "
                    f"Restore the files, {START_AGAIN}"
                )
        for option, name in (("--replay", "replay_fingerprint"), ("--old-valid", "old_valid_fingerprint")):
            before, after = self.data.get(name), now.get(name)
            if before and not after and option == "--replay":
                raise TrainingError(f"{self.out} replays {', '.join(self.data['replay_files'])}; give --replay again")
            if after and not before:
                raise TrainingError(f"{self.out} started without {option}; leave it out, {START_AGAIN}")
            if before and after and before != after:
                raise TrainingError(
                    f"the files of {option} changed: {self.out} started with fingerprint {before[:8]}, now it is "
                    f"{after[:8]}. Restore them, {START_AGAIN}"
                )


def _describe(data: Mapping[str, Any], kind: str) -> str:
    """Return a description of the training or validation data, with its files."""
    train, valid = ", ".join(data["files"]), ", ".join(data.get("valid_files", ()))
    if kind == "validation":
        return valid or f"the part held out from {train}"
    return f"{train} of {data['records']:,} records"


def requests_longer_run(config: Config, settings: Settings, planned: int) -> bool:
    """Return whether the settings require more than the `planned` updates, or another number of epochs."""
    before, now = config.training, _length(config, settings)
    return now.steps > planned or bool(now.epochs and now.epochs != before.epochs)


def planned_steps(restored: RestoredRun, settings: Settings, updates_per_epoch: float) -> int:
    """Return the number of updates of the whole run: the planned number, unless the settings change the length."""
    before, now = restored.config.training, _length(restored.config, settings)
    steps, done = restored.state.steps, restored.state.train_state.step
    if now.steps:
        steps = now.steps
    elif now.epochs and now.epochs != before.epochs:
        steps = steps_of_epochs(now.epochs, updates_per_epoch)
    if steps < done:
        raise ConfigError(f"expected at least {done:,} updates, which are done already, found {steps:,}; "
                          "increase --steps")  # fmt: skip
    return steps


def differences(before: Config, now: Config) -> list[str]:
    """Return the settings in which two configs differ, with both values."""
    old, new = dict(_flatten(before.model_dump())), dict(_flatten(now.model_dump()))
    return [f"{name} was {old.get(name)}, is {new.get(name)}"
            for name in old | new if old.get(name) != new.get(name)]  # fmt: skip


def _flatten(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all settings with dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _without_length(settings: Settings) -> dict[str, Any]:
    training = {name: value for name, value in settings.get("training", {}).items() if name not in LENGTH}
    return {**settings, "training": training}


def _length(config: Config, settings: Settings) -> configs.TrainingConfig:
    """Return the training section with the length in `settings`; raise ConfigError for a new value of --minutes.

    --minutes determines the number of updates only at the start of a run.
    """
    length = {name: value for name, value in settings.get("training", {}).items() if name in LENGTH}
    training = configs.override(config, {"training": {**dict.fromkeys(LENGTH, 0), **length}}).training
    check_length(training)
    if training.minutes and training.minutes != config.training.minutes:
        raise ConfigError(
            f"the number of updates was fixed at the start of the run, at {config.training.steps:,}; "
            f"--minutes {training.minutes:g} cannot change it: increase --steps, or repeat the same --minutes"
        )
    return training
