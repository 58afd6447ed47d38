"""Training speed of this checkout relative to another one, in alternating pairs: `make bench-against BASELINE=FOLDER`.

FOLDER is a worktree of the older commit (`git worktree add FOLDER COMMIT`). Each side runs its own source and its own
`contestants/clearhead.py`, on the same batches. Both sides are started, warmed up and then timed alternately; the order
changes from pair to pair, and both are restarted several times. The result for each shape is the geometric mean of the
ratios new / old with its 95 % confidence interval.

`--tasks` measures `clearhead train` for other tasks in the same way, one run of each side per pair; their speed is in
updates per second according to metrics.jsonl, with the same batches on both sides.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scipy.stats import t as student_t  # type: ignore[import-untyped]

from benchmarks.harness.processes import ROOT, Processes
from benchmarks.harness.protocol import Setting
from benchmarks.harness.record import Record, create_parser, log
from benchmarks.report import QUICK_NOTE, machine_line, markdown_table
from benchmarks.train import SHAPES, Plan, Workload, measure_sgemm_peak, prepare

TASKS = ("classify", "tag", "mlm", "denoise")


@dataclasses.dataclass(frozen=True)
class PairPlan:
    """Number of measurements."""

    launches: int = 3
    pairs: int = 4
    """Per launch."""
    steps: int = 60
    """Updates per run of a task."""
    warmup: int = 10
    """Updates of these before timing starts."""


QUICK = PairPlan(launches=1, pairs=2, steps=8, warmup=2)


def confidence_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and its 95 % confidence interval (Student's t of their logarithms)."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    margin = float(student_t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - margin), math.exp(mean + margin)


def alternate(count: int, new: Callable[[], float], old: Callable[[], float]) -> list[tuple[float, float]]:
    """Return `count` pairs of measurements (new, old); the side measured first alternates."""
    pairs = []
    for number in range(count):
        if number % 2:
            old_speed = old()
            pairs.append((new(), old_speed))
        else:
            new_speed = new()
            pairs.append((new_speed, old()))
        log("new {:,.4g}, old {:,.4g} per second".format(*pairs[-1]))
    return pairs


def measure_shape(workload: Workload, baseline: Path, cores: int, plan: PairPlan) -> list[tuple[float, float]]:
    """Return target tokens per second of this checkout and of the baseline, in pairs."""
    pairs = []
    for launch in range(plan.launches):
        with ExitStack() as stack:
            groups = [
                stack.enter_context(Processes("clearhead", Setting(threads=cores), root=root))
                for root in (ROOT, baseline)
            ]
            tokens = 0
            for group in groups:
                group.start(workload.task, workload.data)
                group.ask("prepare", first=0, steps=workload.warmup)
                group.ask("train")
                tokens = group.ask("prepare", first=workload.warmup, steps=workload.steps)[0]["tokens"]
                group.ask("train")  # the timed batches: kernels for their shapes are compiled here

            def speed(group: Processes, tokens: int = tokens) -> float:
                return tokens / group.timed("train")[0]

            new, old = groups
            pairs += alternate(plan.pairs, lambda new=new: speed(new), lambda old=old: speed(old))  # type: ignore[misc]
        log(f"{workload.shape}: launch {launch + 1} of {plan.launches}: {describe(pairs)}")
    return pairs


def measure_task(task: str, files: Path, baseline: Path, cores: int, plan: PairPlan) -> list[tuple[float, float]]:
    """Return updates per second of `clearhead train` of this checkout and of the baseline, in pairs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:

        def speed(root: Path) -> float:
            out = Path(folder) / root.name
            command = [sys.executable, "-m", "clearhead", "train", str(files), "--task", task, "--out", str(out),
                       "--overwrite", "--steps", str(plan.steps), "--threads", str(cores),
                       "--set", f"training.validate_every={plan.steps}"]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": str(cores)}
            run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{run.stderr[-4000:]}")
            lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            entries = [entry for entry in map(json.loads, lines) if "loss" in entry and entry["step"] >= plan.warmup]
            first, last = entries[0], entries[-1]
            return float((last["step"] - first["step"]) / (last["seconds"] - first["seconds"]))

        pairs = alternate(plan.launches * plan.pairs, lambda: speed(ROOT), lambda: speed(baseline))
    log(f"{task}: {describe(pairs)}")
    return pairs


def describe(pairs: Sequence[tuple[float, float]]) -> str:
    """Return the mean ratio of pairs and its confidence interval as text."""
    mean, low, high = confidence_interval([new / old for new, old in pairs])
    return f"{mean:.3f} ({low:.3f} to {high:.3f}) times the baseline"


def render(record: dict[str, Any]) -> str:
    """Return the record as Markdown."""
    head = ["training", "unit", "new, per second", "old, per second", "pairs", "new / old", "95 % interval"]
    rows = []
    for name, pairs in record["pairs"].items():
        new, old = (statistics.median(speeds) for speeds in zip(*pairs, strict=True))
        mean, low, high = confidence_interval([new / old for new, old in pairs])
        unit = "target tokens" if name in SHAPES else "updates"
        rows.append(
            [name, unit, f"{new:,.4g}", f"{old:,.4g}", str(len(pairs)), f"{mean:.3f}", f"{low:.3f}..{high:.3f}"]
        )
    notes = [QUICK_NOTE] * record["is_quick"]
    heading = "\n".join([f"{machine_line(record)}; new {record['commits'][0]}, old {record['commits'][1]}", *notes])
    return f"{heading}\n\n{markdown_table(head, rows)}"


def commit(root: Path) -> str:
    """Return the abbreviated commit of a checkout."""
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    return revision.stdout.strip() or "unknown"


def task_file(text: str) -> tuple[str, Path]:
    """Return task and path of an argument TASK=FILE."""
    name, _, path = text.partition("=")
    if name not in TASKS or not Path(path).exists():
        raise argparse.ArgumentTypeError(f"expected TASK=FILE with one of {', '.join(TASKS)}, got {text}")
    return name, Path(path).resolve()


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = create_parser("against", __doc__.splitlines()[0], out="against")
    parser.add_argument("--baseline", type=Path, required=True, help="worktree of the older commit")
    parser.add_argument("--shapes", nargs="*", default=SHAPES, choices=SHAPES, metavar="PRESET", help=", ".join(SHAPES))
    parser.add_argument("--tasks", nargs="*", default=[], type=task_file, metavar="TASK=FILE", help=", ".join(TASKS))
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else PairPlan()
    plan = dataclasses.replace(plan, launches=options.rounds or plan.launches)
    options.precision, baseline = "float32", options.baseline.resolve()
    record = Record("against", options, plan)
    workloads = prepare(options, Plan(), measure_sgemm_peak(options.cores)) if options.shapes else []
    pairs = {each.shape: measure_shape(each, baseline, options.cores, plan) for each in workloads}
    pairs |= {name: measure_task(name, path, baseline, options.cores, plan) for name, path in options.tasks}
    print(render(record.save(pairs=pairs, commits=[commit(ROOT), commit(baseline)])))


if __name__ == "__main__":
    main(sys.argv[1:])
