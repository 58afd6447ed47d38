"""Optional packages: the extra of clearhead that installs each of them, and the error for one that is missing."""

import importlib
from typing import Any

from clearhead.errors import MissingPackageError

EXTRAS = {
    "ctranslate2": "ctranslate2",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "pyarrow": "parquet",
    "zstandard": "zstd",
    "sklearn": "study",
    "matplotlib": "study",
    "tensorboardX": "tensorboard",
    "fastapi": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "h11": "serve",
}
"""Extra by importable package; no other module names extras."""


def require_package(module: str, purpose: str) -> Any:
    """Import an optional package and return the module.

    `purpose` is the subject of the error message, such as `a.parquet: Parquet`. Raises MissingPackageError, which names
    the package and the extra that installs it.
    """
    extra = EXTRAS[module.partition(".")[0]]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise MissingPackageError(
            f"{purpose} needs the package {missing}, which is not installed; pip install 'clearhead[{extra}]'"
        ) from error
