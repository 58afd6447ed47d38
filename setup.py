"""Build of the C++ core and of its unit tests; all metadata is in pyproject.toml.

    python setup.py build_ext --inplace              build the extension clearhead.runtime._core in its package folder
    python setup.py native_tests --sanitize          run the C++ unit tests with sanitizers (address, undefined)
    python setup.py native_tests --cxx=... --runner=...   build them with a cross compiler, run them in an emulator
    python setup.py native_benchmark                 build build/native/benchmark/kernels for benchmarks/kernels.py

kernels.cpp is compiled once per instruction set, other files once for the baseline CPU of the architecture.
Environment: CXX, CXXFLAGS, LDFLAGS; CLEARHEAD_REQUIRE_CORE=1 or CI: a failing build is an error (otherwise clearhead is
installed without the core and uses torch); CLEARHEAD_WERROR=1: warnings are errors.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

NATIVE = Path("src/clearhead/runtime/native")
TESTS = Path("tests/native")
BENCHMARK = Path("benchmarks/native")
BUILD = Path("build/native")
BINDING = NATIVE / "module.cpp"
KERNELS = NATIVE / "kernels.cpp"
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
ISA_FLAGS = {
    "avx512vnni": [*AVX512, "-mavx512vnni"],
    "avx512": AVX512,
    "avx2": ["-mavx2", "-mfma"],
    "generic": [],
}
# Results must not depend on the compiler: no fast-math, and multiply-adds are fused only where the source requests it.
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-fno-fast-math", "-fno-math-errno"]
FLAGS += ["-ffp-contract=off"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
REQUIRED = os.environ.get("CLEARHEAD_REQUIRE_CORE") == "1" or bool(os.environ.get("CI"))
PYTHON_FLAGS = ["-DPy_LIMITED_API=0x030B0000", f"-I{sysconfig.get_path('include')}"]


def default_compiler() -> str:
    """Return the first of Python's own compiler, c++, g++ and clang++ that is installed; c++ if none is."""
    candidates = [sysconfig.get_config_var("CXX") or "c++", "c++", "g++", "clang++"]
    return next((command for command in candidates if shutil.which(shlex.split(command)[0])), "c++")


class Compiler:
    """C++ compiler with a folder of objects, which are reused while source, headers and command are unchanged."""

    def __init__(self, folder: Path, command: str = "", flags: list[str] | None = None) -> None:
        self.command = shlex.split(command or os.environ.get("CXX") or default_compiler())
        self.flags = [*shlex.split(os.environ.get("CXXFLAGS", "")), *FLAGS, *(flags or [])]
        self.flags += WARNINGS if os.environ.get("CLEARHEAD_WERROR") == "1" else []
        self.folder = folder
        macros = self._run("-dM", "-E", "-x", "c++", os.devnull)
        self.isas = list(ISA_FLAGS) if "__x86_64__" in macros else ["generic"]
        # GCC reports false positives in its AVX-512 headers.
        self.kernel_flags = [] if "__clang__" in macros else ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]

    def _run(self, *arguments: str) -> str:
        """Return the compiler's standard output; raise CompileError with its standard error if it fails."""
        try:
            done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False)
        except OSError as error:
            raise CompileError(f"{self.command[0]}: {error.strerror}") from error
        if done.returncode:
            raise CompileError(done.stderr.strip() or f"{self.command[0]}: exit code {done.returncode}")
        return done.stdout

    def _compile(self, source: Path, name: str, flags: list[str]) -> Path:
        """Return the object of a source, recompiling it if it is outdated."""
        target = self.folder / f"{name}.o"
        arguments = [*self.flags, f"-I{NATIVE}", *flags, "-c", str(source), "-o", str(target)]
        command = shlex.join([*self.command, *arguments])
        stamp = target.with_suffix(".command")
        if target.exists() and stamp.exists() and stamp.read_text() == command:
            inputs = [source, *NATIVE.glob("*.h"), *source.parent.glob("*.h")]
            if all(path.stat().st_mtime < target.stat().st_mtime for path in inputs):
                return target
        stamp.unlink(missing_ok=True)
        self._run(*arguments)
        stamp.write_text(command)
        return target

    def compile_all(self, sources: list[Path], flags: list[str], more_kernels: Sequence[Path] = ()) -> list[Path]:
        """Return the objects of the kernels for each instruction set, and of the other sources."""
        self.folder.mkdir(parents=True, exist_ok=True)
        jobs = [
            (kernels, f"{kernels.stem}.{isa}", [f"-DKERNELS_NAMESPACE={isa}", *ISA_FLAGS[isa], *self.kernel_flags])
            for kernels in (KERNELS, *more_kernels)
            for isa in self.isas
        ]
        jobs += [(source, source.stem, flags) for source in sources]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda job: self._compile(*job), jobs))

    def link(self, objects: list[Path], target: Path, flags: list[str]) -> None:
        """Link objects to an executable or, with the corresponding flags, to a shared library."""
        target.parent.mkdir(parents=True, exist_ok=True)
        # Replace the file instead of rewriting it: a process may have loaded the old one.
        target.unlink(missing_ok=True)
        libraries = shlex.split(os.environ.get("LDFLAGS", ""))
        self._run(*self.flags, *map(str, objects), "-o", str(target), *flags, *libraries)


def portable_sources() -> list[Path]:
    """Return the sources that are compiled once and do not include Python.h."""
    return sorted({*NATIVE.glob("*.cpp")} - {KERNELS, BINDING})


class BuildCore(build_ext):
    """Build the extension, or print why clearhead is installed without it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)
        try:
            if sys.platform == "win32":
                raise CompileError("the core needs g++ or clang++ on Linux or macOS")
            compiler = Compiler(BUILD / "core")
            objects = compiler.compile_all([*portable_sources(), BINDING], PYTHON_FLAGS)
            shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
            compiler.link(objects, target, shared)
        except CompileError as error:
            if REQUIRED:
                raise
            reason = str(error).splitlines()[0]
            print(f"clearhead is installed without its C++ core ({reason}) and uses torch.", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        """Copy the new extension to its package folder, and remove the old one in any case."""
        (NATIVE.parent / Path(self.get_ext_filename(CORE.name)).name).unlink(missing_ok=True)
        super().copy_extensions_to_source()


class NamedWheel(bdist_wheel):
    """Wheel with a name that depends on its content: cp311-abi3 with the core, py3-none-any without."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        build = self.get_finalized_command("build_ext")
        folder = Path(self.get_finalized_command("build").build_lib)
        if (folder / build.get_ext_filename(CORE.name)).exists():
            return super().get_tag()
        return "py3", "none", "any"


class NativeTests(Command):
    """Build and run the C++ unit tests in tests/native."""

    description = "build and run the C++ unit tests"
    user_options: ClassVar = [
        ("sanitize", None, "build with the address and undefined-behavior sanitizers"),
        ("cxx=", None, "C++ compiler"),
        ("runner=", None, "command that runs the executable, such as an emulator"),
    ]
    boolean_options: ClassVar = ["sanitize"]

    def initialize_options(self) -> None:
        self.sanitize = False
        self.cxx = ""
        self.runner = ""

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        name = "sanitize" if self.sanitize else Path(self.cxx).name or "tests"
        compiler = Compiler(BUILD / name, self.cxx, SANITIZE if self.sanitize else [])
        objects = compiler.compile_all([*portable_sources(), *sorted(TESTS.glob("*.cpp"))], [f"-I{TESTS}"])
        program = BUILD / name / "run_tests"
        compiler.link(objects, program, [])
        done = subprocess.run([*shlex.split(self.runner), str(program)], check=False)
        if done.returncode:
            sys.exit(f"the C++ unit tests failed ({program}, exit code {done.returncode})")


class NativeBenchmark(Command):
    """Build the benchmark of the kernels in benchmarks/native."""

    description = "build the benchmark of the kernels"
    user_options: ClassVar = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        compiler = Compiler(BUILD / "benchmark")
        peak = BENCHMARK / "peak.cpp"
        sources = sorted({*BENCHMARK.glob("*.cpp")} - {peak})
        each_isa = "-DEACH_ISA(use)=" + " ".join(f"use({isa})" for isa in compiler.isas)
        objects = compiler.compile_all([*portable_sources(), *sources], [each_isa], [peak])
        compiler.link(objects, BUILD / "benchmark" / "kernels", [])


CORE = Extension(
    "clearhead.runtime._core",
    sources=[str(path) for path in [*portable_sources(), BINDING, KERNELS]],
    depends=[str(path) for path in sorted(NATIVE.glob("*.h"))],
    py_limited_api=True,
    optional=not REQUIRED,
)

setup(
    ext_modules=[CORE],
    cmdclass={
        "build_ext": BuildCore,
        "bdist_wheel": NamedWheel,
        "native_tests": NativeTests,
        "native_benchmark": NativeBenchmark,
    },
)
