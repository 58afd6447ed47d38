"""Saving of a bundle: written to a temporary folder, synced, and moved in place by one rename."""

import errno
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from clearhead.bundle.manifest import (
    CARD,
    CHECKSUMMED,
    COMMIT,
    CONFIG,
    FORMAT_VERSION,
    INCOMING,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    Manifest,
    WeightsKind,
    exists,
    json_bytes,
    record_file,
    to_json_value,
)
from clearhead.bundle.model_card import make_card
from clearhead.errors import BundleError
from clearhead.files import sync, write_new

# Temporary folders that this process is writing to. Any other folder with its process id was left by an earlier process
# with the same id, which is common in containers, or could not be removed.
_ACTIVE: set[Path] = set()
_COMMIT_ATTEMPTS = 10


def save(
    folder: Path,
    *,
    weights: Mapping[str, Tensor],
    config: Mapping[str, object],
    tokenizer: str,
    weights_kind: WeightsKind,
    data: Mapping[str, object],
    training: Mapping[str, object],
    card: str | None = None,
) -> Manifest:
    """Save a model, atomically replacing the one in `folder`.

    Tied tensors are stored once and are tied again after loading. `card` replaces the generated model card. Other files
    in the folder are not changed.
    """
    tensors, tied = _deduplicate_tensors(weights)
    summary = {"data": _json_object(data), "training": _json_object(training)}
    texts = {CONFIG: json_bytes(dict(config)), TOKENIZER: tokenizer.encode()}

    def write(incoming: Path) -> Manifest:
        for name, content in texts.items():
            write_new(incoming / name, content)
        save_file(tensors, incoming / WEIGHTS)
        # safetensors 0.8 creates files that only the owner can read, ignoring the umask
        (incoming / WEIGHTS).chmod((incoming / CONFIG).stat().st_mode & 0o777)
        sync(incoming / WEIGHTS)
        manifest = _describe(incoming, weights_kind, tied, summary)
        write_new(incoming / CARD, (card or make_card(manifest, config)).encode())
        write_new(incoming / MANIFEST, manifest.to_bytes())
        return manifest

    return _replace(folder, write)


def _replace(folder: Path, write: Callable[[Path], Manifest]) -> Manifest:
    """Write a bundle to a temporary folder and move it in place; remove the temporary folder on failure."""
    try:
        with _incoming_folder(folder) as incoming:
            manifest = write(incoming)
            _commit(folder, incoming)
    except (OSError, SafetensorError) as error:
        state = "the previously saved model is unchanged" if exists(folder) else "nothing was saved"
        raise BundleError(f"cannot save the model in {folder}: {_reason(error)}; {state}") from error
    try:
        _publish(folder)
    except OSError as error:
        raise BundleError(
            f"the new model in {folder} is complete and can be loaded, but could not be moved out of {COMMIT}: "
            f"{_reason(error)}; solve this problem and save again"
        ) from error
    return manifest


@contextmanager
def _incoming_folder(folder: Path) -> Iterator[Path]:
    """Yield a new temporary folder, which is removed if the block fails; clean up after crashed saves first."""
    is_new = not folder.exists()
    incoming = folder / f"{INCOMING}{os.getpid()}-{secrets.token_hex(4)}"
    _ACTIVE.add(incoming)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / COMMIT).is_dir():
            _publish(folder)
        for leftover in folder.glob(f"{INCOMING}*"):
            if _is_abandoned(leftover):
                with suppress(FileNotFoundError):  # another process has just committed it
                    shutil.rmtree(leftover)
        incoming.mkdir()
        yield incoming
    except BaseException:
        shutil.rmtree(incoming, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # not empty: another process has written to it
                folder.rmdir()
        raise
    finally:
        _ACTIVE.discard(incoming)


def _commit(folder: Path, incoming: Path) -> None:
    """Replace the old bundle by the new one with one rename, after finishing the commit of another process."""
    sync(incoming)
    for attempt in range(_COMMIT_ATTEMPTS):
        try:
            incoming.rename(folder / COMMIT)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == _COMMIT_ATTEMPTS - 1:
                raise
            _publish(folder)


def _publish(folder: Path) -> None:
    """Move the committed files to their final names. Idempotent, and can continue after a crash."""
    commit = folder / COMMIT
    sync(folder)  # without this, a power failure could keep a move below and lose the commit before it
    with suppress(FileNotFoundError):  # another process may have moved a file, or all of them, first
        for file in sorted(commit.iterdir(), key=lambda file: file.name == MANIFEST):
            with suppress(FileNotFoundError):
                file.replace(folder / file.name)
    sync(folder)
    try:
        commit.rmdir()
    except OSError as error:
        # ENOENT: another process has finished. ENOTEMPTY: another process has committed its own save.
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_abandoned(incoming: Path) -> bool:
    """Return whether no process writes to this `.incoming-*` folder any more."""
    match = re.fullmatch(rf"{re.escape(INCOMING)}(\d+)-[0-9a-f]+", incoming.name)
    if match is None:
        return False
    process = int(match[1])
    if process == os.getpid():
        return incoming not in _ACTIVE
    if os.name != "posix":
        return False  # no harmless way to check
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # the process is alive and belongs to another user
    return False


def _describe(
    incoming: Path, weights_kind: WeightsKind, tied: dict[str, str], summary: dict[str, dict[str, object]]
) -> Manifest:
    """Return the manifest of the files in the temporary folder."""
    return Manifest.model_validate(
        {
            "format_version": FORMAT_VERSION,
            "weights_kind": weights_kind,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {
                "clearhead": _clearhead_version(),
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            **summary,
            "tied": tied,
            "files": {name: record_file(incoming / name) for name in CHECKSUMMED},
        }
    )


def _deduplicate_tensors(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, as safetensors requires, and the first name of each tensor with several names."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first_names: dict[object, str] = {}
    storages: set[int] = set()
    for name, tensor in list(weights.items()):
        tensor = tensor.detach()
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() > 0 and view in first_names:
            tied[name] = first_names[view]
            continue
        first_names[view] = name
        stored = tensor.cpu().contiguous()
        storage = stored.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != stored.nbytes:
            stored = stored.clone()  # a view of a larger storage
        tensors[name] = stored
        storages.add(stored.untyped_storage().data_ptr())
    return tensors, tied


def _json_object(mapping: Mapping[str, object]) -> dict[str, object]:
    return {key: to_json_value(value) for key, value in mapping.items()}


def _clearhead_version() -> str:
    try:
        return metadata.version("clearhead")
    except metadata.PackageNotFoundError:
        return "unknown"  # a source folder that is not installed


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
