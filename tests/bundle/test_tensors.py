"""The reader of safetensors files, compared with the library and tested with damaged files."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save

from clearhead.bundle.reader import parse_tensors


def as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(content), dtype=np.uint8)


def file_of(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture
def arrays() -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(7)
    return {
        "w": rng.standard_normal((7, 5)).astype(np.float32),
        "ids": rng.integers(0, 9, (3, 2, 5)),
        "scalar": np.array(3.0, dtype=np.float32),
        "none": np.zeros((0, 3), dtype=np.float32),
        "half": rng.standard_normal(5).astype(np.float16),
        "mask": np.array([True, False, True]),
    }


def test_tensors_of_the_library_are_read(arrays: dict[str, NDArray[np.generic]]) -> None:
    content = as_array(save(arrays, metadata={"made": "here"}))
    tensors = parse_tensors(content)
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        assert tensors[name].dtype == array.dtype and tensors[name].shape == array.shape
        assert (tensors[name] == array).all()
    assert np.shares_memory(tensors["w"], content)


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too few"),
        (b"\xff" * 8, "does not fit"),
        (b"\x05" + bytes(7) + b"abc", "does not fit"),
        (b"\x02" + bytes(7) + b"[]", "not a JSON object"),
        (file_of({"a": 1}, b""), "two data_offsets"),
        (file_of({"a": entry(offsets=[0, True])}, bytes(8)), "two data_offsets"),
        (file_of({"a": entry(offsets=[8, 0])}, bytes(8)), "two data_offsets"),
        (file_of({"a": entry(offsets=[0, 16])}, bytes(8)), "found 0 to 16"),
        (file_of({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)), "from byte 8 on"),
        (file_of({"a": entry()}, bytes(9)), "1 bytes belong to no tensor"),
        (file_of({"a": entry(shape=[3])}, bytes(8)), "does not fit 8 bytes"),
        (file_of({"a": entry(shape=[-1, -2])}, bytes(8)), "does not fit 8 bytes"),
        (file_of({"a": entry(shape=[2.0])}, bytes(8)), "does not fit 8 bytes"),
        (file_of({"a": entry(shape=[0, 2**62, 2**62], offsets=[0, 0])}, b""), "."),
        (file_of({"a": entry(shape=[1] * 99 + [2])}, bytes(8)), "."),
        (file_of({"a": entry(dtype="BF16")}, bytes(8)), "expected a dtype of F64.*BF16"),
        (b"\x88\x13" + bytes(6) + b"[" * 5000, "."),
    ],
)
def test_invalid_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_tensors(as_array(content))


def test_any_bytes_give_tensors_or_an_error(arrays: dict[str, NDArray[np.generic]]) -> None:
    original, rng = save(arrays), random.Random(3)
    for _ in range(3000):
        content = bytearray(original[: rng.choice([len(original), rng.randrange(len(original))])])
        for _ in range(rng.randrange(4)):
            if content:
                content[rng.randrange(min(400, len(content)))] = rng.randrange(256)
        try:
            for array in parse_tensors(as_array(bytes(content))).values():
                array.sum()
        except ValueError:
            pass


def test_reading_a_bundle_does_not_import_torch() -> None:
    code = "import sys, clearhead.bundle; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
