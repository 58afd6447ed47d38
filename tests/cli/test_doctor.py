"""`clearhead doctor`: the real command on this machine, and on machines where something is missing."""

import importlib.metadata
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead import runtime
from clearhead.cli import doctor
from clearhead.cli.main import main
from clearhead.extras import EXTRAS
from tests.terminal import Finished, run_process

ROOT = Path(__file__).parents[2]
needs_core = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())

RUN = """
import sys
from clearhead.cli.main import main
code = main(["doctor", *sys.argv[1:]])
print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""
NO_CORE = "import clearhead.runtime.availability as a\na.CORE = 'clearhead.runtime._missing'\n"
KEYS = {
    "clearhead", "python", "platform", "cpu", "memory", "required", "core", "engine", "torch", "extras", "cache",
    "terminal", "problems",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CI", "CLEARHEAD_REQUIRE_CORE", "CLEARHEAD_ISA"):
        monkeypatch.delenv(variable, raising=False)


def run(*arguments: str, program: str = RUN, terminals: frozenset[str] = frozenset()) -> Finished:
    return run_process(arguments, program=("-c", program), terminals=terminals)


def facts(program: str = RUN, code: int = 0) -> dict[str, Any]:
    """Return the JSON output of the command, which must end with this exit code."""
    found = run("--json", program=program)
    assert found.code == code, found.stderr.decode()
    read: dict[str, Any] = json.loads(found.stdout)
    return read


def blocked(*modules: str) -> str:
    """Return a program in which these modules cannot be imported."""
    return "".join(f"import sys; sys.modules[{name!r}] = None\n" for name in modules) + RUN


def errors(found: Finished) -> list[str]:
    return [line for line in found.stderr.decode().splitlines() if not line.startswith("imported:")]


def line(found: Finished, label: str) -> str:
    (value,) = re.findall(rf"^ *{re.escape(label)} +(.*)$", found.stdout.decode(), re.MULTILINE)
    return str(value)


def test_optional_packages_are_located_but_not_imported() -> None:
    found = run()
    imported = set(found.stderr.decode().rpartition("imported:")[2].split())
    assert "clearhead" in imported
    assert not imported & EXTRAS.keys()


@needs_core
def test_facts_are_those_of_this_machine() -> None:
    found = facts()
    assert found.keys() == KEYS
    assert found["problems"] == []
    assert found["clearhead"] == {
        "version": importlib.metadata.version("clearhead"),
        "folder": str(Path(clearhead.__file__).parent),
    }
    assert found["core"]["instruction_set"] == found["core"]["supported"][0] == runtime.instruction_set()
    assert found["engine"] == {"name": "native", "reason": "", "threads": 1}  # run_process sets OMP_NUM_THREADS
    assert found["torch"] == {"version": importlib.metadata.version("torch"), "threads": 1}
    assert found["cpu"]["cores"] == os.cpu_count()
    assert found["memory"]["total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found["memory"]["available_bytes"] <= found["memory"]["total_bytes"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(found["required"]) == [each.partition(">=")[0] for each in project["dependencies"]]
    assert found["extras"].keys() == project["optional-dependencies"].keys() - {"all", "dev"}
    packages = {**found["required"]}
    for extra in found["extras"].values():
        packages |= extra["installed"]
    assert packages == {name: importlib.metadata.version(name) for name in packages}
    assert {"pillow", "scikit-learn"} <= packages.keys()


@needs_core
def test_lines_show_the_same_facts() -> None:
    found, expected = run(), facts()
    assert (found.code, errors(found)) == (0, [])
    assert line(found, "C++ core").startswith(f"present, uses {expected['core']['instruction_set']} (supported: ")
    assert line(found, "engine") == "native, 1 thread"
    assert line(found, "torch") == f"{expected['torch']['version']}, at most 1 thread"
    assert line(found, "parquet") == f"installed: pyarrow {importlib.metadata.version('pyarrow')}"
    assert line(found, "cache").startswith(f"{expected['cache']['folder']}: ")
    assert line(found, "output") == "standard output is not a terminal, encoding utf-8"
    at_terminal = run(terminals=frozenset({"stdout"}))
    assert line(at_terminal, "output").startswith("standard output is a terminal, encoding ")


def test_without_a_core_the_reason_and_the_torch_engine_are_named() -> None:
    found = run(program=NO_CORE + RUN)
    assert (found.code, errors(found)) == (0, [])
    assert line(found, "C++ core").startswith("missing. The C++ core is not built; install a C++17 compiler")
    assert line(found, "engine").startswith("torch (The C++ core is not built;")
    read = facts(NO_CORE + RUN)
    assert read["core"] == {"is_available": False, "instruction_set": None, "supported": [],
                            "problem": read["engine"]["reason"]}  # fmt: skip


@pytest.mark.parametrize("variable", ["CI", "CLEARHEAD_REQUIRE_CORE"])
def test_a_core_that_must_not_be_missing_is_a_problem(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    found = run(program=NO_CORE + RUN)
    assert found.code == 2
    assert line(found, "engine").startswith("none (The C++ core is not built;")
    (error,) = errors(found)
    assert error.startswith("clearhead: no model can be run: The C++ core is not built")
    assert f"since {variable}" in error


def test_with_neither_core_nor_torch_both_remedies_are_named() -> None:
    found = run(program=NO_CORE + blocked("torch"))
    assert found.code == 2
    assert line(found, "torch") == "not installed: pip install 'clearhead[train]'"
    (error,) = errors(found)
    assert "C++17 compiler" in error and "pip install 'clearhead[train]'" in error
    read = facts(NO_CORE + blocked("torch"), code=2)
    assert read["problems"] == [error.removeprefix("clearhead: ")]
    assert (read["engine"]["name"], read["torch"]) == ("none", None)


@needs_core
def test_an_instruction_set_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_ISA", "generic")
    assert facts()["core"]["instruction_set"] == "generic"
    monkeypatch.setenv("CLEARHEAD_ISA", "sse9")
    found = run()
    assert found.code == 2
    (error,) = errors(found)
    assert error.startswith("clearhead: CLEARHEAD_ISA: this CPU cannot run instruction set 'sse9'; it can run: ")
    assert line(found, "C++ core") == error.removeprefix("clearhead: ")


@needs_core
def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    found = run(program=blocked("PIL", "sacrebleu", "uvicorn"))
    assert found.code == 0
    assert line(found, "train") == "missing sacrebleu, pillow: pip install 'clearhead[train]'"
    assert line(found, "serve") == "missing uvicorn: pip install 'clearhead[serve]'"
    extra = facts(blocked("uvicorn"))["extras"]["serve"]
    assert (extra["missing"], extra["command"]) == (["uvicorn"], "pip install 'clearhead[serve]'")
    assert "fastapi" in extra["installed"]


@pytest.mark.parametrize("module", ["numpy", "safetensors", "tokenizers"])
def test_a_missing_requirement_is_a_problem(module: str) -> None:
    found = run(program=blocked(module))
    assert found.code == 2
    assert errors(found) == [f"clearhead: required packages are missing: {module}; pip install {module}"]
    assert line(found, "packages").endswith(f"; missing: {module}")
    read = facts(blocked(module), code=2)
    assert (read["required"][module], read["core"], read["engine"]) == (None, None, None)


@needs_core
def test_the_cache_is_measured_and_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caché"))
    cache = facts()["cache"]
    assert (cache["folder"], cache["used_bytes"]) == (str(tmp_path / "caché" / "clearhead"), 0)
    assert cache["is_writable"] and cache["free_bytes"] > 0
    assert not (tmp_path / "caché").exists()
    corpus = tmp_path / "caché" / "clearhead" / "corpora" / "key"
    corpus.mkdir(parents=True)
    (corpus / "ids").write_bytes(bytes(5003))
    (corpus.parent / "other").write_bytes(bytes(7001))
    assert facts()["cache"]["used_bytes"] == 12004


@needs_core
def test_output_that_cannot_be_encoded_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caché"))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    found = run()
    assert (found.code, errors(found)) == (0, [])
    assert r"cach\xe9" in line(found, "cache")
    assert line(found, "output").endswith("encoding ascii; some characters cannot be printed, set PYTHONUTF8=1")
    assert facts()["cache"]["folder"].endswith("/caché/clearhead")


def test_an_unloadable_core_is_explained(tmp_path: Path) -> None:
    (tmp_path / "damaged_core.abi3.so").write_bytes(b"\x7fELF" + bytes(60))
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + NO_CORE.replace(
        "clearhead.runtime._missing", "damaged_core"
    )
    found = run(program=program + RUN)
    assert found.code == 0
    assert line(found, "C++ core").startswith("missing. The C++ core cannot be loaded (")


def read_from(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_read", lambda path: files.get(path, ""))


def test_an_arm_processor_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd aes asimddp bf16\n\nprocessor\t: 1\nFeatures\t: fp\n"
    )
    read_from({"/proc/cpuinfo": text}, monkeypatch)
    assert doctor._cpu().flags == ("asimd", "asimddp", "bf16")


def test_a_system_without_proc_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    read_from({}, monkeypatch)
    assert str(doctor._cpu()).endswith("instruction sets are not listed by this system")
    memory = doctor._memory()
    assert memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (memory.available_bytes, memory.limit_bytes) == (None, None)


@pytest.mark.parametrize(
    ("path", "text", "limit"),
    [
        (doctor.MEMORY_LIMITS[0], "3221225472\n", 3 * 2**30),
        (doctor.MEMORY_LIMITS[0], "max\n", None),
        (doctor.MEMORY_LIMITS[1], "3221225472\n", 3 * 2**30),
        (doctor.MEMORY_LIMITS[1], "9223372036854771712\n", None),
    ],
)
def test_the_limit_of_a_container_is_read(
    path: str, text: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = "MemTotal:        7340032 kB\nMemFree:         1 kB\nMemAvailable:    5242880 kB\n"
    read_from({"/proc/meminfo": total, path: text}, monkeypatch)
    memory = doctor._memory()
    assert (memory.total_bytes, memory.available_bytes, memory.limit_bytes) == (7 * 2**30, 5 * 2**30, limit)
    shown = "; the container is limited to 3.0 GiB" if limit else ""
    assert str(memory) == f"7.0 GiB, 5.0 GiB available{shown}"


def test_help_has_an_example_and_the_list_of_commands_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--help"]) == 0
    assert "Example: clearhead doctor" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert re.search(r"^ +doctor +Report what is installed", capsys.readouterr().out, re.MULTILINE)
