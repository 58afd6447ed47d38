"""The exceptions that users can cause.

    ClearheadError            base class; the CLI prints the message as one line and exits with code 2
    ├── ConfigError           a setting that is unknown, of the wrong type or contradicts another
    ├── DataError             a corpus or text that cannot be used; the message names file and line
    ├── TokenizerError        a tokenizer that cannot be built, or a text or token that it cannot represent
    ├── BundleError           a model folder that is missing, damaged, of another version, or cannot be written
    ├── DecodingError         a request that search or an engine does not support
    ├── TrainingError         a run that cannot start or continue
    ├── TaskError             a command for which the model was not trained
    ├── InspectionError       a part of a network or a step of decoding that does not exist
    ├── RequestCancelledError a request that was cancelled while it was computed
    ├── MissingPackageError   an optional package that is not installed; the message names the extra
    ├── InteropError          a foreign checkpoint that cannot be read, or a model that a format cannot represent
    ├── ServingError          a server that cannot start, or a request that it rejects
    └── StudyError            an unknown study, or a folder with the results of another one

Each message states what was expected, what was found and what to do. Internal bugs are plain `assert`s, which are never
caught: the CLI exits with code 1 and a traceback.
"""

from pathlib import Path


class ClearheadError(Exception):
    """Base class of all exceptions that users can cause."""


class ConfigError(ClearheadError):
    """A setting that is unknown, of the wrong type or contradicts another."""


class DataError(ClearheadError):
    """A corpus or text that cannot be used."""

    @classmethod
    def at(cls, path: Path | str, line: int, problem: str) -> "DataError":
        """Return the error for a line of a file, in the form `path:line: problem` that editors recognize."""
        return cls(f"{path}:{line}: {problem}")


class TokenizerError(ClearheadError):
    """A tokenizer that cannot be built, or a text or token that it cannot represent."""


class BundleError(ClearheadError):
    """A model folder that is missing, damaged, of another version, or cannot be written."""


class DecodingError(ClearheadError):
    """A request that search or an engine does not support."""


class TrainingError(ClearheadError):
    """A run that cannot start or continue."""


class TaskError(ClearheadError):
    """A command for which the model was not trained."""


class InspectionError(ClearheadError):
    """A part of a network or a step of decoding that does not exist."""


class RequestCancelledError(ClearheadError):
    """A request that was cancelled while it was computed."""


class InteropError(ClearheadError):
    """A foreign checkpoint that cannot be read, or a model that a format cannot represent."""


class MissingPackageError(ClearheadError):
    """An optional package that is not installed."""


class ServingError(ClearheadError):
    """A server that cannot start, or a request that it rejects."""


class StudyError(ClearheadError):
    """An unknown study, or a folder with the results of another one."""
