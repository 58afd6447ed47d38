"""The compiled core: its presence or the reason of its absence, and its instruction set."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead import runtime
from clearhead.errors import ConfigError
from clearhead.runtime import availability

needs_core = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clear the cached result of earlier calls, before and after the test."""
    availability.why_unavailable.cache_clear()
    yield
    availability.why_unavailable.cache_clear()


@pytest.mark.skipif(not os.environ.get("CI"), reason="the core is optional outside of CI")
def test_core_is_built_in_ci() -> None:
    assert runtime.why_unavailable() == ""


def test_missing_core_is_explained_in_one_sentence(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "CORE", "clearhead.runtime._absent")
    assert not runtime.is_available()
    assert runtime.why_unavailable().startswith("The C++ core is not built; install a C++17 compiler")


def test_unloadable_core_is_explained_in_one_sentence(
    fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "damaged_core.abi3.so").write_bytes(b"\x7fELF" + bytes(60))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(availability, "CORE", "damaged_core")
    assert not runtime.is_available()
    assert runtime.why_unavailable().startswith("The C++ core cannot be loaded (")
    assert "\n" not in runtime.why_unavailable()


def test_runtime_does_not_import_torch() -> None:
    code = "import sys; from clearhead import runtime; runtime.is_available(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_core
def test_generic_kernels_are_the_last_and_always_supported() -> None:
    sets = importlib.import_module(availability.CORE).instruction_sets()
    assert list(sets)[-1] == "generic"
    assert sets["generic"] is True


@needs_core
def test_fastest_supported_instruction_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARHEAD_ISA", raising=False)
    sets = importlib.import_module(availability.CORE).instruction_sets()
    assert runtime.instruction_set() == next(name for name, supported in sets.items() if supported)


@needs_core
def test_every_supported_instruction_set_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = importlib.import_module(availability.CORE).instruction_sets()
    for name in [name for name, supported in sets.items() if supported]:
        monkeypatch.setenv("CLEARHEAD_ISA", name)
        assert runtime.instruction_set() == name


@needs_core
@pytest.mark.parametrize("name", ["sse9", "AVX2", "avx"])
def test_unknown_instruction_set_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_ISA", name)
    with pytest.raises(
        ConfigError, match=rf"^CLEARHEAD_ISA: this CPU cannot run instruction set '{name}'; it can run:"
    ):
        runtime.instruction_set()
