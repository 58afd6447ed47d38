"""What can go wrong through no fault of clearhead's, as one tree.

    ClearheadError            anything a user can cause; the CLI prints it as one line and exits with 2
    ├── ConfigError           a setting that is unknown, of the wrong type or contradicts another
    ├── DataError             a corpus or text that cannot be used; names the file and the line
    ├── TokenizerError        a tokenizer that cannot be built or cannot express what was asked
    ├── BundleError           a model folder that is missing, damaged, of another version or in the way
    ├── DecodingError         a request that search or an engine cannot honour
    ├── TrainingError         a run that cannot start or go on
    ├── TaskError             a verb for which a model was not trained
    ├── InspectionError       a part of a network, or a step of its work, that is not there to be looked at
    ├── RequestCancelledError a request that was cancelled while it was computed
    ├── MissingPackageError   an optional package that is not installed; names the extra that installs it
    ├── InteropError          a foreign checkpoint, or a format, that cannot hold what is asked
    ├── ServingError          a server that cannot start, or a request that it does not take
    └── StudyError            a study that is unknown, or a folder that holds another one

Each message says what was expected, what came and what to do. Bugs of our own are plain `assert`s and are never
caught: they exit with 1 and a traceback.
"""

from pathlib import Path


class ClearheadError(Exception):
    """Base of everything a user can cause."""


class ConfigError(ClearheadError):
    """A setting that is unknown, of the wrong type or contradicts another."""


class DataError(ClearheadError):
    """A corpus or text that cannot be used."""

    @classmethod
    def at(cls, path: Path | str, line: int, problem: str) -> "DataError":
        """The error for one place in one file, in the form that editors and terminals can jump to."""
        return cls(f"{path}:{line}: {problem}")


class TokenizerError(ClearheadError):
    """A tokenizer that cannot be built or cannot express what was asked."""


class BundleError(ClearheadError):
    """A model folder that is missing, damaged, of another version or in the way."""


class DecodingError(ClearheadError):
    """A request that search or an engine cannot honour."""


class TrainingError(ClearheadError):
    """A run that cannot start or go on."""


class TaskError(ClearheadError):
    """A verb for which a model was not trained."""


class InspectionError(ClearheadError):
    """A part of a network, or a step of its work, that is not there to be looked at."""


class RequestCancelledError(ClearheadError):
    """A request that was cancelled while it was computed."""


class InteropError(ClearheadError):
    """A foreign checkpoint that cannot be read, or a model that a foreign format cannot hold."""


class MissingPackageError(ClearheadError):
    """An optional package that is not installed."""


class ServingError(ClearheadError):
    """A server that cannot start, or a request that it does not take."""


class StudyError(ClearheadError):
    """A study that is unknown, or a folder that holds another one."""
