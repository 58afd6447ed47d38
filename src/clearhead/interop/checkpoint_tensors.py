"""Tensors of checkpoints: safetensors files, whose headers are read before their tensors, and torch's pickle files.

This is the only module that reads pickle files. It uses torch's restricted reader, which executes nothing and accepts
only tensors and plain containers. Checkpoints of fairseq also contain `argparse.Namespace` and numeric NumPy arrays,
which ALLOWED_NAMES adds; a file with any other name is refused.
"""

import argparse
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from clearhead.errors import InteropError

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
Shape = tuple[int, ...]
_NUMERIC_TYPES = (
    "Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
)  # fmt: skip
ALLOWED_NAMES: list[Any] = [
    argparse.Namespace,
    np.ndarray,
    np.dtype,
    *(getattr(np.dtypes, f"{name}DType") for name in _NUMERIC_TYPES),
    *((_reconstruct, f"numpy.{package}.multiarray._reconstruct") for package in ("core", "_core")),
]
"""Classes and functions that pickle files may refer to."""


class CheckpointTensors(Protocol):
    """Tensors by name, whose shapes are available before any tensor is read."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of every tensor."""

    def get(self, name: str) -> Tensor:
        """Return one tensor."""


@dataclass(frozen=True)
class InMemoryTensors:
    """Tensors that are already in memory."""

    tensors: Mapping[str, Tensor]

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def get(self, name: str) -> Tensor:
        return self.tensors[name]


@dataclass(frozen=True)
class SafetensorsFiles:
    """Tensors in one or several safetensors files, each read when requested.

    The library validates the header of a file when it opens the file, so the shapes are correct.
    """

    files: Mapping[str, Path]
    """File of each tensor."""
    shapes: Mapping[str, Shape]

    @classmethod
    def open(cls, folder: Path) -> "SafetensorsFiles":
        """Return the tensors of a folder: of model.safetensors, or of the files that the index lists."""
        return cls._open(_weight_files(folder))

    @classmethod
    def open_file(cls, path: Path) -> "SafetensorsFiles":
        """Return the tensors of one file."""
        return cls._open([path])

    @classmethod
    def _open(cls, paths: Sequence[Path]) -> "SafetensorsFiles":
        files: dict[str, Path] = {}
        shapes: dict[str, Shape] = {}
        for path in paths:
            try:
                with safe_open(path, "pt") as file:
                    for name in file.keys():  # noqa: SIM118  not a mapping
                        files[name], shapes[name] = path, tuple(file.get_slice(name).get_shape())
            except (SafetensorError, OSError, ValueError) as error:
                raise InteropError(f"{path} is not a valid safetensors file: {error}; copy it again") from error
        return cls(files, shapes)

    def get(self, name: str) -> Tensor:
        with safe_open(self.files[name], "pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def _weight_files(folder: Path) -> list[Path]:
    """Return the files with the weights of a folder, or raise InteropError."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise InteropError(f"expected {WEIGHTS} in {folder}, but it is missing; save the model with safetensors first")
    try:
        names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InteropError(f"{folder / INDEX} has no weight_map; copy the folder again") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise InteropError(f"{folder / INDEX} lists {name}, which is not in the folder; copy it again")
    return [folder / name for name in names]


def count_values(tensors: CheckpointTensors) -> int:
    """Return the number of values of all tensors."""
    return sum(prod(shape) for shape in tensors.shapes.values())


def to_float32(tensor: Tensor, name: str) -> Tensor:
    """Return the tensor in float32, which is exact for half precision; raise InteropError for integers."""
    if not tensor.is_floating_point():
        raise InteropError(
            f"{name} has type {tensor.dtype}, expected floating-point numbers; quantized weights cannot be imported"
        )
    return tensor.to(torch.float32)


def load_pickle(path: Path) -> Any:
    """Return the content of a torch checkpoint without executing code from it.

    Raise InteropError if the file refers to other names than ALLOWED_NAMES, or cannot be read.
    """
    with safe_globals(ALLOWED_NAMES), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")  # the reader reports what it cannot read
        try:
            forbidden = sorted(get_unsafe_globals_in_checkpoint(path))
        except (ValueError, RuntimeError, UnpicklingError, EOFError, IndexError, KeyError):
            forbidden = []  # an old file, or not a checkpoint: the reader reports it
        if forbidden:
            raise _forbidden_name_error(path, ", ".join(forbidden))
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise InteropError(f"cannot read {path}: {error.strerror or error}") from error
        except (UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
            match = re.search(r"GLOBAL (\S+)", str(error))
            if match:
                raise _forbidden_name_error(path, match[1]) from None
            reason = str(error).split("WeightsUnpickler error:")[-1].strip().split("\n")[0]
            raise InteropError(
                f"{path} cannot be read as a torch checkpoint ({reason}); expected a .pt or .safetensors file, or a "
                "Hugging Face folder"
            ) from error


def _forbidden_name_error(path: Path, names: str) -> InteropError:
    return InteropError(
        f"{path} would execute {names}, which is not allowed; expected tensors, plain values, argparse.Namespace and "
        "NumPy arrays. Nothing was executed"
    )
