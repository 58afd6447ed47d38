"""Where foreign tensors come from: safetensors files, of which only headers are read at first, or a loaded pickle.

Knows names, shapes and numbers, nothing of what they mean.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.errors import InteropError

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
Shape = tuple[int, ...]


class CheckpointTensors(Protocol):
    """Tensors by name, whose shapes are known before any is read."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of every tensor."""

    def get(self, name: str) -> Tensor:
        """One of them."""


@dataclass(frozen=True)
class InMemoryTensors:
    """Tensors that are in memory already."""

    tensors: Mapping[str, Tensor]

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def get(self, name: str) -> Tensor:
        return self.tensors[name]


@dataclass(frozen=True)
class SafetensorsFiles:
    """Tensors in one or several files. The library checks a header against its file before it gives a shape."""

    files: Mapping[str, Path]  # of each tensor
    shapes: Mapping[str, Shape]

    @classmethod
    def open(cls, folder: Path) -> "SafetensorsFiles":
        """The files of a folder: model.safetensors, or those that the index names."""
        return cls._open(_weight_files(folder))

    @classmethod
    def open_file(cls, path: Path) -> "SafetensorsFiles":
        """One file."""
        return cls._open([path])

    @classmethod
    def _open(cls, paths: Sequence[Path]) -> "SafetensorsFiles":
        files: dict[str, Path] = {}
        shapes: dict[str, Shape] = {}
        for path in paths:
            try:
                with safe_open(path, "pt") as file:
                    for name in file.keys():  # noqa: SIM118  no mapping
                        files[name], shapes[name] = path, tuple(file.get_slice(name).get_shape())
            except (SafetensorError, OSError, ValueError) as error:
                raise InteropError(f"{path} is no sound safetensors file: {error}; copy it again") from error
        return cls(files, shapes)

    def get(self, name: str) -> Tensor:
        with safe_open(self.files[name], "pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise InteropError(f"expected {WEIGHTS} in {folder}, found none; save the model with safetensors first")
    try:
        names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InteropError(f"{folder / INDEX} has no weight_map; copy the folder again") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise InteropError(f"{folder / INDEX} names {name}, which is not in the folder; copy it again")
    return [folder / name for name in names]


def count_numbers(tensors: CheckpointTensors) -> int:
    """How many numbers there are in all."""
    return sum(prod(shape) for shape in tensors.shapes.values())


def as_float(tensor: Tensor, name: str) -> Tensor:
    """The tensor in single precision, which half precision goes into without loss."""
    if not tensor.is_floating_point():
        raise InteropError(
            f"{name} holds {tensor.dtype}, expected floating-point numbers; quantised weights are not read"
        )
    return tensor.to(torch.float32)
