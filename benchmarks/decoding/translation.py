"""Translation speed of the native engine and CTranslate2 on the same trained models, alternating.

Both translate the validation set of Multi30k with natural sentence ends, from tokens to tokens: ids for the native
engine, strings for CTranslate2, whose interface has no other format. For CTranslate2, the fastest setting is selected
on a part of the set; the native engine selects its batches automatically. Token counts include end tokens.
"""

import dataclasses
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import Processes
from benchmarks.harness.protocol import Setting
from benchmarks.harness.record import cpu_name, log
from benchmarks.report import Result

MODULE = "translators"
CONTESTANTS = ("native", "ctranslate2")
BATCHES = [("examples", 16), ("examples", 32), ("examples", 64), ("examples", 128), ("tokens", 1024), ("tokens", 4096)]

# (shape, compute type, is single, beam) -> minimum ratio on a CPU with full-width AVX-512 (such as Zen 5), and with
# half-width AVX-512 (Zen 4)
TARGETS: dict[tuple[str, str, bool, int], tuple[float, float]] = {
    ("tiny", "float32", False, 1): (2.0, 1.6), ("tiny", "float32", False, 4): (2.0, 1.7),
    ("small", "float32", False, 1): (1.5, 1.15), ("small", "float32", False, 4): (1.5, 1.2),
    ("wide", "float32", False, 1): (1.3, 1.1), ("wide", "float32", False, 4): (1.25, 1.1),
    ("tiny", "float32", True, 1): (1.6, 1.6), ("tiny", "float32", True, 4): (2.2, 1.6),
    ("small", "float32", True, 1): (1.6, 2.5), ("small", "float32", True, 4): (1.8, 2.4),
    ("wide", "float32", True, 1): (1.6, 1.9), ("wide", "float32", True, 4): (1.6, 2.2),
    ("tiny", "int8", False, 1): (2.8, 2.4), ("tiny", "int8", False, 4): (2.9, 2.5),
    ("small", "int8", False, 1): (2.1, 1.8), ("small", "int8", False, 4): (2.3, 2.0),
    ("wide", "int8", False, 1): (1.6, 1.3), ("wide", "int8", False, 4): (1.6, 1.25),
    ("tiny", "int8", True, 1): (4.0, 3.8), ("tiny", "int8", True, 4): (4.0, 3.6),
    ("small", "int8", True, 1): (3.2, 3.0), ("small", "int8", True, 4): (3.3, 3.0),
    ("wide", "int8", True, 1): (3.7, 3.8), ("wide", "int8", True, 4): (3.4, 3.3),
}  # fmt: skip
OWN_THREADS = {"OMP_NUM_THREADS": None, "MKL_NUM_THREADS": None}
"""Contestants set their own number of threads. With MKL_NUM_THREADS=2, each worker of CTranslate2 would use two threads
for every product, up to three times slower."""
AVX2 = {
    "CLEARHEAD_ISA": "avx2",
    "CT2_FORCE_CPU_ISA": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""CTranslate2's variable restricts only its own kernels, not the matrix products of oneDNN and MKL."""
AVX2_TARGET = 1.5
SHORTLIST_TARGET = 1.3
INTERFACE_TOKENS = 13
"""Tokens per sentence of the interface model, the mean length of a translation of Multi30k."""
FILE_TARGETS = {"tiny": 1.6, "wide": 1.2}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Comparison in one row of the table."""

    shape: str
    compute_type: str
    is_single: bool
    beam: int

    @property
    def name(self) -> str:
        """Return the name in the table."""
        mode = "one by one, 1 thread" if self.is_single else "whole set"
        return f"{self.shape}, {self.compute_type}, {mode}, beam {self.beam}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Number of rounds, and measured part of the set (every n-th sentence)."""

    rounds: int = 3
    every: int = 1
    every_single: int = 10
    every_trial: int = 4
    min_seconds: float = 1.5
    """Short passes are repeated until a measurement takes this long."""


QUICK = Plan(rounds=1, every=16, every_single=128, every_trial=64, min_seconds=0)


class Translation:
    """Comparison of one shape, with both contestants in separate processes that run during all rounds."""

    def __init__(self, bundle: Path, lines: Path, compute_type: str, plan: Plan, cores: int) -> None:
        self.bundle, self.lines, self.compute_type = bundle, lines, compute_type
        self.plan, self.cores = plan, cores
        self.rows: list[dict[str, Any]] = []

    def run(self, environment: Mapping[str, str], suffix: str, cells: list[Cell], targets: dict[Cell, float]) -> None:
        """Measure cells, alternating the contestants, and add their rows."""
        with ExitStack() as stack:
            groups = {
                kind: stack.enter_context(
                    Processes(MODULE, Setting(threads=self.cores), {**OWN_THREADS, **environment})
                )
                for kind in CONTESTANTS
            }
            for kind, group in groups.items():
                self._open(group, kind)
            for cell in cells:
                settings = {
                    "native": {"threads": 1 if cell.is_single else self.cores},
                    "ctranslate2": self._best_setting(groups["ctranslate2"], cell),
                }
                results: dict[str, list[Any]] = {kind: [] for kind in CONTESTANTS}
                for kind, group in groups.items():
                    group.ask("configure", setting=settings[kind])
                    self._translate(group, cell, 32)  # warm up
                for _ in range(self.plan.rounds):
                    for kind, group in groups.items():
                        every = self.plan.every_single if cell.is_single else self.plan.every
                        results[kind].append(dataclasses.asdict(self._measure(group, cell, every)))
                self._add(cell.name + suffix, results, describe(settings["ctranslate2"]), targets.get(cell))

    def _translate(self, group: Processes, cell: Cell, every: int, min_seconds: float = 0) -> Result:
        fields = {"beam": cell.beam, "every": every, "is_single": cell.is_single, "min_seconds": min_seconds}
        answer = group.ask("translate", **fields)[0]
        return Result(answer["tokens"], answer["seconds"])

    def _measure(self, group: Processes, cell: Cell, every: int) -> Result:
        return self._translate(group, cell, every, self.plan.min_seconds)

    def _best_setting(self, group: Processes, cell: Cell) -> dict[str, Any]:
        """Return the fastest threads and batches of CTranslate2."""
        single = {"inter_threads": 1, "intra_threads": 1, "batch_type": "examples", "max_batch_size": 1}
        if cell.is_single:
            return single
        workers = [{"inter_threads": self.cores, "intra_threads": 1}]
        workers += [{"inter_threads": 1, "intra_threads": self.cores}] * (self.cores > 1)
        trials: list[tuple[float, dict[str, Any]]] = []

        def measure(setting: dict[str, Any]) -> None:
            group.ask("configure", setting=setting)
            self._translate(group, cell, 64)
            speed = self._translate(group, cell, self.plan.every_trial, self.plan.min_seconds / 4).speed
            trials.append((speed, setting))

        for batch_type, size in BATCHES:
            measure({**workers[0], "batch_type": batch_type, "max_batch_size": size})
        best = max(trials, key=lambda each: each[0])[1]
        for other in workers[1:]:
            measure({**best, **other})
        return max(trials, key=lambda each: each[0])[1]

    def _add(self, name: str, results: dict[str, list[Any]], setting: str, target: float | None) -> None:
        self.rows.append({"name": name, "results": results, "setting": setting, "target": target})
        ours, theirs = (sum(one["tokens"] / one["seconds"] for one in results[kind]) for kind in CONTESTANTS)
        log(f"{name}: {ours / theirs:.2f} times CTranslate2 (target {target or '-'}), {setting}")

    def run_files(self, beams: list[int], target: float) -> None:
        """Measure from text file to text file, with the same tokenizer."""
        with ExitStack() as stack:
            groups = {
                kind: stack.enter_context(Processes(MODULE, Setting(threads=self.cores), OWN_THREADS))
                for kind in CONTESTANTS
            }
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            for kind, group in groups.items():
                self._open(group, kind)
            for beam in beams:
                setting = self._best_setting(
                    groups["ctranslate2"], Cell(self.bundle.name, self.compute_type, False, beam)
                )
                groups["native"].ask("configure", setting={"threads": self.cores})
                groups["ctranslate2"].ask("configure", setting=setting)
                results: dict[str, list[Any]] = {kind: [] for kind in CONTESTANTS}
                for number in range(self.plan.rounds + 1):  # the first one is a warm-up
                    for kind, group in groups.items():
                        seconds = self.plan.min_seconds if number else 0
                        output = f"{folder}/{kind}.txt"
                        [answer] = group.ask("translate_file", beam=beam, output=output, min_seconds=seconds)
                        if number:
                            results[kind].append({"tokens": answer["tokens"], "seconds": answer["seconds"]})
                name = f"{self.bundle.name}, {self.compute_type}, text file to text file, beam {beam}"
                self._add(name, results, describe(setting), target)

    def run_interface(self) -> dict[str, Any]:
        """Return the microseconds per sentence of a model of minimal size, on one thread."""
        setting = {"threads": 1, "inter_threads": 1, "intra_threads": 1, "batch_type": "examples", "max_batch_size": 64,
                   "max_length": INTERFACE_TOKENS}  # fmt: skip
        cell, times = Cell("interface", self.compute_type, False, 1), dict[str, list[float]]()
        with ExitStack() as stack:
            groups = {
                kind: stack.enter_context(Processes(MODULE, Setting(threads=1), OWN_THREADS)) for kind in CONTESTANTS
            }
            for kind, group in groups.items():
                self._open(group, kind)
                group.ask("configure", setting=setting)
                self._translate(group, cell, 32)  # warm up
                times[kind] = []
            for _ in range(self.plan.rounds):
                for kind, group in groups.items():
                    [answer] = group.ask("translate", beam=1, every=1, is_single=False, min_seconds=1)
                    times[kind].append(1e6 * answer["seconds"] / answer["sentences"])
        return {"tokens": INTERFACE_TOKENS, **{kind: statistics.median(each) for kind, each in times.items()}}

    def _open(self, group: Processes, kind: str) -> None:
        group.ask("open", kind=kind, bundle=str(self.bundle), lines=str(self.lines), compute_type=self.compute_type)

    def run_shortlist(self, shortlist: Path, beam: int) -> dict[str, Any]:
        """Return the speed of the native engine with and without a shortlist, alternating."""
        settings = {"with": {"threads": self.cores, "shortlist": str(shortlist)}, "without": {"threads": self.cores}}
        results: dict[str, list[Any]] = {name: [] for name in settings}
        cell = Cell(self.bundle.name, self.compute_type, False, beam)
        with ExitStack() as stack:
            groups = {
                name: stack.enter_context(Processes(MODULE, Setting(threads=self.cores), OWN_THREADS))
                for name in settings
            }
            for name, group in groups.items():
                self._open(group, "native")
                group.ask("configure", setting=settings[name])
                self._translate(group, cell, 32)  # warm up
            for _ in range(self.plan.rounds):
                for name, group in groups.items():
                    results[name].append(dataclasses.asdict(self._measure(group, cell, self.plan.every)))
        return {"name": f"{cell.name}, shortlist of 50 per token", "results": results, "target": SHORTLIST_TARGET}


def target_of(cell: Cell) -> float:
    """Return the minimum ratio for this CPU, which depends on the width of its AVX-512 units."""
    full_width, half_width = TARGETS[cell.shape, cell.compute_type, cell.is_single, cell.beam]
    return half_width if "family 25 " in cpu_name() else full_width


def cells(shape: str, compute_type: str) -> Iterator[Cell]:
    """Yield the cells of the table for one shape and compute type."""
    for is_single in (False, True):
        for beam in (1, 4):
            yield Cell(shape, compute_type, is_single, beam)


def describe(setting: dict[str, Any]) -> str:
    """Return CTranslate2's setting as text."""
    inter, intra = setting["inter_threads"], setting["intra_threads"]
    return f"{inter} x {intra} threads, batch {setting['max_batch_size']} {setting['batch_type']}"
