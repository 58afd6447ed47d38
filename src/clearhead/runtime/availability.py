"""Presence of the compiled core, and the instruction set that it uses."""

import functools
import importlib
import importlib.util
import os

from clearhead.errors import ConfigError, MissingPackageError

CORE = "clearhead.runtime._core"
ISA_VARIABLE = "CLEARHEAD_ISA"
"""Environment variable that forces avx512vnni, avx512, avx2 or generic kernels."""
REQUIRED_VARIABLE = "CLEARHEAD_REQUIRE_CORE"
"""Environment variable: if it is 1, a missing core is an error. The same holds if CI is set to any value."""


def is_available() -> bool:
    """Return whether the core was built and can be loaded."""
    return not why_unavailable()


@functools.cache
def why_unavailable() -> str:
    """Return one sentence on why the core cannot be used; empty if it can."""
    # find_spec distinguishes a missing file from one that fails to load; `from clearhead.runtime import _core` would
    # report the first as a circular import.
    if importlib.util.find_spec(CORE) is None:
        return "The C++ core is not built; install a C++17 compiler (g++ or clang++) and reinstall clearhead."
    try:
        importlib.import_module(CORE)
    except ImportError as error:
        return f"The C++ core cannot be loaded ({str(error).splitlines()[0]}); reinstall clearhead on this machine."
    return ""


def check_fallback() -> None:
    """Raise MissingPackageError if the core cannot be used and may not be replaced by torch, for example in CI."""
    if problem := why_no_fallback():
        raise MissingPackageError(problem)


def why_no_fallback() -> str:
    """Return one sentence if the core cannot be used and torch may not replace it; empty otherwise."""
    problem, variable = why_unavailable(), ""
    if os.environ.get("CI"):
        variable = "CI"
    elif os.environ.get(REQUIRED_VARIABLE) == "1":
        variable = f"{REQUIRED_VARIABLE}=1"
    return f"{problem.rstrip('.')}; torch does not replace it, since {variable} is set" if problem and variable else ""


def instruction_set() -> str:
    """Return the instruction set of the kernels in use: avx512vnni, avx512, avx2 or generic.

    It is the fastest that this CPU supports, or the value of CLEARHEAD_ISA. Raises ConfigError if this CPU cannot run
    the forced instruction set.
    """
    from clearhead.runtime import _core

    try:
        return _core.select_instruction_set(os.environ.get(ISA_VARIABLE, ""))
    except ValueError as error:
        raise ConfigError(f"{ISA_VARIABLE}: {error}.") from error
