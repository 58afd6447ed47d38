"""Tensors of a safetensors file that was read into memory: NumPy views of its bytes, without a copy.

The file is read once, so that the bytes whose checksum was verified are the bytes that are used; mapping it into memory
would end the process with SIGBUS if it is truncated while in use. Layout: the size of the header (8 bytes, little
endian), the header (JSON: name -> dtype, shape, offsets), the data.
"""

import json
import math
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def parse_tensors(content: NDArray[np.uint8]) -> dict[str, Array]:
    """Return the tensors by name, as views of `content`; raise ValueError if it is not a valid safetensors file."""
    if len(content) < 8:
        raise ValueError(f"{len(content)} bytes are too few for a header")
    header_size = int.from_bytes(content[:8].tobytes(), "little")
    if header_size > min(MAX_HEADER_BYTES, len(content) - 8):
        raise ValueError(f"a header of {header_size:,} bytes does not fit into {len(content):,} bytes")
    try:
        header = json.loads(content[8 : 8 + header_size].tobytes())
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    data, tensors, used = content[8 + header_size :], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        start, end = _offsets(name, entry)
        if start != used or end > len(data):
            raise ValueError(f"{name}: expected data from byte {used:,} on, found {start:,} to {end:,}")
        tensors[name], used = _view(name, entry, data[start:end]), end
    if used != len(data):
        raise ValueError(f"{len(data) - used:,} bytes belong to no tensor")
    return tensors


def _offsets(name: str, entry: object) -> tuple[int, int]:
    """Return the first byte of a tensor and the one after its last."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{name}: expected two data_offsets, found {offsets!r}")
    return offsets[0], offsets[1]


def _view(name: str, entry: dict[str, Any], data: NDArray[np.uint8]) -> Array:
    """Return the bytes of one tensor with its dtype and shape; copied only if they are not aligned."""
    dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
    if dtype is None:
        raise ValueError(f"{name}: expected a dtype of {', '.join(DTYPES)}, found {entry.get('dtype')!r}")
    if not _are_sizes(shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{name}: a shape of {shape!r} does not fit {len(data):,} bytes of {dtype}")
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    return data.view(dtype).reshape(shape)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)
