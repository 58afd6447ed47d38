"""One training at a time in a folder.

The lock is on the folder itself and not on a file in it: nothing is left behind, and it is gone with the process that
holds it, however that ends.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clearhead.errors import TrainingError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder, which is made if need be, and goes again if nothing was put into it.

    Refuses a folder in which another training runs, and one that cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise TrainingError(f"{folder} is a file; --out expects a folder")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    try:
        _lock(handle, folder)
        _probe(folder)
        yield
    finally:
        os.close(handle)
        if is_new:
            with suppress(OSError):  # not empty: that is what it is for
                folder.rmdir()


def is_locked(folder: Path) -> bool:
    """Whether a training runs in the folder; one that begins in this very moment may be overlooked."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise TrainingError(
                f"another training is running in {folder}; wait for it to end, or choose another --out"
            ) from None
        # Some network file systems lock no folders: there nobody guards against a second training.


def _probe(folder: Path) -> None:
    """An unwritable folder is found out now and not at the first save. The file has no name, where that is possible."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TrainingError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
