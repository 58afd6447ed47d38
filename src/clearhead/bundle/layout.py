"""The names in a bundle's folder, and how to find a file while a save is going on.

A save writes a whole new bundle into `.incoming-*`, renames that folder to `.commit` (this one step is the moment at
which the new bundle replaces the old), then moves the files out one by one. Hence the rule for readers: a file that
is in `.commit` is the file; else the one in the folder itself. That holds at every moment, also after a crash.
"""

from io import BufferedReader
from pathlib import Path

from clearhead.errors import BundleError

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
MANIFEST = "manifest.json"
NO_TOKENIZER = "null"
"""What stands in `tokenizer.json` of a model that knows no text."""
CHECKED = (WEIGHTS, CONFIG, TOKENIZER)
"""What the manifest vouches for. The card is for people, who may edit it."""

COMMIT = ".commit"
INCOMING = ".incoming-"


def open_file(folder: Path, name: str) -> BufferedReader:
    """Open the current file of that name; `FileNotFoundError` when there is none."""
    for path in (folder / COMMIT / name, folder / name):
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    raise FileNotFoundError(folder / name)


def exists(folder: Path) -> bool:
    """Whether the folder holds a finished save; says nothing about damage."""
    try:
        open_file(folder, MANIFEST).close()
    except (FileNotFoundError, BundleError):
        return False
    return True
