"""C++ core of the inference runtime (native/module.cpp)."""

def instruction_sets() -> dict[str, bool]:
    """Return the compiled instruction sets, fastest first, and whether this CPU supports each."""

def select_instruction_set(forced: str) -> str:
    """Return the fastest supported instruction set, or `forced` unless it is empty.

    Raises ValueError if this CPU cannot run the forced one.
    """
