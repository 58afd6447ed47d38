"""The whole state of a training on disk, so that a run that was killed goes on as if nothing had happened.

    state.json                  where the run stands, and size and SHA-256 of each file below; this file itself begins
                                with the SHA-256 of the rest
    tokenizer.json              as it was when the run began
    weights-00000040.safetensors     of the step the state belongs to, of the best step, and those to be averaged
    moments-00000040.safetensors     what the optimiser remembers

    nothing-saved-yet           until there is a first state: where this is missing too, a state was lost
    owner                       under torchrun with restarts: the torchrun that the run was last started by

A save writes new files beside the old ones, each aside, synced and renamed; replacing `state.json` is the one step that
makes the new state count, and only then do files go that it no longer names. At any moment the old state or the new
one is there, whole. No random generator is saved: everything random is a pure function of the seed and the position.
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

FORMAT_VERSION = 2
PRERELEASE_VERSION = 1  # other names of tensors and settings; never released
STATE = "state.json"
TOKENIZER = "tokenizer.json"
UNSAVED = "nothing-saved-yet"
OWNER = "owner"
REMEDY = "restore the folder from a copy, or begin anew with --overwrite"
_HEAD, _MIDDLE, _TAIL = b'{"sha256": "', b'",\n"state": ', b"}\n"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunOrigin(_Strict):
    """What a run began with, which must be the same when it goes on."""

    config: dict[str, Any]
    data: dict[str, Any]
    """The fingerprints of the data, and how many examples there are."""
    start: str
    """The fingerprint of the model that the training started from, or nothing."""
    threads: int
    """Of each process."""
    processes: int = 1
    torch: str
    began: str


class CheckpointState(_Strict):
    """What `state.json` holds."""

    format_version: int
    origin: RunOrigin
    counts: TrainState
    weights: str
    moments: str
    checkpoints: tuple[str, ...]
    """Files with weights to be averaged at the end, oldest first."""
    best: str
    """The file with the best weights so far, or nothing."""
    metrics_bytes: int
    """How long `metrics.jsonl` was."""
    is_finished: bool
    files: dict[str, FileRecord]

    @property
    def steps(self) -> int:
        """Planned number of updates."""
        return self.counts.plan.steps if self.counts.plan else int(self.origin.config["training"]["steps"])


class CheckpointFolder:
    """The folder `training/` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: CheckpointState | None = None
        self.best = ""
        self._records: dict[str, FileRecord] = {}

    # Writing

    @classmethod
    def cleared(cls, folder: Path) -> "CheckpointFolder":
        """An empty one for a new run; a crash on the way leaves no half of an old state."""
        folder.mkdir(exist_ok=True)
        (folder / UNSAVED).touch()
        (folder / STATE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != UNSAVED:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return cls(folder)

    def own(self, job: str) -> None:
        """Notes who this run belongs to, where somebody may start it again."""
        if job:
            with self._saving():
                write_atomically(self.folder / OWNER, job)

    def belongs_to(self, job: str) -> bool:
        """Whether the run was begun, or gone on with, by this one."""
        with suppress(OSError, UnicodeDecodeError):
            return bool(job) and (self.folder / OWNER).read_text(encoding="utf-8") == job
        return False

    def begin(self, tokenizer: str) -> None:
        """The tokenizer, which every state of the run refers to."""
        with self._saving():
            (self.folder / UNSAVED).touch()
            write_atomically(self.folder / TOKENIZER, tokenizer)
            self._records[TOKENIZER] = record_file(self.folder / TOKENIZER)

    def keep_best(self, step: int, weights: Weights) -> None:
        """Keeps these weights as the best; the next save makes that count."""
        with self._saving():
            self.best = self._write("weights", step, weights)

    def save(
        self,
        origin: RunOrigin,
        counts: TrainState,
        weights: Weights,
        moments: Weights,
        *,
        average: int = 0,
        metrics_bytes: int = 0,
    ) -> None:
        """Saves the state; with `average` its weights are one of that many last ones to be averaged.

        Where the tensors of this step are on disk already, only the counts are written.
        """
        with self._saving():
            current = self._write("weights", counts.step, weights)
            checkpoints = self.checkpoints if current in self.checkpoints else (*self.checkpoints, current)
            state = CheckpointState(
                format_version=FORMAT_VERSION,
                origin=origin,
                counts=counts.model_copy(),
                weights=current,
                moments=self._write("moments", counts.step, moments),
                checkpoints=checkpoints[-average:] if average else self.checkpoints,
                best=self.best,
                metrics_bytes=metrics_bytes,
                is_finished=False,
                files={},
            )
            files = {name: self._records[name] for name in sorted(_named(state))}
            state = state.model_copy(update={"files": files})
            write_atomically(self.folder / STATE, _to_bytes(state))
            self.state = state
            self.tidy()

    def finish(self) -> None:
        """Notes that nothing is left to do."""
        assert self.state is not None
        with self._saving():
            state = self.state.model_copy(update={"is_finished": True})
            write_atomically(self.folder / STATE, _to_bytes(state))
            self.state = state

    def tidy(self) -> None:
        """Removes what neither the saved state nor the next one needs, such as the leavings of a killed process."""
        needed = {STATE, TOKENIZER, OWNER, self.best} | (_named(self.state) if self.state else {UNSAVED})
        self._records = {name: record for name, record in self._records.items() if name in needed}
        for path in self.folder.iterdir():
            if path.name not in needed and path.is_file():
                path.unlink()

    def _write(self, kind: str, step: int, tensors: Weights) -> str:
        name = f"{kind}-{step:08d}.safetensors"
        if name not in self._records:
            with replace_file(self.folder / name) as aside:
                save_file({key: tensor.detach().contiguous() for key, tensor in tensors.items()}, aside)
            self._records[name] = record_file(self.folder / name)
        return name

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Whatever fails, the state that counts stays and no other file does."""
        try:
            yield
        except BaseException as error:
            self._recover()
            if not isinstance(error, OSError | SafetensorError):
                raise
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            left = f"the state of step {self.state.counts.step:,} is whole" if self.state else "nothing was saved"
            raise TrainingError(
                f"cannot save the training in {self.folder}: {reason}; {left}; mend that, then add --resume"
            ) from error

    def _recover(self) -> None:
        """After a failure, also one behind the step that counts, the disk says which state it is."""
        with suppress(OSError, BundleError):
            path = self.folder / STATE
            self.state = _parse(path.read_bytes(), path) if path.exists() else None
            self.best = self.state.best if self.state else ""
            self.tidy()

    # Reading

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Files with weights to be averaged, oldest first."""
        return self.state.checkpoints if self.state else ()

    @classmethod
    def load(cls, folder: Path) -> "CheckpointFolder | None":
        """The state that a run left, every file checked; nothing where none was saved yet."""
        try:
            content = (folder / STATE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if not (folder / UNSAVED).exists() and any(path.name != OWNER for path in folder.glob("*")):
                raise BundleError(f"{folder / STATE} is missing; {REMEDY}") from None
            return None
        except OSError as error:
            raise BundleError(f"cannot read {folder / STATE}: {error.strerror or error}") from error
        found = cls(folder)
        found.state = _parse(content, folder / STATE)
        found.best, found._records = found.state.best, dict(found.state.files)
        for name, record in found.state.files.items():
            try:
                with (folder / name).open("rb") as file:
                    check_content(file, folder / name, record, REMEDY)
            except FileNotFoundError:
                raise BundleError(f"{folder / name} is missing; {REMEDY}") from None
            except OSError as error:
                raise BundleError(f"cannot read {folder / name}: {error.strerror or error}") from error
        return found

    def tensors(self, name: str) -> Weights:
        """The tensors of a file; copies, so that the file may go."""
        return {key: tensor.clone() for key, tensor in load_file(self.folder / name).items()}

    def tokenizer(self) -> str:
        """The tokenizer's JSON text."""
        return (self.folder / TOKENIZER).read_text(encoding="utf-8")


def peek(folder: Path) -> CheckpointState | None:
    """The state alone, quickly: whether the files that it names are whole is not checked."""
    try:
        return _parse((folder / STATE).read_bytes(), folder / STATE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BundleError(f"cannot read {folder / STATE}: {error.strerror or error}") from error


def _named(state: CheckpointState) -> set[str]:
    """The files that a state needs."""
    names: Iterable[str] = (state.weights, state.moments, *state.checkpoints, state.best, TOKENIZER)
    return {name for name in names if name}


def _to_bytes(state: CheckpointState) -> bytes:
    """A score may be infinite: Python's JSON, which can say so."""
    body = json.dumps(state.model_dump(), indent=1, ensure_ascii=False).encode()
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def _parse(content: bytes, path: Path) -> CheckpointState:
    start = len(_HEAD) + 64 + len(_MIDDLE)
    body = content[start : -len(_TAIL)]
    if content != _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL:
        raise BundleError(f"{path} is damaged: it was changed or cut off after it was saved; {REMEDY}")
    raw = json.loads(body)
    if raw["format_version"] == PRERELEASE_VERSION:
        raise BundleError(
            f"{path} was written by a pre-release version of clearhead (format {PRERELEASE_VERSION}; this version "
            f"reads format {FORMAT_VERSION}); train again from the beginning with --overwrite"
        )
    if raw["format_version"] != FORMAT_VERSION:
        raise BundleError(
            f"{path} was written by another clearhead (format {raw['format_version']}; this one reads "
            f"{FORMAT_VERSION}): go on with that one, or begin anew with --overwrite"
        )
    try:
        return CheckpointState.model_validate(raw)
    except ValidationError as error:  # the checksum is right: it was written by a clearhead with other fields
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise BundleError(f"{path} was written by another clearhead: {where}: {fault['msg']}; {REMEDY}") from error
