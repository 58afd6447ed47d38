"""`clearhead doctor`: whether this installation can run models, and what is missing."""

import importlib.util
import json
import os
import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from clearhead.cli.options import Json
from clearhead.engines.threads import num_threads
from clearhead.errors import ClearheadError, ConfigError, MissingPackageError
from clearhead.extras import DISTRIBUTIONS, EXTRAS, install_command
from clearhead.files import user_cache_folder

app = typer.Typer(rich_markup_mode=None, add_completion=False)

# Flags of /proc/cpuinfo that select the kernels of clearhead's C++ core and of torch's bfloat16 matrix products.
CPU_FLAGS = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_bf16",
    "asimd", "asimddp", "bf16",
)  # fmt: skip
# Memory limit of a container: cgroup version 2, then version 1.
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
LABEL_WIDTH = 10


@app.command()
def doctor(as_json: Json = False) -> None:
    """Report what is installed, which engine runs models by default, and what is missing. torch is not imported.

    The exit code is 0 if clearhead can run models and 2 if it cannot.

    Example: clearhead doctor
    """
    report = examine()
    lines = [json.dumps(report.to_json())] if as_json else report.lines()
    for line in lines:
        print(_encodable(line))
    if report.problems:
        raise report.problems[0]


@dataclass(frozen=True)
class CPU:
    """The processor and the cores that this process may use."""

    model: str
    cores: int
    usable_cores: int
    flags: tuple[str, ...]
    """Instruction sets among CPU_FLAGS; empty if the system does not list them."""

    def __str__(self) -> str:
        cores = f"{self.usable_cores} of {_count(self.cores, 'core')} usable by this process"
        return "; ".join([self.model, cores, " ".join(self.flags) or "instruction sets are not listed by this system"])


@dataclass(frozen=True)
class MemoryInfo:
    """Main memory in bytes; None if the system does not report it."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None
    """Limit of the container, if it is lower than the total."""

    def __str__(self) -> str:
        total = "unknown" if self.total_bytes is None else _size(self.total_bytes)
        available = "" if self.available_bytes is None else f", {_size(self.available_bytes)} available"
        limit = "" if self.limit_bytes is None else f"; the container is limited to {_size(self.limit_bytes)}"
        return f"{total}{available}{limit}"


@dataclass(frozen=True)
class Core:
    """The compiled C++ core."""

    is_available: bool
    instruction_set: str | None
    """Instruction set of the kernels in use."""
    supported: tuple[str, ...]
    """Compiled instruction sets that this CPU supports, fastest first."""
    problem: str
    """Why the core or the chosen instruction set cannot be used; empty if both can."""

    def __str__(self) -> str:
        if not self.is_available:
            return f"missing. {self.problem}"
        return self.problem or f"present, uses {self.instruction_set} (supported: {', '.join(self.supported)})"


@dataclass(frozen=True)
class EngineInfo:
    """The engine that runs a Transformer by default."""

    name: str
    """native, torch or none."""
    reason: str
    """Why it is not the native engine; empty if it is."""
    threads: int
    """Number of threads, unless --threads sets another one."""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.name}{reason}, {_count(self.threads, 'thread')}"


@dataclass(frozen=True)
class Torch:
    """The installed torch package, described without importing it."""

    version: str
    threads: int
    """Upper bound of its default number of threads; it may use fewer, such as one per physical core."""

    def __str__(self) -> str:
        return f"{self.version}, at most {_count(self.threads, 'thread')}"


@dataclass(frozen=True)
class Extra:
    """The packages of one optional extra, by their names on PyPI."""

    installed: dict[str, str]
    """Version of each package."""
    missing: tuple[str, ...]
    command: str
    """Command that installs the extra."""

    def __str__(self) -> str:
        if self.missing:
            return f"missing {', '.join(self.missing)}: {self.command}"
        return f"installed: {_versions(self.installed)}"


@dataclass(frozen=True)
class Cache:
    """The folder for prepared corpora."""

    folder: str
    used_bytes: int
    free_bytes: int
    is_writable: bool

    def __str__(self) -> str:
        access = "" if self.is_writable else "; this user cannot write there"
        return f"{self.folder}: {_size(self.used_bytes)} used, {_size(self.free_bytes)} free{access}"


@dataclass(frozen=True)
class Terminal:
    """Encoding of the output."""

    encoding: str
    is_terminal: bool
    """Whether standard output is a terminal."""

    def __str__(self) -> str:
        name = self.encoding.lower().replace("_", "-")
        advice = "" if name in ("utf-8", "utf8") else "; some characters cannot be printed, set PYTHONUTF8=1"
        return f"standard output is {'' if self.is_terminal else 'not '}a terminal, encoding {name}{advice}"


@dataclass(frozen=True)
class Report:
    """The result of the examination; `problems` are the reasons why no model can be run."""

    clearhead: dict[str, str]
    python: dict[str, str]
    platform: str
    cpu: CPU
    memory: MemoryInfo
    required: dict[str, str | None]
    """Version of each required package; None if it is missing."""
    core: Core | None
    """None if required packages are missing; so is `engine`."""
    engine: EngineInfo | None
    torch: Torch | None
    """None if it is not installed."""
    extras: dict[str, Extra]
    cache: Cache
    terminal: Terminal
    problems: list[ClearheadError] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {**asdict(self), "problems": [str(each) for each in self.problems]}

    def lines(self) -> list[str]:
        """Return one line per fact."""
        missing = [name for name, version in self.required.items() if version is None]
        packages = _versions({name: version for name, version in self.required.items() if version is not None})
        facts: dict[str, object] = {
            "clearhead": "{version} in {folder}".format(**self.clearhead),
            "Python": "{version} ({executable})".format(**self.python),
            "platform": self.platform,
            "CPU": self.cpu,
            "memory": self.memory,
            "packages": packages + (f"; missing: {', '.join(missing)}" if missing else ""),
            "C++ core": self.core or "not examined, since required packages are missing",
            "engine": self.engine or "none",
            "torch": self.torch or f"not installed: {install_command(EXTRAS['torch'])}",
            "cache": self.cache,
            "output": self.terminal,
            "extras": "",
        }
        lines = [f"{label:<{LABEL_WIDTH}} {fact}".rstrip() for label, fact in facts.items()]
        width = max(map(len, self.extras))
        return [*lines, *(f"  {name:<{width}} {extra}" for name, extra in self.extras.items())]


def examine() -> Report:
    """Return a report on this installation. Packages are located, not imported, unless the native engine needs them."""
    required = {name: _version(name, name) for name in _required_packages()}
    torch = _version("torch", "torch")
    problems: list[ClearheadError] = []
    core = engine = None
    if missing := [name for name, version in required.items() if version is None]:
        command = f"pip install {' '.join(missing)}"
        problems.append(MissingPackageError(f"required packages are missing: {', '.join(missing)}; {command}"))
    else:
        core, engine, problems = _examine_engine()
    return Report(
        clearhead={"version": _distribution_version("clearhead"), "folder": str(Path(__file__).parents[1])},
        python={"version": platform.python_version(), "executable": sys.executable},
        platform=platform.platform(),
        cpu=_cpu(),
        memory=_memory(),
        required=required,
        core=core,
        engine=engine,
        torch=None if torch is None else Torch(torch, num_threads()),
        extras=_extras(),
        cache=_cache(user_cache_folder()),
        terminal=Terminal(sys.stdout.encoding or "unknown", sys.stdout.isatty()),
        problems=problems,
    )


def _examine_engine() -> tuple[Core, EngineInfo, list[ClearheadError]]:
    """Return the core, the default engine, and the reasons why they cannot run models."""
    from clearhead.config import ModelConfig
    from clearhead.engines.engine import choose_engine
    from clearhead.runtime.availability import instruction_set, why_unavailable

    problems: list[ClearheadError] = []
    choice = choose_engine(ModelConfig())
    if problem := choice.problem():
        problems.append(MissingPackageError(f"no model can be run: {problem}"))
    engine = EngineInfo(**choice.to_json(), threads=num_threads())
    if problem := why_unavailable():
        return Core(False, None, (), problem), engine, problems
    from clearhead.runtime import _core

    supported = tuple(name for name, is_supported in _core.instruction_sets().items() if is_supported)
    try:
        core = Core(True, instruction_set(), supported, "")
    except ConfigError as error:
        core = Core(True, None, supported, str(error))
        problems.append(error)
    return core, engine, problems


def _required_packages() -> list[str]:
    """Return the packages that clearhead requires without any extra; empty if it is not installed as a package."""
    try:
        requirements = metadata.requires("clearhead") or []
    except metadata.PackageNotFoundError:
        return []
    return [re.split(r"[^\w.-]", each)[0] for each in requirements if "extra ==" not in each]


def _extras() -> dict[str, Extra]:
    """Return each extra with its packages."""
    found: dict[str, Extra] = {}
    for extra in dict.fromkeys(EXTRAS.values()):
        names = {module: DISTRIBUTIONS.get(module, module) for module, owner in EXTRAS.items() if owner == extra}
        versions = {name: _version(module, name) for module, name in names.items()}
        installed = {name: version for name, version in versions.items() if version is not None}
        missing = tuple(name for name, version in versions.items() if version is None)
        found[extra] = Extra(installed, missing, install_command(extra))
    return found


def _version(module: str, distribution: str) -> str | None:
    """Return the version of a package, "unknown" if it has none, or None if it cannot be imported."""
    is_found = sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None
    return _distribution_version(distribution) if is_found else None


def _distribution_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _cpu() -> CPU:
    """Return the processor; Linux lists its model and flags in /proc/cpuinfo."""
    info = dict[str, str]()
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        info.setdefault(name.strip(), value.strip())
    flags = set((info.get("flags") or info.get("Features", "")).split())
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    model = info.get("model name") or platform.processor() or platform.machine()
    return CPU(model, cores, usable, tuple(flag for flag in CPU_FLAGS if flag in flags))


def _memory() -> MemoryInfo:
    """Return the main memory."""
    info = dict(re.findall(r"^(\w+): +(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    total, available = (int(info[name]) * 1024 if name in info else None for name in ("MemTotal", "MemAvailable"))
    if total is None and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for path in MEMORY_LIMITS if (text := _read(path).strip()).isdecimal()]
    limit = min(limits, default=None)
    return MemoryInfo(total, available, limit if limit is not None and total is not None and limit < total else None)


def _cache(folder: Path) -> Cache:
    """Return the size of the cache folder and the free space of its disk; it is not created if it does not exist."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    used = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                used += (Path(path) / name).lstat().st_size
            except FileNotFoundError:  # a training has just removed it
                continue
    is_writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return Cache(str(folder), used, shutil.disk_usage(existing).free, is_writable)


def _read(path: str) -> str:
    """Return the text of a system file; empty if this system does not have it."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _encodable(line: str) -> str:
    """Return the line with escapes for characters that standard output cannot encode, such as those of a folder."""
    encoding = sys.stdout.encoding or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)
