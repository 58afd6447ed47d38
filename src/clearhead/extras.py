"""Optional packages: the extra of clearhead that installs each of them, and the error for one that is missing."""

import importlib
from typing import Any

from clearhead.errors import MissingPackageError

EXTRAS = {
    "torch": "train",
    "sacrebleu": "train",
    "PIL": "train",
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
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""Distribution by importable package, where their names differ."""


def require_package(module: str, purpose: str) -> Any:
    """Import an optional package and return the module.

    `purpose` is the subject of the error message, such as `a.parquet: Parquet`. Raises MissingPackageError, which names
    the package and the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_package(error, purpose, EXTRAS[module.partition(".")[0]]) from error


def missing_package(error: ModuleNotFoundError, purpose: str, extra: str = "") -> Exception:
    """Return the MissingPackageError for a failed import, or `error` itself if no extra installs the package.

    `extra` is the extra to name for a package without an entry in EXTRAS, such as a dependency of an optional package.
    """
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package, extra)
    if not extra:
        return error
    return MissingPackageError(
        f"{purpose} needs the package {package}, which is not installed; {install_command(extra)}"
    )


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'clearhead[{extra}]'"
