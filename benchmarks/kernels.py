"""Time of each stage of a decoding step in the native engine, next to the limits of one core (the roofline).

    python -m benchmarks.kernels                             prints the tables, in about a minute; `make bench-kernels`
    python -m benchmarks.kernels --write docs/runtime.md     also updates the table of that page

CLEARHEAD_ISA forces an instruction set. The C++ program in benchmarks/native measures; this module builds and runs it
and renders its output.

A matrix product takes at least the time of its multiply-adds at the measured peak, and at least the time to read its
weights at the measured bandwidth. The larger of both, divided by the measured time, is its share of the roofline. The
bandwidth is measured by repeatedly reading a buffer as large as all weights of the step, so it is that of the cache
that contains them, or of memory.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.record import require_core
from benchmarks.report import QUICK_NOTE, replace_section
from clearhead.config import ModelConfig
from clearhead.files import write_atomically
from clearhead.model.parameters import named_weights
from clearhead.model.transformer import Transformer
from clearhead.runtime import prepare

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "native" / "benchmark" / "kernels"
SECTION, COMMAND = "stages", 'make bench-kernels BENCH_ARGS="--write docs/runtime.md"'
SECONDS = 2.5  # for each of the 18 combinations of shape, type and rows
TYPES = ("float32", "int8")
ROWS = (1, 4, 24)  # the last is the batch of one thread, kRows in native/search.cpp
SETTING = "1 row: one sentence, beam 1; 4 rows: one sentence, beam 4; 24 rows: 6 sentences, beam 4"


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder."""

    name: str
    width: int
    inner: int
    heads: int
    layers: int
    vocabulary: int = 6000

    def __str__(self) -> str:
        return ":".join(map(str, vars(self).values()))


FILES = {
    "embed": "model.cpp", "norm": "normalization.h", "query, key, value product": "matmul.h", "cache": "kv_cache.h",
    "self-attention": "attention.h", "output product": "matmul.h", "cross-attention query product": "matmul.h",
    "cross-attention": "attention.h", "cross-attention output product": "matmul.h", "feed-forward": "matmul.h",
    "vocabulary product": "matmul.h", "softmax and candidates": "softmax.h",
}  # fmt: skip
SHAPES = {
    shape.name: shape
    for shape in (Shape("tiny", 128, 256, 4, 4), Shape("small", 256, 1024, 4, 3), Shape("wide", 512, 2048, 8, 6))
}


@dataclass(frozen=True)
class Stage:
    """Stage of a decoding step, summed over layers; multiply-adds and weight bytes are those of its matrix products."""

    name: str
    seconds: float
    multiply_adds: int
    bytes: int


@dataclass(frozen=True)
class Run:
    """Measurement of one shape, type and number of rows; `whole` is the time of a step without timers."""

    shape: str
    type: str
    rows: int
    steps: int
    bandwidth: float
    whole: float
    stages: list[Stage]

    @property
    def rest(self) -> float:
        """Return the seconds of the whole step that are not part of any stage."""
        return self.whole - sum(stage.seconds for stage in self.stages)

    def bounds(self, stage: Stage, peak: float) -> tuple[float, float]:
        """Return the minimum seconds for the multiply-adds of a stage, and for reading its weights."""
        return stage.multiply_adds / peak, stage.bytes / self.bandwidth

    def roofline_share(self, stage: Stage, peak: float) -> float | None:
        """Return the share of the roofline that a stage reaches; None if it has no matrix product."""
        bound = max(self.bounds(stage, peak))
        return bound / stage.seconds if bound and stage.seconds else None


@dataclass(frozen=True)
class Measurements:
    """Limits of the core, in multiply-adds and bytes per second, and all runs."""

    isa: str
    positions: int
    source_length: int
    peaks: dict[str, float]
    memory: float
    runs: list[Run]

    def runs_of(self, shape: str, kind: str) -> list[Run]:
        """Return the runs of a shape and type, ordered by the number of rows."""
        return [run for run in self.runs if (run.shape, run.type) == (shape, kind)]


def build() -> None:
    """Compile the program. Raises SystemExit with the compiler's message if that fails."""
    command = [sys.executable, "setup.py", "--quiet", "native_benchmark"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("building the benchmark of the kernels failed; see the compiler's message above")


def measure(shapes: Iterable[Shape], seconds: float) -> Measurements:
    """Run the program. Raises SystemExit with its message if it fails."""
    done = subprocess.run(
        [str(PROGRAM), str(seconds), *map(str, shapes)], capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"{PROGRAM} failed with exit code {done.returncode}")
    return parse(json.loads(done.stdout))


def parse(record: dict[str, Any]) -> Measurements:
    """Return the record of the program as dataclasses."""
    runs = [Run(**{**run, "stages": [Stage(**stage) for stage in run["stages"]]}) for run in record["runs"]]
    peaks = {kind: record[kind] for kind in TYPES}
    return Measurements(record["isa"], record["positions"], record["source_length"], peaks, record["memory"], runs)


def processor(info: str) -> str:
    """Return the name, family and model of the CPU from the text of /proc/cpuinfo."""
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", info, re.M))
    if len(fields) < 3:
        return "unknown CPU"
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def heading(measured: Measurements) -> str:
    """Return the CPU, the instruction set and its limits, in two lines."""
    path = Path("/proc/cpuinfo")
    info = path.read_text() if path.exists() else ""
    return (
        f"{date.today()}, {processor(info)}, instruction set {measured.isa}, one thread, medians.\n"
        f"Peak of independent multiply-adds: {2 * measured.peaks['float32'] / 1e9:.0f} GFLOP/s in float32, "
        f"{2 * measured.peaks['int8'] / 1e9:.0f} GOP/s in int8. Memory: {measured.memory / 1e9:.1f} GB/s."
    )


def render(measured: Measurements, is_quick: bool = False) -> str:
    """Return all tables as Markdown: one for each shape and type."""
    lengths = f"self-attention over {measured.positions} positions, cross-attention over {measured.source_length}"
    parts = [f"{heading(measured)}\n{SETTING}; {lengths}."]
    if is_quick:
        parts.append(QUICK_NOTE)
    for shape in dict.fromkeys(run.shape for run in measured.runs):
        for kind in TYPES:
            parts.append(_table(measured.runs_of(shape, kind), measured.peaks[kind]))
    return "\n\n".join(parts)


def _table(runs: list[Run], peak: float) -> str:
    first = runs[0]
    weights = sum(stage.bytes for stage in first.stages)
    title = f"**{first.shape}, {first.type}**: {_bytes(weights)} of weights per step"
    title += f", read at {first.bandwidth / 1e9:.1f} GB/s"
    unit = "GFLOP/s" if first.type == "float32" else "GOP/s"
    head = ["stage", "multiply-adds per row", "weights"]
    for run in runs:
        head += [f"{run.rows} row{'s' * (run.rows > 1)}, µs", "share", unit, "roofline"]
    rows = []
    for i, stage in enumerate(first.stages):
        cells = [stage.name, _count(stage.multiply_adds // first.rows), _bytes(stage.bytes)]
        for run in runs:
            cells += _cells(run, run.stages[i], peak)
        rows.append(cells)
    rows.append(["not explained", "", "", *(cell for run in runs for cell in (*_time(run.rest, run), "", ""))])
    rows.append(["whole step", "", "", *(cell for run in runs for cell in (*_time(run.whole, run), "", ""))])
    return f"{title}\n\n{_markdown(head, rows)}"


def _cells(run: Run, stage: Stage, peak: float) -> list[str]:
    share = run.roofline_share(stage, peak)
    if share is None:
        return [*_time(stage.seconds, run), "", ""]
    return [*_time(stage.seconds, run), f"{2 * stage.multiply_adds / stage.seconds / 1e9:,.0f}", f"{share:.0%}"]


def _time(seconds: float, run: Run) -> tuple[str, str]:
    return f"{seconds * 1e6:,.1f}", f"{seconds / run.whole:.1%}"


@dataclass(frozen=True)
class Overheads:
    """Seconds of the work before the decoding steps, in float32 on one thread."""

    prepare: float
    encode: float
    """For a source of `source_length` tokens."""


def measure_overheads(measured: Measurements, shape: Shape) -> Overheads:
    """Measure through the Python interface, with random weights."""
    torch.manual_seed(0)
    sizes = {"vocab_size": shape.vocabulary, "num_encoder_layers": shape.layers, "num_decoder_layers": shape.layers,
             "model_dim": shape.width, "feed_forward_dim": shape.inner, "num_heads": shape.heads}  # fmt: skip
    config = ModelConfig.model_validate(sizes)
    tensors = {name: each.detach().numpy() for name, each in named_weights(Transformer(config)).items()}
    model = prepare(config, tensors)
    source = [5] * measured.source_length
    return Overheads(
        _median_seconds(lambda: prepare(config, tensors), 20),
        _median_seconds(lambda: model.encode([source])),
    )


def _median_seconds(call: Callable[[], object], times: int = 200) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def page_table(measured: Measurements, shape: Shape, overheads: Overheads) -> str:
    """Return the table of docs/runtime.md: sizes of a shape, and its times in float32 with one and with most rows."""
    sizes = stage_sizes(shape, measured.positions, measured.source_length)
    runs = [run for run in measured.runs_of(shape.name, "float32") if run.rows in (ROWS[0], ROWS[-1])]
    head = ["stage", "file", "size: n rows x inputs x outputs", "weights"]
    for run in runs:
        head += [f"n = {run.rows}, µs", "share", "roofline"]
    rows = []
    for i, stage in enumerate(runs[0].stages):
        if not stage.seconds:  # quantization, without int8
            continue
        cells = [stage.name, f"`{FILES[stage.name]}`", sizes[stage.name], _bytes(stage.bytes)]
        for run in runs:
            cells += [*_time(run.stages[i].seconds, run), _roofline(run, run.stages[i], measured.peaks["float32"])]
        rows.append(cells)
    rows.append(["not explained", "", "", "", *(cell for run in runs for cell in (*_time(run.rest, run), ""))])
    weights = sum(stage.bytes for stage in runs[0].stages)
    total = ["whole step", "", "", _bytes(weights)]
    rows.append([*total, *(cell for run in runs for cell in (*_time(run.whole, run), ""))])
    before = (
        f"Around the steps: preparing the weights takes {overheads.prepare * 1e3:.1f} ms, encoding a source of "
        f"{measured.source_length} tokens {overheads.encode * 1e6:,.0f} µs."
    )
    return f"{heading(measured)}\n\n{_markdown(head, rows)}\n\n{before}"


def _roofline(run: Run, stage: Stage, peak: float) -> str:
    """Return the share of the roofline and the larger of the two bounds."""
    share = run.roofline_share(stage, peak)
    compute, read = run.bounds(stage, peak)
    return "" if share is None else f"{share:.0%} ({'products' if compute > read else 'weights'})"


def stage_sizes(shape: Shape, positions: int, source_length: int) -> dict[str, str]:
    """Return the size of the work of each stage, by its name."""
    width, inner, layers, head = shape.width, shape.inner, shape.layers, shape.width // shape.heads
    square = f"{layers} x (n x {width} x {width})"
    return {
        "embed": f"n x {width}",
        "norm": f"{3 * layers + 1} x (n x {width})",
        "query, key, value product": f"{layers} x (n x {width} x {3 * width})",
        "cache": f"{layers} x (n x {2 * width})",
        "self-attention": f"{layers} x (n x {shape.heads} heads x {positions} positions x {head})",
        "output product": square,
        "cross-attention query product": square,
        "cross-attention": f"{layers} x (n x {shape.heads} heads x {source_length} positions x {head})",
        "cross-attention output product": square,
        "feed-forward": f"{layers} x (n x {width} x {inner} + n x {inner} x {width})",
        "vocabulary product": f"n x {width} x {shape.vocabulary:,}",
        "softmax and candidates": f"n x {shape.vocabulary:,}",
    }


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---" if name in ("stage", "file") or "size" in name else "---:" for name in head]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def _bytes(count: int) -> str:
    if count < 1_000_000:
        return f"{count / 1e3:,.0f} kB" if count else ""
    return f"{count / 1e6:,.1f} MB"


def _count(count: int) -> str:
    return f"{count:,}" if count else ""


def main(arguments: list[str] | None = None) -> None:
    """Build, measure, print the tables and write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.kernels", description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="update the table in this page")
    parser.add_argument(
        "--quick", action="store_true", help="only check that everything runs; the numbers are meaningless"
    )
    options = parser.parse_args(arguments)
    require_core()
    if options.write and (options.quick or "tiny" not in options.shapes):
        parser.error("--write requires a complete run (without --quick) that includes shape tiny")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load {load:.1f}: other programs are running, the times are unreliable", file=sys.stderr)
    build()
    measured = measure([SHAPES[name] for name in options.shapes], 0 if options.quick else SECONDS)
    print(render(measured, options.quick))
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        overheads = measure_overheads(measured, SHAPES["tiny"])
        write_atomically(
            options.write, replace_section(page, SECTION, COMMAND, page_table(measured, SHAPES["tiny"], overheads))
        )


if __name__ == "__main__":
    main()
