"""Every benchmark exits with a message if the C++ core is missing, because it would measure the torch engine."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.runtime import availability

ROOT = Path(__file__).parents[2]
RENDERS_ONLY = {"benchmarks.report"}  # prints an existing record
DATA = ["--data", "data"]
ARGUMENTS = {
    "benchmarks.against": [*DATA, "--baseline", "{}", "--out", "{}"],
    "benchmarks.corpus_scale": ["--folder", "{}"],
    "benchmarks.decoding": [*DATA, "--out", "{}"],
    "benchmarks.detransliterator": ["{}"],
    "benchmarks.kernels": [],
    "benchmarks.questions": [],
    "benchmarks.recurrent": [],
    "benchmarks.results": [],
    "benchmarks.run": [*DATA, "--out", "{}"],
    "benchmarks.scale": [],
    "benchmarks.shortlist": ["{}", "--pairs", "{}", "--test", "{}"],
    "benchmarks.startup": ["{}"],
    "benchmarks.studies": ["--page-only"],
    "benchmarks.train": [*DATA, "--out", "{}"],
}


def entry_points() -> list[str]:
    """Return the modules below benchmarks/ that users run, without the contestants that they start."""
    modules = set()
    for path in (ROOT / "benchmarks").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8") and ".contestants." not in module:
            modules.add(module)
    return sorted(modules - RENDERS_ONLY)


@pytest.fixture
def without_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(availability, "CORE", "clearhead.runtime._absent")
    availability.why_unavailable.cache_clear()
    yield
    availability.why_unavailable.cache_clear()


@pytest.mark.parametrize("module", entry_points())
def test_a_missing_core_ends_a_benchmark(
    module: str, without_core: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", [module, *(word.format(out) for word in ARGUMENTS[module])])
    is_package = (ROOT / module.replace(".", "/")).is_dir()
    # Another test may have imported it; runpy warns about that.
    monkeypatch.delitem(sys.modules, f"{module}.__main__" if is_package else module, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert str(ended.value).startswith(
        "benchmarks need the C++ core: The C++ core is not built; install a C++17 compiler"
    )
    assert "\n" not in str(ended.value)
    assert not out.exists(), "the benchmark was started"


def test_contestants_are_not_entry_points_and_all_others_are() -> None:
    assert {"benchmarks.run", "benchmarks.results", "benchmarks.startup"} <= {*entry_points()} <= {*ARGUMENTS}
