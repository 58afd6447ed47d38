"""Builds of the core (sdist, wheel, in place, with and without a compiler), and its C++ unit tests."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
LOCAL = ["--no-deps", "--no-build-isolation", "--no-index"]
BUILD_IN_PLACE = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]

needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("CXX", "g++")) and not os.environ.get("CI"), reason="no C++ compiler here"
)

needs_gcc_and_clang = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("clang++")) and not os.environ.get("CI"),
    reason="g++ or clang++ is not installed",
)


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of CI's rules, with these environment variables."""
    ignored = {"CI", "CLEARHEAD_REQUIRE_CORE", "CLEARHEAD_ISA", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in ignored}
    return subprocess.run(
        command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, check=False
    )


def done(result: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command that must succeed."""
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


def evaluate(expression: str, packages: Path) -> str:
    """Return the value of an expression about the runtime installed in a folder."""
    code = f"from clearhead import runtime; assert runtime.__file__.startswith({str(packages)!r}); print({expression})"
    return done(run([sys.executable, "-c", code], packages, PYTHONPATH=str(packages)))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that the build reads, so that builds do not change the tree under test."""
    folder = tmp_path_factory.mktemp("build") / "clearhead"
    unbuilt = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unbuilt)
    shutil.copytree(ROOT / "tests" / "native", folder / "tests" / "native")
    for name in ["setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.slow
@needs_compiler
def test_sdist_becomes_a_wheel_that_works(project: Path, tmp_path: Path) -> None:
    sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    done(run([sys.executable, "-c", sdist], project))
    (archive,) = tmp_path.glob("*.tar.gz")
    done(run([*PIP, "wheel", *LOCAL, "--wheel-dir", ".", str(archive)], tmp_path, CLEARHEAD_REQUIRE_CORE="1"))
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "_core" in name] == [
        "clearhead/runtime/_core.abi3.so",
        "clearhead/runtime/_core.pyi",
    ]
    assert not [name for name in names if name.endswith((".cpp", ".h"))]
    done(run([*PIP, "install", *LOCAL, "--target", "installed", str(wheel)], tmp_path))
    assert evaluate("runtime.why_unavailable() or runtime.instruction_set()", tmp_path / "installed") in {
        "avx512vnni", "avx512", "avx2", "generic",
    }  # fmt: skip


@pytest.mark.slow
def test_installation_without_a_compiler_succeeds(project: Path, tmp_path: Path) -> None:
    installed = run([*PIP, "install", *LOCAL, "-v", "--target", str(tmp_path), "."], project, CXX="/bin/false")
    output = done(installed) + installed.stderr
    assert output.count("clearhead is installed without its C++ core (/bin/false: exit code 1)") == 1
    assert "py3-none-any" in output
    assert evaluate("runtime.why_unavailable()", tmp_path).startswith("The C++ core is not built;")


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["CLEARHEAD_REQUIRE_CORE", "CI"])
def test_required_core_without_a_compiler_is_an_error(project: Path, tmp_path: Path, variable: str) -> None:
    target = ["--target", str(tmp_path / "installed"), "."]
    result = run([*PIP, "install", *LOCAL, *target], project, **{"CXX": "/bin/false", variable: "1"})
    assert result.returncode != 0
    assert "error: /bin/false: exit code 1" in result.stdout + result.stderr
    assert not (tmp_path / "installed" / "clearhead").exists()


@pytest.mark.slow
@needs_compiler
def test_editable_build_recompiles_what_changed(project: Path, tmp_path: Path) -> None:
    editable = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    done(run([sys.executable, "-c", editable], project, CLEARHEAD_REQUIRE_CORE="1"))
    assert evaluate("runtime.is_available()", project / "src") == "True"
    objects = project / "build" / "native" / "core"
    before = {path.name: path.stat().st_mtime_ns for path in objects.glob("*.o")}
    (project / "src/clearhead/runtime/native/dispatch.cpp").touch()
    done(run(BUILD_IN_PLACE, project))
    after = {path.name: path.stat().st_mtime_ns for path in objects.glob("*.o")}
    assert {name for name in after if after[name] != before[name]} == {"dispatch.o"}
    # A build that fails leaves no outdated core behind.
    done(run(BUILD_IN_PLACE, project, CXX="/bin/false"))
    assert evaluate("runtime.is_available()", project / "src") == "False"


@pytest.mark.slow
@needs_compiler
def test_kernels_define_no_functions_that_the_linker_may_merge(project: Path) -> None:
    done(run(BUILD_IN_PLACE, project, CLEARHEAD_REQUIRE_CORE="1"))
    kernels = sorted((project / "build" / "native" / "core").glob("kernels.*.o"))
    assert kernels[-1].name == "kernels.generic.o"
    for path in kernels:
        symbols = [line.split()[-2:] for line in done(run(["nm", "--defined-only", str(path)], project)).splitlines()]
        isa = path.name.split(".")[1]
        assert [name for kind, name in symbols if kind == "T"] == [f"clearhead_kernels_{isa}"]
        assert not [name for kind, name in symbols if kind in {"W", "u"}]


@pytest.mark.slow
@needs_compiler
def test_unit_tests_pass_under_sanitizers(project: Path) -> None:
    tests = run([sys.executable, "setup.py", "--quiet", "native_tests", "--sanitize"], project, CLEARHEAD_WERROR="1")
    assert done(tests).endswith(" 0 failed checks")


@pytest.mark.slow
@needs_gcc_and_clang
def test_clang_builds_the_extension_without_warnings(project: Path, tmp_path: Path) -> None:
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(tmp_path)]
    done(run(build, project, CXX="clang++", CLEARHEAD_REQUIRE_CORE="1", CLEARHEAD_WERROR="1"))
    assert [path.name for path in tmp_path.rglob("_core*.so")] == ["_core.abi3.so"]


@pytest.mark.slow
@needs_gcc_and_clang
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_unit_tests_built_by_gcc_and_clang_pass(project: Path, compiler: str) -> None:
    """One of them compares a hash of search results, which is the same for all compilers."""
    tests = [sys.executable, "setup.py", "--quiet", "native_tests", f"--cxx={compiler}"]
    lines = done(run(tests, project, CLEARHEAD_WERROR="1")).splitlines()
    assert lines[-1].endswith(" 0 failed checks")


@pytest.mark.slow
@needs_compiler
def test_generic_code_compiled_with_fused_multiply_add_has_the_bits_of_the_others(project: Path) -> None:
    core = pytest.importorskip("clearhead.runtime._core")
    if not core.instruction_sets().get("avx2"):
        pytest.skip("needs a CPU with AVX2 and FMA")
    tests = [sys.executable, "setup.py", "--quiet", "native_tests"]
    lines = done(run(tests, project, CXXFLAGS="-mfma")).splitlines()
    hashes = {line.split(":")[0]: line.split()[-1] for line in lines if "hash of search results" in line}
    assert hashes["generic"] == hashes["avx2"]


@pytest.mark.slow
@needs_compiler
def test_failing_unit_test_fails_the_command(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clearhead"
    shutil.copytree(project, folder)
    failing = '#include "check.h"\nTEST(sum) { CHECK_EQUAL(1 + 1, 3); }\n'
    (folder / "tests/native/test_failing.cpp").write_text(failing, encoding="utf-8")
    result = run([sys.executable, "setup.py", "--quiet", "native_tests"], folder)
    assert result.returncode == 1
    assert "tests/native/test_failing.cpp:2: 1 + 1 is 2, not 3\nFAILED sum" in result.stderr


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(
    ("installed", "variables", "used"),
    [
        (["clang++", "c++", "g++"], {}, "g++"),
        (["clang++", "c++"], {}, "c++"),
        (["clang++"], {}, "clang++"),
        ([], {}, "g++"),  # which is then named as missing
        (["g++"], {"CXX": "clang++-19"}, "clang++-19"),
    ],
)
def test_make_uses_a_compiler_that_is_installed(
    installed: list[str], variables: dict[str, str], used: str, tmp_path: Path
) -> None:
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    rule = 'print-compiler: ; @echo "$(CXX)"; :'
    command = [str(shutil.which("make")), "--silent", "--eval", rule, "print-compiler"]
    environment = {"PATH": str(tmp_path), **variables}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == used


@pytest.mark.parametrize(("installed", "used"), [(["clang++"], "clang++"), (["g++", "clang++"], "g++"), ([], "c++")])
def test_setup_uses_a_compiler_that_is_installed(installed: list[str], used: str, tmp_path: Path) -> None:
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    code = (
        "import setuptools, sysconfig; setuptools.setup = lambda **_: None; import setup;"
        "sysconfig.get_config_var = lambda name: 'python-g++ -pthread'; print(setup.default_compiler())"
    )
    assert done(run([sys.executable, "-c", code], ROOT, PATH=str(tmp_path))) == used
