"""What each benchmark of speed does around its measurements: options, a look at the load, the record it leaves."""

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

import torch

from benchmarks.core import require_core
from benchmarks.group import ROOT


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def check_load(cores: int) -> float:
    """The machine's load before anything starts; more than a little makes every number below worthless."""
    load = os.getloadavg()[0]
    if load > 0.25 * cores:
        say(f"warning: load {load:.1f} on {cores} cores: something else is running, do not trust the numbers")
    return load


def cpu_name() -> str:
    """Return name, family and model of the CPU; empty where /proc/cpuinfo does not exist."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", text.partition("\n\n")[0], re.MULTILINE))
    if not fields:
        return ""
    return f"{fields.get('model name', '')}, family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": platform.machine(),
        "cpu": cpu_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def parser_of(name: str, about: str, out: str) -> argparse.ArgumentParser:
    """The options of all benchmarks; `out` names a folder below benchmarks/out."""
    parser = argparse.ArgumentParser(prog=f"benchmarks.{name}", description=about)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train.en, train.de, val.en, val.de (or .gz)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out" / out, help="where results go")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="cores that everybody may use")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument(
        "--quick", action="store_true", help="only see whether everything runs: the numbers mean nothing"
    )
    return parser


class Record:
    """One run, from now on: notes when it began and how loaded the machine was, and keeps what it finds."""

    def __init__(self, benchmark: str, options: argparse.Namespace, plan: Any) -> None:
        require_core()
        self.benchmark, self.options, self.plan = benchmark, options, plan
        options.out.mkdir(parents=True, exist_ok=True)
        self.began, self.load = datetime.now().astimezone(), check_load(options.cores)
        self._clock = time.monotonic()

    def keep(self, **found: Any) -> dict[str, Any]:
        """The record, which is written to a file of its own too."""
        options = self.options
        record = {
            "benchmark": self.benchmark,
            "date": self.began.isoformat(timespec="minutes"),
            "minutes": round((time.monotonic() - self._clock) / 60, 1),
            "machine": {**machine(), "cores": options.cores, "load_before": self.load},
            "is_quick": options.quick,
            "plan": dataclasses.asdict(self.plan),
            **found,
        }
        path = options.out / f"{self.began:%Y-%m-%d-%H%M}{'-quick' if options.quick else ''}.json"
        path.write_text(json.dumps(record, indent=1))
        say(f"raw numbers: {path}")
        return record
