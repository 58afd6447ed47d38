"""Common parts of speed benchmarks: options, checks of the machine, and the record of a run."""

import argparse
import dataclasses
import json
import os
import platform
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import ROOT
from clearhead.runtime import why_unavailable


def require_core() -> None:
    """Exit with a message if the C++ core is unavailable: a benchmark would measure the torch engine instead."""
    if problem := why_unavailable():
        raise SystemExit(f"benchmarks need the C++ core: {problem}")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def warn_about_load(cores: int) -> float:
    """Return the load of the machine; print a warning if other programs are running."""
    load = os.getloadavg()[0]
    if load > 0.25 * cores:
        log(f"warning: load {load:.1f} on {cores} cores: other programs are running, the results are unreliable")
    return load


def cpu_name() -> str:
    """Return name, family and model of the CPU, "" if /proc/cpuinfo does not exist."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", text.partition("\n\n")[0], re.MULTILINE))
    if not fields:
        return ""
    return f"{fields.get('model name', '')}, family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"


def machine() -> dict[str, Any]:
    """Return the properties of the machine that the figures depend on."""
    import torch

    return {
        "processor": platform.machine(),
        "cpu": cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def create_parser(name: str, about: str, out: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks; `out` is a folder below benchmarks/out."""
    parser = argparse.ArgumentParser(prog=f"benchmarks.{name}", description=about)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train.en, train.de, val.en, val.de (or .gz)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out" / out, help="folder for the results")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="cores for each contestant")
    parser.add_argument("--rounds", type=int, help="number of rounds")
    parser.add_argument(
        "--quick", action="store_true", help="only check that everything runs; the numbers are meaningless"
    )
    return parser


class Record:
    """Record of one run: its start, the load of the machine, and its results."""

    def __init__(self, benchmark: str, options: argparse.Namespace, plan: Any) -> None:
        require_core()
        self.benchmark, self.options, self.plan = benchmark, options, plan
        options.out.mkdir(parents=True, exist_ok=True)
        self.began, self.load = datetime.now().astimezone(), warn_about_load(options.cores)
        self._clock = time.monotonic()

    def save(self, **results: Any) -> dict[str, Any]:
        """Write the record to a file and return it."""
        options = self.options
        record = {
            "benchmark": self.benchmark,
            "date": self.began.isoformat(timespec="minutes"),
            "minutes": round((time.monotonic() - self._clock) / 60, 1),
            "machine": {**machine(), "cores": options.cores, "load_before": self.load},
            "is_quick": options.quick,
            "plan": dataclasses.asdict(self.plan),
            **results,
        }
        path = options.out / f"{self.began:%Y-%m-%d-%H%M}{'-quick' if options.quick else ''}.json"
        path.write_text(json.dumps(record, indent=1))
        log(f"raw numbers: {path}")
        return record
