"""Handwritten digits on disk: parts of them to train on, and others to test on."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from clearhead.api import Model
from clearhead.data.readers.images import write_digits


def all_digits(folder: Path) -> list[Path]:
    """Every picture as `folder/7/0042.png`, in an order that has nothing to do with the digit: as they were written."""
    write_digits(folder)
    return sorted(folder.glob("[0-9]/*.png"), key=lambda path: path.name)


def part(folder: Path, pictures: Sequence[Path]) -> Path:
    """A folder to train on with copies of some pictures."""
    for picture in pictures:
        (folder / picture.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder / picture.parent.name / picture.name)
    return folder


def accuracy(model: Model, pictures: Sequence[Path]) -> float:
    """The share that is recognised."""
    found = model.classify_pictures(list(pictures))
    return sum(one.label == path.parent.name for one, path in zip(found, pictures, strict=True)) / len(pictures)
