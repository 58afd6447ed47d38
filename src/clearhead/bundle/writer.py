"""Saving a bundle: written aside, synced, and put in place in one step."""

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

# Folders that this process is writing into now; others under its number stem from an earlier process, as happens in
# containers, or could not be removed.
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
    """Save a model, replacing the one in `folder`: at any moment the old one or the new one is there, whole.

    Names that share one tensor are stored once and share it again after loading. A `card` replaces the model card
    that is otherwise made from the rest. Other files in the folder are left alone.
    """
    tensors, tied = _deduplicate_tensors(weights)
    summary = {"data": _json_object(data), "training": _json_object(training)}
    texts = {CONFIG: json_bytes(dict(config)), TOKENIZER: tokenizer.encode()}

    def write(incoming: Path) -> Manifest:
        for name, content in texts.items():
            write_new(incoming / name, content)
        save_file(tensors, incoming / WEIGHTS)
        # safetensors 0.8 makes files that only their owner can read, whatever the umask says
        (incoming / WEIGHTS).chmod((incoming / CONFIG).stat().st_mode & 0o777)
        sync(incoming / WEIGHTS)
        manifest = _describe(incoming, weights_kind, tied, summary)
        write_new(incoming / CARD, (card or make_card(manifest, config)).encode())
        write_new(incoming / MANIFEST, manifest.to_bytes())
        return manifest

    return _replace(folder, write)


def _replace(folder: Path, write: Callable[[Path], Manifest]) -> Manifest:
    """Let `write` fill a folder aside, then put it in place. Whatever fails, no temporary folder stays behind."""
    try:
        with _incoming_folder(folder) as incoming:
            manifest = write(incoming)
            _commit(folder, incoming)
    except (OSError, SafetensorError) as error:
        rest = "the model saved before is untouched" if exists(folder) else "nothing was saved"
        raise BundleError(f"cannot save the model in {folder}: {_reason(error)}; {rest}") from error
    try:
        _publish(folder)
    except OSError as error:
        raise BundleError(
            f"the new model in {folder} is whole and loads, but could not be moved out of {COMMIT}: {_reason(error)}; "
            "mend that and save again"
        ) from error
    return manifest


@contextmanager
def _incoming_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, made after clearing up what a crashed save may have left; gone if the block fails."""
    is_new = not folder.exists()
    incoming = folder / f"{INCOMING}{os.getpid()}-{secrets.token_hex(4)}"
    _ACTIVE.add(incoming)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / COMMIT).is_dir():
            _publish(folder)
        for leftover in folder.glob(f"{INCOMING}*"):
            if _is_abandoned(leftover):
                with suppress(FileNotFoundError):  # put in place by another who saves, between the look and the deed
                    shutil.rmtree(leftover)
        incoming.mkdir()
        yield incoming
    except BaseException:
        shutil.rmtree(incoming, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # not empty: something else moved in meanwhile
                folder.rmdir()
        raise
    finally:
        _ACTIVE.discard(incoming)


def _commit(folder: Path, incoming: Path) -> None:
    """The one step that replaces the old bundle by the new. Another process that saves here too is let through."""
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
    """Move the committed files to their names; doing it twice, or from where a crash left off, does no harm."""
    commit = folder / COMMIT
    sync(folder)  # or a power cut might keep a move below and lose the commit before it
    with suppress(FileNotFoundError):  # another process may have moved a file, or all of them, first
        for file in sorted(commit.iterdir(), key=lambda file: file.name == MANIFEST):
            with suppress(FileNotFoundError):
                file.replace(folder / file.name)
    sync(folder)
    try:
        commit.rmdir()
    except OSError as error:
        # Gone: another process finished. Not empty: another process has committed its own save by now.
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_abandoned(incoming: Path) -> bool:
    """Whether nobody writes into this `.incoming-*` folder any more."""
    match = re.fullmatch(rf"{re.escape(INCOMING)}(\d+)-[0-9a-f]+", incoming.name)
    if match is None:
        return False
    process = int(match[1])
    if process == os.getpid():
        return incoming not in _ACTIVE
    if os.name != "posix":
        return False  # no harmless way to ask
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # alive, and someone else's
    return False


def _describe(
    incoming: Path, weights_kind: WeightsKind, tied: dict[str, str], summary: dict[str, dict[str, object]]
) -> Manifest:
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
    """Each tensor once, as safetensors demands; names of the same tensor point to the first of them."""
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
            stored = stored.clone()  # a part of a larger tensor: kept for itself
        tensors[name] = stored
        storages.add(stored.untyped_storage().data_ptr())
    return tensors, tied


def _json_object(mapping: Mapping[str, object]) -> dict[str, object]:
    return {key: to_json_value(value) for key, value in mapping.items()}


def _clearhead_version() -> str:
    try:
        return metadata.version("clearhead")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a source folder that is not installed


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
