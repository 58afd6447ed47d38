"""Atomic writing of files and folders: after a crash, either the old or the new content is there, completely.

Errors remain `OSError`; the callers convert them to messages for users.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of entries of a folder, is on disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return  # Windows cannot open a folder; it orders renames without this
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and FUSE file systems do not support syncing folders.
        if not (is_folder and error.errno in (errno.EINVAL, errno.ENOTSUP)):
            raise
    finally:
        os.close(handle)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, and wait until it is on disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which atomically replaces `path` when the block succeeds.

    For functions that write to a file name: `with replace_file(path) as temporary: save_file(tensors, temporary)`. The
    file gets the permissions of the umask, even if the function sets others (safetensors 0.8 makes files private).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode & 0o777
        yield temporary
        temporary.chmod(mode)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write or replace one file atomically; text is encoded as UTF-8."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def create_folder(folder: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty temporary folder next to `folder`, which is renamed to `folder` when the block succeeds.

    Raises FileExistsError if `folder` exists by then. With `overwrite` the existing folder is replaced, and restored if
    that fails.
    """
    suffix = f"{os.getpid()}-{secrets.token_hex(4)}"
    temporary, old = folder.with_name(f".{folder.name}.{suffix}"), folder.with_name(f".{folder.name}.{suffix}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.mkdir()
        yield temporary
        for path in temporary.rglob("*"):
            sync(path)
        sync(temporary)
        if overwrite and folder.exists():
            folder.rename(old)
        _rename_to_new(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists():
            old.rename(folder)
        raise
    sync(folder.parent)
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


def create_folder_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder with the content that `write` writes, unless it exists.

    If several processes call this, one of them writes and the others wait. Leftovers of killed processes are removed.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        if os.name != "nt":  # on Windows two processes may both write
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        for leftover in folder.parent.glob(f".{folder.name}.*-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with create_folder(folder) as temporary:
            write(temporary)


def user_cache_folder() -> Path:
    """Return the folder for data of this user that can be computed again."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(configured) if configured else Path.home() / ".cache") / "clearhead"


def _rename_to_new(temporary: Path, folder: Path) -> None:
    """Rename a folder; raise FileExistsError instead of replacing another one."""
    if folder.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder)) from error
        raise
