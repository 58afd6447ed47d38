"""The one place that reads pickles: checkpoints of torch, through its restricted reader and a short list of names.

The restricted reader runs nothing: it knows tensors and plain containers. What fairseq's files hold besides is let
through by name, `argparse.Namespace` and the reconstruction of NumPy arrays of numbers. Anything else is refused.
"""

import argparse
import re
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from clearhead.errors import InteropError

_NUMBERS = ("Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
ALLOWED: list[Any] = [
    argparse.Namespace,
    np.ndarray,
    np.dtype,
    *(getattr(np.dtypes, f"{name}DType") for name in _NUMBERS),
    *((_reconstruct, f"numpy.{package}.multiarray._reconstruct") for package in ("core", "_core")),
]


def load_pickle(path: Path) -> Any:
    """What a checkpoint file holds. Nothing in it is run; a name that is not on the list is refused."""
    with safe_globals(ALLOWED), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")  # whether it can be read is seen when it is read
        try:
            refused = sorted(get_unsafe_globals_in_checkpoint(path))
        except (ValueError, RuntimeError, UnpicklingError, EOFError, IndexError, KeyError):
            refused = []  # an old file, or none at all: the reader itself will say
        if refused:
            raise _refusal(path, ", ".join(refused))
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise InteropError(f"cannot read {path}: {error.strerror or error}") from error
        except (UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
            named = re.search(r"GLOBAL (\S+)", str(error))
            if named:
                raise _refusal(path, named[1]) from None
            reason = str(error).split("WeightsUnpickler error:")[-1].strip().split("\n")[0]
            raise InteropError(f"{path} cannot be read as a torch checkpoint: {reason}") from error


def _refusal(path: Path, names: str) -> InteropError:
    return InteropError(
        f"{path} asks to call {names}, which is not let through: a checkpoint is tensors, plain values, "
        "argparse.Namespace and NumPy arrays. Nothing was run"
    )
