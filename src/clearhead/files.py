"""Writing files so that a crash leaves the old content or the new one, never half of either.

Knows bytes and paths, nothing of what they mean. Errors stay `OSError`: only the caller can say what they mean to
a user.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return  # Windows cannot open a folder and orders its renames itself
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and FUSE file systems refuse to sync folders; there is nothing more to do about those.
        if not (is_folder and error.errno in (errno.EINVAL, errno.ENOTSUP)):
            raise
    finally:
        os.close(handle)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a path to write to, beside `path`; when the block ends well it replaces `path` in one step.

    For writers that want a file name: `with replacing(path) as aside: save_file(tensors, aside)`. The file gets the
    permissions that the umask asks for, also from writers that know better (safetensors 0.8 makes it private).
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        aside.touch(exist_ok=False)
        mode = aside.stat().st_mode & 0o777
        yield aside
        aside.chmod(mode)
        sync(aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write or replace one file; readers and crashes see the old content or the new one. Text becomes UTF-8."""
    with replace_file(path) as aside:
        aside.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def create_folder(folder: Path, overwrite: bool = False) -> Iterator[Path]:
    """Give an empty folder beside `folder` to write into; when the block ends well it becomes `folder` by a rename.

    Where there is one by then, `FileExistsError`; with `overwrite` it makes way, and is there again if that fails.
    """
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    aside, old = folder.with_name(f".{folder.name}.{mark}"), folder.with_name(f".{folder.name}.{mark}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        aside.mkdir()
        yield aside
        for path in aside.rglob("*"):
            sync(path)
        sync(aside)
        if overwrite and folder.exists():
            folder.rename(old)
        _rename_to_new(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        if old.exists():
            old.rename(folder)
        raise
    sync(folder.parent)
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


def create_folder_once(folder: Path, make: Callable[[Path], None]) -> None:
    """Fills a folder by `make`, unless it is there. Of several processes one does it, and the others wait for it.

    What a killed process left of the same folder goes.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        if os.name != "nt":  # there two processes may do the work twice
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        for left in folder.parent.glob(f".{folder.name}.*-*"):
            shutil.rmtree(left, ignore_errors=True)
        with create_folder(folder) as aside:
            make(aside)


def user_cache_folder() -> Path:
    """Where a user's programs keep what they can make again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given else Path.home() / ".cache") / "clearhead"


def _rename_to_new(aside: Path, folder: Path) -> None:
    """A rename that never replaces anything."""
    if folder.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    try:
        aside.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder)) from error
        raise
