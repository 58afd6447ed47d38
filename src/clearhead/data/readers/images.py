"""Folders of PNGs to arrays: `folder/label/name.png`, each label one folder. Knows pixels, nothing of tensors.

All pictures of a folder are square, of one size and of one kind: greyscale (1 channel) or colour (3). What is
transparent becomes white. Names that start with a dot are passed over; anything else that is no PNG is a
`DataError`, so that no picture is left out without a word.

N pictures, C colours, Y height, X width
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.extras import require_package

Pixels = NDArray[np.uint8]
MAX_SIDE = 4096  # a small file can claim a huge picture; the bound keeps memory bounded on any input
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
HEADER_BYTES = 26  # signature, then the chunk IHDR up to its colour type
GRAY_COLOR_TYPES = (0, 4)  # PNG colour types: greyscale, and greyscale with alpha
DIGIT_NAMES = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
}


@dataclass(frozen=True, eq=False, slots=True)
class LabelledImage:
    """One picture, what it shows, and where it came from."""

    label: str
    path: Path
    pixels_CYX: Pixels


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The pictures of a folder, in the order of their labels and names."""

    labels: tuple[str, ...]
    """The names of all labels, sorted; also those of which a part holds no picture."""
    pixels_NCYX: Pixels
    label_N: NDArray[np.int64]
    """Which of the labels each picture has."""
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> LabelledImage:
        return LabelledImage(self.labels[self.label_N[index]], self.paths[index], self.pixels_NCYX[index])

    def __iter__(self) -> Iterator[LabelledImage]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the labels and pixels in their order: equal for equal pictures under any file names."""
        digest = blake2b(repr((self.labels, self.pixels_NCYX.shape)).encode(), digest_size=16)
        digest.update(self.label_N.astype("<i8").tobytes())
        digest.update(self.pixels_NCYX.tobytes())
        return digest.hexdigest()


def load_image_folder(folder: Path | str) -> ImageFolder:
    """Read a whole folder, refusing one that holds anything but equally large pictures in one folder a label."""
    folder = Path(folder)
    pictures: list[LabelledImage] = []
    for label_folder in _label_folders(folder):
        for path in _png_paths(label_folder):
            pictures.append(LabelledImage(label_folder.name, path, read_image(path)))
            _refuse_other_shape(pictures[0], pictures[-1])
    labels = tuple(sorted({picture.label for picture in pictures}))
    index = {label: number for number, label in enumerate(labels)}
    return ImageFolder(
        labels,
        np.stack([picture.pixels_CYX for picture in pictures]),
        np.array([index[picture.label] for picture in pictures], dtype=np.int64),
        tuple(picture.path for picture in pictures),
    )


def read_image(path: Path | str) -> Pixels:
    """pixels_CYX of one square PNG."""
    path = Path(path)
    data = _read_bytes(path)
    width, height, colour_type = _read_header(path, data)
    if max(width, height) > MAX_SIDE:
        raise DataError(f"{path}: expected at most {MAX_SIDE} pixels a side, got {width}x{height}; make it smaller")
    if width != height:
        raise DataError(f"{path}: expected a square picture, got {width}x{height}; cut it or add a border")
    try:
        pixels = _decode(data, width, colour_type in GRAY_COLOR_TYPES)
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error) as error:
        raise DataError(f"{path}: the PNG is damaged or cut off ({error}); fetch or save it again") from error
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def write_digits(folder: Path | str) -> int:
    """Write scikit-learn's handwritten digits as `folder/7/0042.png`, 8x8 in grey, and say how many there are."""
    load_digits = require_package("sklearn.datasets", "the digits data set").load_digits
    folder = Path(folder)
    digits = load_digits()
    pixels_NYX = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # their values go from 0 to 16
    try:
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: expected a new or empty folder to write to; choose another one")
        for digit in range(10):
            (folder / str(digit)).mkdir(parents=True)
        for number, (pixels_YX, digit) in enumerate(zip(pixels_NYX, digits.target, strict=True)):
            _pillow().fromarray(pixels_YX).save(folder / str(digit) / f"{number:04}.png")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from error
    return len(pixels_NYX)


def _label_folders(folder: Path) -> list[Path]:
    """The folders of the labels, sorted by name."""
    expected = "expected one folder a label with PNGs in it"
    names = _list_folder(folder)
    if not names:
        raise DataError(f"{folder}: {expected}, the folder is empty; check how it was made")
    folders = [path for path in names if path.is_dir()]
    stray = next((path for path in names if path.suffix.lower() == ".png" and path not in folders), None)
    if stray or not folders:
        found = (stray or names[0]).name
        raise DataError(f"{folder}: {expected}, found the file {found}; move each picture to the folder of its label")
    return folders


def _png_paths(folder: Path) -> list[Path]:
    """The pictures of one label, sorted by name."""
    paths = _list_folder(folder)
    if not paths:
        raise DataError(f"{folder}: expected pictures of this label, the folder is empty; add some or remove it")
    for path in paths:
        if path.suffix.lower() != ".png" or path.is_dir():
            raise DataError(f"{path}: expected only PNG files in the folder of a label; convert or move this")
    return paths


def _list_folder(folder: Path) -> list[Path]:
    """What is in a folder, sorted by name, without hidden names."""
    if not folder.exists():
        raise DataError(f"{folder}: no such folder; check the path")
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of pictures, this is a file; name the folder")
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


def _refuse_other_shape(first: LabelledImage, other: LabelledImage) -> None:
    shapes = [(*picture.pixels_CYX.shape[1:], picture.pixels_CYX.shape[0]) for picture in (first, other)]
    if shapes[0] != shapes[1]:
        kinds = [f"{height}x{width} in {'grey' if colours == 1 else 'colour'}" for height, width, colours in shapes]
        raise DataError(
            f"{other.path}: expected {kinds[0]} as in {first.path}, got {kinds[1]}; make all pictures alike"
        )


def _read_bytes(path: Path) -> bytes:
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    if path.is_dir():
        raise DataError(f"{path}: expected a PNG, this is a folder; name the file in it")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _read_header(path: Path, data: bytes) -> tuple[int, int, int]:
    """Width, height and colour type, read by hand: Pillow is not asked before the size is known to be sane."""
    if not data.startswith(PNG_MAGIC) and not PNG_MAGIC.startswith(data):
        raise DataError(f"{path}: expected a PNG, this is another format; convert it, renaming is not enough")
    if len(data) < HEADER_BYTES or data[12:16] != b"IHDR":
        raise DataError(f"{path}: the PNG is damaged or cut off (no header); fetch or save it again")
    width, height, colour_type = struct.unpack(">IIxB", data[16:HEADER_BYTES])
    return width, height, colour_type


def _decode(data: bytes, side: int, is_grey: bool) -> Pixels:
    """pixels_YX or pixels_YXC. The whole file is verified first: decoding alone accepts one whose end is missing."""
    _open_checked(data, side).verify()
    image = _open_checked(data, side)
    image.load()
    if image.mode.startswith("I"):  # 16 bits of grey; Pillow would cut values off at 255
        return np.rint(np.asarray(image, dtype=np.float64) / 257).astype(np.uint8)
    return np.asarray(_on_white(image).convert("L" if is_grey else "RGB"), dtype=np.uint8)


def _open_checked(data: bytes, side: int) -> Any:
    """The picture before decoding. A second header may say another size than the one that was checked."""
    try:
        image = _pillow().open(BytesIO(data), formats=["PNG"])
    except _pillow().DecompressionBombError as error:
        raise ValueError("it has a second header") from error
    if image.size != (side, side):
        raise ValueError("it has a second header")
    if image.mode == "P" and image.palette is None:
        raise ValueError("it has no palette")
    return image


def _on_white(image: Any) -> Any:
    if not image.has_transparency_data:
        return image
    white = _pillow().new("RGBA", image.size, "white")
    return _pillow().alpha_composite(white, image.convert("RGBA"))


def _pillow() -> Any:
    """Return the module PIL.Image; models that read text run without it."""
    return require_package("PIL.Image", "reading and writing images")
