"""Checkpoints: the complete state of a training on disk, from which a killed run resumes with identical results.

    state.json                  the counters, and size and SHA-256 of each file below; it begins with the SHA-256 of
                                the rest of its content
    tokenizer.json              the tokenizer of the run
    weights-00000040.safetensors     weights of the saved step, of the best step, and those to be averaged
    optimizer-00000040.safetensors   tensors of the optimizer

    nothing-saved-yet           exists until the first save; if it and state.json are missing, the state was lost
    owner                       under torchrun with restarts: identifier of the torchrun that last started the run

A save writes each new file under a temporary name, syncs and renames it. Replacing `state.json` makes the new state
valid; afterwards the files that it does not name are deleted. At any moment the old or the new state is complete. No
random generator state is saved, because all randomness is a pure function of the seed and the position.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from clearhead.bundle.manifest import FileRecord, check_content, record_file
from clearhead.errors import BundleError, TrainingError
from clearhead.files import replace_file, write_atomically
from clearhead.model.parameters import Weights
from clearhead.training.loop.train_state import TrainState

FORMAT_VERSION = 3  # lower versions had other names of tensors, settings and fields, and were never released
STATE = "state.json"
TOKENIZER = "tokenizer.json"
UNSAVED = "nothing-saved-yet"
OWNER = "owner"
REMEDY = "restore the folder from a copy, or start again with --overwrite"
# state.json is this head, the SHA-256 of the body, the middle, the body, and the tail.
_HEAD, _MIDDLE, _TAIL = b'{"sha256": "', b'",\n"state": ', b"}\n"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunOrigin(_Strict):
    """Conditions at the start of a run, with which a resumed run is compared."""

    config: dict[str, Any]
    data: dict[str, Any]
    """Fingerprints of the data, and numbers of examples."""
    pretrained: str
    """Fingerprint of the model that the training started from, or empty."""
    threads: int
    """Threads per process."""
    processes: int = 1
    torch: str
    started: str
    """Time of the start, in UTC."""


class CheckpointState(_Strict):
    """Content of `state.json`."""

    format_version: int
    origin: RunOrigin
    train_state: TrainState
    weights: str
    optimizer: str
    checkpoints: tuple[str, ...]
    """Files with weights to be averaged at the end, oldest first."""
    best: str
    """File with the best weights so far, or empty."""
    metrics_bytes: int
    """Length of `metrics.jsonl` at the save."""
    is_finished: bool
    files: dict[str, FileRecord]

    @property
    def steps(self) -> int:
        """Planned number of updates."""
        plan = self.train_state.plan
        return plan.steps if plan else int(self.origin.config["training"]["steps"])


class CheckpointFolder:
    """The folder `training/` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: CheckpointState | None = None
        self.best = ""
        self._records: dict[str, FileRecord] = {}

    # Writing

    @classmethod
    def create_empty(cls, folder: Path) -> "CheckpointFolder":
        """Return an empty folder for a new run; a crash during this call leaves no valid part of an old state."""
        folder.mkdir(exist_ok=True)
        (folder / UNSAVED).touch()
        (folder / STATE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != UNSAVED:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return cls(folder)

    def set_owner(self, job: str) -> None:
        """Store the torchrun job that may restart this run; do nothing if the name is empty."""
        if job:
            with self._recovering():
                write_atomically(self.folder / OWNER, job)

    def is_owned_by(self, job: str) -> bool:
        """Return whether this torchrun job started or resumed the run last."""
        with suppress(OSError, UnicodeDecodeError):
            return bool(job) and (self.folder / OWNER).read_text(encoding="utf-8") == job
        return False

    def save_tokenizer(self, tokenizer: str) -> None:
        """Save the tokenizer, which all states of the run share."""
        with self._recovering():
            (self.folder / UNSAVED).touch()
            write_atomically(self.folder / TOKENIZER, tokenizer)
            self._records[TOKENIZER] = record_file(self.folder / TOKENIZER)

    def save_best(self, step: int, weights: Weights) -> None:
        """Save the best weights; the next `save` makes them part of the state."""
        with self._recovering():
            self.best = self._write("weights", step, weights)

    def save(
        self,
        origin: RunOrigin,
        train_state: TrainState,
        weights: Weights,
        optimizer: Weights,
        *,
        average: int = 0,
        metrics_bytes: int = 0,
    ) -> None:
        """Save the state. If the tensors of this step are on disk already, only the counters are written.

        With `average`, the weights are added to those to be averaged, of which only the last `average` remain.
        """
        with self._recovering():
            current = self._write("weights", train_state.step, weights)
            checkpoints = self.checkpoints if current in self.checkpoints else (*self.checkpoints, current)
            state = CheckpointState(
                format_version=FORMAT_VERSION,
                origin=origin,
                train_state=train_state.model_copy(),
                weights=current,
                optimizer=self._write("optimizer", train_state.step, optimizer),
                checkpoints=checkpoints[-average:] if average else self.checkpoints,
                best=self.best,
                metrics_bytes=metrics_bytes,
                is_finished=False,
                files={},
            )
            files = {name: self._records[name] for name in sorted(_files_of(state))}
            self._write_state(state.model_copy(update={"files": files}))
            self.remove_unneeded()

    def mark_finished(self) -> None:
        """Record in the state that the run is finished."""
        assert self.state is not None
        with self._recovering():
            self._write_state(self.state.model_copy(update={"is_finished": True}))

    def remove_unneeded(self) -> None:
        """Delete files that neither the saved nor the next state needs, such as those of a killed process."""
        needed = {STATE, TOKENIZER, OWNER, self.best} | (_files_of(self.state) if self.state else {UNSAVED})
        self._records = {name: record for name, record in self._records.items() if name in needed}
        for path in self.folder.iterdir():
            if path.name not in needed and path.is_file():
                path.unlink()

    def _write_state(self, state: CheckpointState) -> None:
        """Replace `state.json`."""
        write_atomically(self.folder / STATE, _to_bytes(state))
        self.state = state

    def _write(self, kind: str, step: int, tensors: Weights) -> str:
        """Write tensors into a file, unless it exists, and return its name."""
        name = f"{kind}-{step:08d}.safetensors"
        if name not in self._records:
            with replace_file(self.folder / name) as temporary:
                save_file({key: tensor.detach().contiguous() for key, tensor in tensors.items()}, temporary)
            self._records[name] = record_file(self.folder / name)
        return name

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """After any failure, restore the state that is valid on disk and delete all other files."""
        try:
            yield
        except BaseException as error:
            self._recover()
            if not isinstance(error, OSError | SafetensorError):
                raise
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            step = self.state.train_state.step if self.state else 0
            left = f"the state of step {step:,} is complete" if self.state else "nothing was saved"
            raise TrainingError(
                f"cannot save the training in {self.folder}: {reason}; {left}; fix the cause, then add --resume"
            ) from error

    def _recover(self) -> None:
        """Read the valid state from disk, because a save may also fail after it has replaced `state.json`."""
        with suppress(OSError, BundleError):
            path = self.folder / STATE
            self.state = _parse(path.read_bytes(), path) if path.exists() else None
            self.best = self.state.best if self.state else ""
            self.remove_unneeded()

    # Reading

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Files with weights to be averaged, oldest first."""
        return self.state.checkpoints if self.state else ()

    @classmethod
    def load(cls, folder: Path) -> "CheckpointFolder | None":
        """Return the saved state of a run after verifying all files; None if nothing was saved yet."""
        state = load_state(folder)
        if state is None:
            if not (folder / UNSAVED).exists() and any(path.name != OWNER for path in folder.glob("*")):
                raise BundleError(f"{folder / STATE} is missing; {REMEDY}")
            return None
        loaded = cls(folder)
        loaded.state, loaded.best, loaded._records = state, state.best, dict(state.files)
        for name, record in state.files.items():
            try:
                with (folder / name).open("rb") as file:
                    check_content(file, folder / name, record, REMEDY)
            except FileNotFoundError:
                raise BundleError(f"{folder / name} is missing; {REMEDY}") from None
            except OSError as error:
                raise BundleError(f"cannot read {folder / name}: {error.strerror or error}") from error
        return loaded

    def load_tensors(self, name: str) -> Weights:
        """Return the tensors of a file as copies, so that the file may be deleted."""
        return {key: tensor.clone() for key, tensor in load_file(self.folder / name).items()}

    def load_tokenizer(self) -> str:
        """Return the tokenizer's JSON text."""
        return (self.folder / TOKENIZER).read_text(encoding="utf-8")


def load_state(folder: Path) -> CheckpointState | None:
    """Return the saved state without verifying the files that it names; None if nothing was saved."""
    try:
        return _parse((folder / STATE).read_bytes(), folder / STATE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BundleError(f"cannot read {folder / STATE}: {error.strerror or error}") from error


def _files_of(state: CheckpointState) -> set[str]:
    """Return the files that a state needs."""
    names: Iterable[str] = (state.weights, state.optimizer, *state.checkpoints, state.best, TOKENIZER)
    return {name for name in names if name}


def _to_bytes(state: CheckpointState) -> bytes:
    """Return the content of `state.json`, in Python's extension of JSON, because a score may be infinite."""
    body = json.dumps(state.model_dump(), indent=1, ensure_ascii=False).encode()
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def _parse(content: bytes, path: Path) -> CheckpointState:
    """Return the state in the content of `state.json`; raise BundleError if it is damaged or of another version."""
    start = len(_HEAD) + 64 + len(_MIDDLE)
    body = content[start : -len(_TAIL)]
    if content != _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL:
        raise BundleError(f"{path} is damaged: it was changed or truncated after it was saved; {REMEDY}")
    raw = json.loads(body)
    version = raw["format_version"]
    if version < FORMAT_VERSION:
        raise BundleError(
            f"{path} was written by a pre-release version of clearhead (format {version}; this version "
            f"reads format {FORMAT_VERSION}); train again from the beginning with --overwrite"
        )
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{path} was written by a newer clearhead (format {version}; this version reads format "
            f"{FORMAT_VERSION}); resume with that version, or start again with --overwrite"
        )
    try:
        return CheckpointState.model_validate(raw)
    except ValidationError as error:  # the checksum is right, so another version of clearhead wrote other fields
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"]))
        raise BundleError(f"{path} was written by another clearhead: {field}: {fault['msg']}; {REMEDY}") from error
