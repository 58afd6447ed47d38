"""Check that the C++ core is present: without it a benchmark would measure the torch engine instead."""

from clearhead.runtime import why_unavailable


def require_core() -> None:
    """Exit with one sentence if the core cannot be used."""
    if problem := why_unavailable():
        raise SystemExit(f"benchmarks need the C++ core: {problem}")
