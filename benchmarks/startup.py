"""Start-up time of the command line: CPU time of translating one line, and of each import, with budgets.

    python -m benchmarks.startup DIR

`DIR` is a translator that the native engine runs. The exit code is 1 if torch is imported or a budget is exceeded.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.record import require_core
from benchmarks.report import markdown_table

TEXT = b"hello\n"
TOTAL = 1.0  # seconds of CPU time
# Milliseconds of import time by package, about twice what 2 cores of an AVX-512 server take (2026).
BUDGETS = {"numpy": 150, "pydantic": 150, "tokenizers": 60, "typer": 60, "rich": 0, "sentencex": 20, "clearhead": 400}
OTHERS = 250
IMPORT_LINE = re.compile(r"^import time: +(\d+) \| +\d+ \| +([\w.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Startup:
    """Seconds of CPU time per run, and microseconds of imports by top-level package."""

    seconds: list[float]
    imports: Counter[str]


def measure(folder: Path, rounds: int) -> Startup:
    """Translate one line `rounds` times, and once more with `-X importtime`."""
    command = [sys.executable, "-m", "clearhead", "translate", str(folder)]
    seconds = [_cpu_seconds(command) for _ in range(rounds)]
    timed = [sys.executable, "-X", "importtime", *command[1:]]
    reported = subprocess.run(timed, input=TEXT, capture_output=True, check=True).stderr.decode()
    return Startup(seconds, sum_imports(reported))


def _cpu_seconds(command: list[str]) -> float:
    """Return the user and system time of one process."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(TEXT)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def sum_imports(report: str) -> Counter[str]:
    """Return the microseconds of `-X importtime` by top-level package, modules of a package together."""
    totals: Counter[str] = Counter()
    for microseconds, module in IMPORT_LINE.findall(report):
        totals[module.partition(".")[0].removeprefix("_") or module] += int(microseconds)
    return totals


def exceeded(startup: Startup) -> list[str]:
    """Return a sentence for each budget that is exceeded."""
    median, problems = statistics.median(startup.seconds), list[str]()
    if median > TOTAL:
        problems.append(f"{median:.2f} s of CPU time; the budget is {TOTAL:.2f} s")
    if "torch" in startup.imports:
        problems.append("torch is imported")
    rest = sum(startup.imports.values()) - sum(startup.imports[name] for name in BUDGETS)
    for name, spent, budget in (*((name, startup.imports[name], most) for name, most in BUDGETS.items()),
                                ("other packages", rest, OTHERS)):  # fmt: skip
        if spent / 1000 > budget:
            problems.append(f"{name}: {spent / 1000:.0f} ms of imports; the budget is {budget} ms")
    return problems


def render(startup: Startup) -> str:
    """Return the CPU time and the table of imports, slowest first."""
    times = ", ".join(f"{seconds:.2f}" for seconds in sorted(startup.seconds))
    slowest = startup.imports.most_common(15)
    rows = [[name, f"{spent / 1000:.1f}", str(BUDGETS.get(name, ""))] for name, spent in slowest]
    head = f"clearhead translate, one line: {statistics.median(startup.seconds):.2f} s of CPU time ({times})"
    table = markdown_table(["package", "ms", "budget, ms"], rows)
    return f"{head}\n\n{table}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="benchmarks.startup", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    require_core()
    startup = measure(options.folder, options.rounds)
    print(render(startup))
    problems = exceeded(startup)
    for problem in problems:
        print(f"over budget: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
