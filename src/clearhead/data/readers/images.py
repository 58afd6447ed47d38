"""Folders of labelled PNG images to arrays: `folder/label/name.png`, with one folder per label.

All images of a folder are square, of the same size, and either grayscale (1 channel) or color (3 channels). Transparent
pixels become white. Names that start with a dot are ignored; any other file that is not a PNG raises `DataError`, so
that no image is skipped silently.

N images, C color channels, Y height, X width
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
MAX_SIDE = 4096  # a small file can declare a huge image; limits the memory used for any input
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
HEADER_BYTES = 26  # signature, and the chunk IHDR up to its color type
GRAY_COLOR_TYPES = (0, 4)  # PNG color types: grayscale, and grayscale with alpha
_KINDS = {1: "grayscale", 3: "color"}  # by number of channels
DIGIT_NAMES = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
}


@dataclass(frozen=True, eq=False, slots=True)
class LabelledImage:
    """One image, its label and its file."""

    label: str
    path: Path
    pixels_CYX: Pixels


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The images of a folder, sorted by label and file name."""

    labels: tuple[str, ...]
    """All labels, sorted; a subset of the images keeps the labels that none of its images has."""
    pixels_NCYX: Pixels
    label_N: NDArray[np.int64]
    """Index into `labels` for each image."""
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> LabelledImage:
        return LabelledImage(self.labels[self.label_N[index]], self.paths[index], self.pixels_NCYX[index])

    def __iter__(self) -> Iterator[LabelledImage]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of labels and pixels in their order, independent of the file names."""
        digest = blake2b(repr((self.labels, self.pixels_NCYX.shape)).encode(), digest_size=16)
        digest.update(self.label_N.astype("<i8").tobytes())
        digest.update(self.pixels_NCYX.tobytes())
        return digest.hexdigest()


def load_image_folder(folder: Path | str) -> ImageFolder:
    """Return the images of a folder; raise DataError unless it contains only images of one size in label folders."""
    folder = Path(folder)
    images: list[LabelledImage] = []
    for label_folder in _label_folders(folder):
        for path in _png_paths(label_folder):
            images.append(LabelledImage(label_folder.name, path, read_image(path)))
            _require_same_shape(images[0], images[-1])
    labels = tuple(sorted({image.label for image in images}))
    index = {label: number for number, label in enumerate(labels)}
    return ImageFolder(
        labels,
        np.stack([image.pixels_CYX for image in images]),
        np.array([index[image.label] for image in images], dtype=np.int64),
        tuple(image.path for image in images),
    )


def read_image(path: Path | str) -> Pixels:
    """Return pixels_CYX of a square PNG."""
    path = Path(path)
    data = _read_bytes(path)
    width, height, color_type = _read_header(path, data)
    if max(width, height) > MAX_SIDE:
        raise DataError(f"{path}: expected at most {MAX_SIDE} pixels per side, got {width}x{height}; scale it down")
    if width != height:
        raise DataError(f"{path}: expected a square image, got {width}x{height}; crop it or add a border")
    try:
        pixels = _decode(data, width, color_type in GRAY_COLOR_TYPES)
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error) as error:
        raise DataError(f"{path}: the PNG is damaged or truncated ({error}); download or save it again") from error
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def write_digits(folder: Path | str) -> int:
    """Write scikit-learn's handwritten digits as `folder/7/0042.png`, 8x8 in grayscale, and return their number."""
    load_digits = require_package("sklearn.datasets", "the digits data set").load_digits
    folder = Path(folder)
    digits = load_digits()
    pixels_NYX = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # the values range from 0 to 16
    try:
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: expected a new or empty folder; choose another one")
        for digit in range(10):
            (folder / str(digit)).mkdir(parents=True)
        for number, (pixels_YX, digit) in enumerate(zip(pixels_NYX, digits.target, strict=True)):
            _pillow().fromarray(pixels_YX).save(folder / str(digit) / f"{number:04}.png")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from error
    return len(pixels_NYX)


def _label_folders(folder: Path) -> list[Path]:
    """Return the label folders, sorted by name."""
    expected = "expected one folder per label with PNG files in it"
    paths = _list_folder(folder)
    if not paths:
        raise DataError(f"{folder}: {expected}, the folder is empty; check how it was made")
    folders = [path for path in paths if path.is_dir()]
    stray = next((path for path in paths if path.suffix.lower() == ".png" and path not in folders), None)
    if stray or not folders:
        name = (stray or paths[0]).name
        raise DataError(f"{folder}: {expected}, found the file {name}; move each image to the folder of its label")
    return folders


def _png_paths(folder: Path) -> list[Path]:
    """Return the image files of one label, sorted by name."""
    paths = _list_folder(folder)
    if not paths:
        raise DataError(f"{folder}: expected images of this label, the folder is empty; add some or remove it")
    for path in paths:
        if path.suffix.lower() != ".png" or path.is_dir():
            raise DataError(f"{path}: expected only PNG files in the folder of a label; convert or move this file")
    return paths


def _list_folder(folder: Path) -> list[Path]:
    """Return the paths in a folder, sorted by name, without hidden ones."""
    if not folder.exists():
        raise DataError(f"{folder}: no such folder; check the path")
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of images, this is a file; name the folder")
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


def _require_same_shape(first: LabelledImage, other: LabelledImage) -> None:
    shapes = [(*image.pixels_CYX.shape[1:], image.pixels_CYX.shape[0]) for image in (first, other)]
    if shapes[0] != shapes[1]:
        kinds = [f"{height}x{width} in {_KINDS[channels]}" for height, width, channels in shapes]
        raise DataError(
            f"{other.path}: expected {kinds[0]} as in {first.path}, got {kinds[1]}; "
            "convert all images to one size and kind"
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
    """Return width, height and color type; Pillow opens the file only after the size has been checked."""
    if not data.startswith(PNG_MAGIC) and not PNG_MAGIC.startswith(data):
        raise DataError(f"{path}: expected a PNG, this is another format; convert it, because renaming is not enough")
    if len(data) < HEADER_BYTES or data[12:16] != b"IHDR":
        raise DataError(f"{path}: the PNG is damaged or truncated (no header); download or save it again")
    width, height, color_type = struct.unpack(">IIxB", data[16:HEADER_BYTES])
    return width, height, color_type


def _decode(data: bytes, side: int, is_gray: bool) -> Pixels:
    """Return pixels_YX or pixels_YXC. The file is verified first because decoding alone accepts a truncated file."""
    _open_checked(data, side).verify()
    image = _open_checked(data, side)
    image.load()
    if image.mode.startswith("I"):  # 16-bit grayscale; Pillow would clip the values at 255
        return np.rint(np.asarray(image, dtype=np.float64) / 257).astype(np.uint8)
    return np.asarray(_composite_on_white(image).convert("L" if is_gray else "RGB"), dtype=np.uint8)


def _open_checked(data: bytes, side: int) -> Any:
    """Return the image before decoding; raise ValueError if a second header states a size that was not checked."""
    try:
        image = _pillow().open(BytesIO(data), formats=["PNG"])
    except _pillow().DecompressionBombError as error:
        raise ValueError("it has a second header") from error
    if image.size != (side, side):
        raise ValueError("it has a second header")
    if image.mode == "P" and image.palette is None:
        raise ValueError("it has no palette")
    return image


def _composite_on_white(image: Any) -> Any:
    """Return the image composited onto a white background if it has transparency."""
    if not image.has_transparency_data:
        return image
    white = _pillow().new("RGBA", image.size, "white")
    return _pillow().alpha_composite(white, image.convert("RGBA"))


def _pillow() -> Any:
    """Return the module PIL.Image, which only models that read images need."""
    return require_package("PIL.Image", "reading and writing images")
