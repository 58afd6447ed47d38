"""Folders of PNG images: exact pixels, and one sentence for every fault."""

import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clearhead.data.readers.images import (
    DIGIT_NAMES,
    MAX_SIDE,
    LabelledImage,
    load_image_folder,
    read_image,
    write_digits,
)
from clearhead.errors import DataError, MissingPackageError

SIZE = 7


def save(path: Path, pixels: Any, mode: str | None = None) -> Path:
    """Save an array as PNG, converted to another mode if given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels, dtype=np.uint8))
    (image.convert(mode) if mode else image).save(path)
    return path


def gray(seed: int, size: int = SIZE) -> Any:
    """Return random pixels_YX."""
    return np.random.default_rng(seed).integers(0, 256, (size, size), dtype=np.uint8)


def color(seed: int) -> Any:
    """Return random pixels_YXC."""
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three labels with 5, 3 and 2 images, written out of order, and hidden files."""
    for label, count in (("dog", 3), ("ant", 5), ("cat", 2)):
        for number in reversed(range(count)):
            save(tmp_path / label / f"{number}.png", gray(sum(label.encode()) + number))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "ant" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "README.md").write_text("about these images")
    return tmp_path


def test_images_are_sorted_by_label_and_name(folder: Path) -> None:
    images = load_image_folder(folder)
    assert images.labels == ("ant", "cat", "dog")
    assert images.label_N.tolist() == [0] * 5 + [1] * 2 + [2] * 3
    assert [path.relative_to(folder).as_posix() for path in images.paths[3:7]] == [
        "ant/3.png", "ant/4.png", "cat/0.png", "cat/1.png",
    ]  # fmt: skip
    assert images.pixels_NCYX.dtype == np.uint8
    assert images.pixels_NCYX.shape == (10, 1, SIZE, SIZE)
    assert len(images) == len([*images]) == 10
    for image in images:
        assert isinstance(image, LabelledImage)
        expected = gray(sum(image.label.encode()) + int(image.path.stem))
        np.testing.assert_array_equal(image.pixels_CYX[0], expected)


def test_the_fingerprint_depends_on_pixels_and_labels_only(folder: Path) -> None:
    before = load_image_folder(folder).fingerprint
    (folder / "cat" / "1.png").rename(folder / "cat" / "9.PNG")
    assert load_image_folder(folder).fingerprint == before
    (folder / "cat" / "9.PNG").rename(folder / "dog" / "9.png")
    moved = load_image_folder(folder).fingerprint
    (folder / "cat").rename(folder / "cow")
    renamed = load_image_folder(folder).fingerprint
    save(folder / "dog" / "9.png", gray(1234))
    assert len({before, moved, renamed, load_image_folder(folder).fingerprint}) == 4


def test_all_kinds_of_png_are_read(tmp_path: Path) -> None:
    """Grayscale gives one channel, color three, and transparent pixels become white."""
    gray_YX, color_YXC = gray(1), color(2)
    color_CYX = color_YXC.transpose(2, 0, 1)
    alpha_YX = np.where(np.arange(SIZE) < 3, 0, 255)[None].repeat(SIZE, 0)
    is_opaque = alpha_YX == 255
    gray_alpha = save(tmp_path / "la.png", np.dstack((gray_YX, alpha_YX)))
    color_alpha = save(tmp_path / "rgba.png", np.dstack((color_YXC, alpha_YX)))
    Image.fromarray(gray_YX.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    half = save(tmp_path / "half.png", np.full((SIZE, SIZE, 4), (100, 0, 200, 128)))
    for path, expected in (
        (save(tmp_path / "l.png", gray_YX), gray_YX[None]),
        (save(tmp_path / "rgb.png", color_YXC), color_CYX),
        (save(tmp_path / "p.png", color_YXC // 255 * 255, "P"), color_CYX // 255 * 255),
        (save(tmp_path / "1.png", gray_YX // 128 * 255, "1"), gray_YX[None] // 128 * 255),
        (tmp_path / "deep.png", gray_YX[None]),
        (gray_alpha, np.where(is_opaque, gray_YX, 255)[None]),
        (color_alpha, np.where(is_opaque, color_CYX, 255)),
    ):
        pixels = read_image(path)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, expected, err_msg=path.name)
    on_white = [round(value * 128 / 255 + 255 * 127 / 255) for value in (100, 0, 200)]
    np.testing.assert_allclose(read_image(half)[:, 3, 4], on_white, atol=1)


def test_a_transparent_shade_of_gray_becomes_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((SIZE, SIZE), 9, dtype=np.uint8)).save(tmp_path / "key.png", transparency=9)
    assert read_image(tmp_path / "key.png").min() == 255


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: save(folder / "dog" / "1.png", gray(1, 11)),
         r"dog/1.png: expected 7x7 in grayscale as in .*ant/0.png, got 11x11 in grayscale; convert all"),
        (lambda folder: save(folder / "cat" / "0.png", color(1)),
         r"cat/0.png: expected 7x7 in grayscale .* 7x7 in color"),
        (lambda folder: save(folder / "cat" / "1.png", gray(1)[:5]), r"cat/1.png: expected a square image, got 7x5"),
        (lambda folder: (folder / "bee").mkdir(), r"bee: expected images of this label, the folder is empty"),
        (lambda folder: (folder / "cat" / "a.jpg").write_bytes(b""), r"cat/a.jpg: expected only PNG files"),
        (lambda folder: (folder / "cat" / "sub.png").mkdir(), r"cat/sub.png: expected only PNG files"),
        (lambda folder: (folder / "cat" / "0.png").write_bytes(b"\xff\xd8\xff\xe0 JFIF"), r"0.png: expected a PNG"),
        (lambda folder: (folder / "cat" / "0.png").write_bytes(b""), r"0.png: the PNG is damaged or truncated"),
        (lambda folder: save(folder / "a.png", gray(1)), r"one folder per label .* found the file a.png; move each"),
    ],
)  # fmt: skip
def test_faults_of_a_folder_are_reported_with_the_path(folder: Path, make: Any, message: str) -> None:
    make(folder)
    with pytest.raises(DataError, match=message) as caught:
        load_image_folder(folder)
    assert "\n" not in str(caught.value)


def test_folders_without_labels_are_refused(tmp_path: Path) -> None:
    for name, message in (
        ("nowhere", "nowhere: no such folder"),
        ("empty", "empty: expected one folder per label with PNG files in it, the folder is empty"),
        ("file", "file: expected a folder of images, this is a file"),
        ("texts", "texts: expected one folder per label with PNG files in it, found the file a.txt"),
    ):
        if name in {"empty", "texts"}:
            (tmp_path / name).mkdir()
        (tmp_path / "file").touch()
        if name == "texts":
            (tmp_path / name / "a.txt").touch()
        with pytest.raises(DataError, match=message):
            load_image_folder(tmp_path / name)
    with pytest.raises(DataError, match=r"no.png: no such file"):
        read_image(tmp_path / "no.png")
    with pytest.raises(DataError, match="this is a folder"):
        read_image(tmp_path)


def test_a_truncated_png_is_refused(tmp_path: Path) -> None:
    content = save(tmp_path / "whole.png", gray(1)).read_bytes()
    end = len(content) - 8  # only the checksum of IEND is missing
    for length in range(end):
        (tmp_path / "cut.png").write_bytes(content[:length])
        with pytest.raises(DataError, match=r"cut.png: the PNG is damaged or truncated"):
            read_image(tmp_path / "cut.png")


def test_a_damaged_png_never_gives_other_pixels(tmp_path: Path) -> None:
    path = save(tmp_path / "whole.png", gray(1))
    content, expected = path.read_bytes(), read_image(path)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x41
        (tmp_path / "bad.png").write_bytes(damaged)
        try:
            np.testing.assert_array_equal(read_image(tmp_path / "bad.png"), expected)
        except DataError as error:
            assert "bad.png: " in str(error)


def header(width: int, height: int, color_type: int = 0) -> tuple[bytes, bytes]:
    """Return the first chunk of a PNG with 8 bits per value."""
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)


def forged(*chunks: tuple[bytes, bytes]) -> bytes:
    """Write a PNG with correct checksums and the given chunks."""
    body = b""
    for name, data in (*chunks, (b"IDAT", zlib.compress(bytes(SIZE * (SIZE + 1)))), (b"IEND", b"")):
        body += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    "chunks",
    [
        [header(SIZE, SIZE), header(30011, SIZE)],
        [header(SIZE, SIZE), header(2**31 - 1, 2**31 - 1)],
        [header(SIZE, SIZE, color_type=3)],
        [header(SIZE, SIZE, color_type=5)],
        [header(0, 0)],
    ],
    ids=["another size behind", "a bomb behind", "no palette", "no such color type", "no pixels"],
)
def test_a_forged_png_is_refused(tmp_path: Path, chunks: list[tuple[bytes, bytes]]) -> None:
    (tmp_path / "good.png").write_bytes(forged(header(SIZE, SIZE)))
    assert read_image(tmp_path / "good.png").shape == (1, SIZE, SIZE)
    (tmp_path / "bad.png").write_bytes(forged(*chunks))
    with pytest.raises(DataError, match=r"bad.png: the PNG is damaged or truncated"):
        read_image(tmp_path / "bad.png")


@pytest.mark.parametrize(("width", "height"), [(MAX_SIDE + 1, 1), (MAX_SIDE + 1, MAX_SIDE + 1), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_before_decoding(
    tmp_path: Path, width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bomb.png").write_bytes(forged(header(width, height)))
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("Pillow was called"))
    with pytest.raises(DataError, match=rf"bomb.png: expected at most 4096 pixels per side, got {width}x{height}"):
        read_image(tmp_path / "bomb.png")


def test_written_digits_can_be_read(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    assert write_digits(tmp_path / "digits") == 1797
    images = load_image_folder(tmp_path / "digits")
    assert images.labels == tuple("0123456789")
    assert images.pixels_NCYX.shape == (1797, 1, 8, 8)
    assert (images.pixels_NCYX.min(), images.pixels_NCYX.max()) == (0, 255)
    digits = load_digits()
    order = [int(path.stem) for path in images.paths]
    np.testing.assert_array_equal(np.rint(images.pixels_NCYX[:, 0] * (16 / 255)), digits.images[order])
    np.testing.assert_array_equal(images.label_N, digits.target[order])
    with pytest.raises(DataError, match="digits: expected a new or empty folder"):
        write_digits(tmp_path / "digits")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingPackageError, match=r"sklearn, which is not installed; .*'clearhead\[study\]'"):
        write_digits(tmp_path / "digits")


def test_digits_have_names() -> None:
    assert {language: len(set(names)) for language, names in DIGIT_NAMES.items()} == {"en": 10, "de": 10}
    assert DIGIT_NAMES["de"][:2] == ["null", "eins"] and DIGIT_NAMES["en"][9] == "nine"
