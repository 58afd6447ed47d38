"""Training speed of all toolkits in one table: `make bench-training DATA=<folder>`.

Compares clearhead's trainer with Hugging Face Marian, EOLE, JoeyNMT and torch.nn.Transformer, for the shapes of presets
tiny, small and paper-base. In each round, every contestant trains alone, in separate processes, on the same batches;
the peers' own trainers make batches of the same sentences. A peer has a row for one process with all threads and a row
for one process per core. Further columns are the share of the machine's peak, counting 6 operations per parameter and
target token as in docs/scale.md, and the peak memory of the processes. The machine's peak is that of a product of large
matrices on all cores in one process, the best of all rounds.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contestants.clearhead import model_config
from benchmarks.harness.data import build_data
from benchmarks.harness.processes import Processes
from benchmarks.harness.protocol import Data, Pairs, Task
from benchmarks.harness.record import Record, create_parser, log
from benchmarks.report import QUICK_NOTE, Speeds, machine_line, markdown_table
from benchmarks.run import ContestantState, describe_contestants, time_updates
from clearhead.config import PRESETS
from clearhead.model.parameters import count_parameters
from clearhead.model.transformer import Transformer

CONTESTANTS = (
    "clearhead",
    "huggingface",
    "huggingface_trainer",
    "eole",
    "eole_trainer",
    "joeynmt",
    "joeynmt_trainer",
    "torch_nn",
)
SHAPES_OF_TRAINERS = {"joeynmt_trainer": ("tiny",), "huggingface_trainer": ("tiny",), "eole_trainer": ("tiny", "small")}
"""Shapes for which a toolkit's own trainer is measured. Larger shapes are timed over few updates, where the comparison
would be unfair: JoeyNMT's final checkpoint would take much of the time, Hugging Face's sampler would hardly sort, since
it sorts within a quarter of the sentences, and EOLE would have a single batch.
"""
PRECISIONS = ("float32", "bfloat16")
SHAPES = ("tiny", "small", "paper-base")
FIRST_TOKEN = 4
"""Smaller ids are special tokens."""
SIDE = 2048
"""Size of the matrices for measuring the peak."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Number and size of measurements; tuples have values for tiny, small and paper-base."""

    rounds: int = 3
    steps: tuple[int, ...] = (10, 5, 1)
    """Updates timed in each round."""
    warmup: tuple[int, ...] = (2, 1, 1)
    """Updates before timing starts."""
    batch_tokens: int = 4096
    shares: tuple[float, ...] = (0.25, 0.4, 0.55)
    """Share of the machine's peak that a contestant reaches on average; assumed for estimating the remaining time."""
    start_seconds: float = 7.0
    """Assumed start-up time of a contestant."""


QUICK = Plan(rounds=1, steps=(2, 1, 1), warmup=(1, 1, 1), batch_tokens=1024)


@dataclasses.dataclass(frozen=True)
class Workload:
    """Training of one shape: its task, data and numbers of updates."""

    shape: str
    task: Task
    data: Path
    warmup: int
    steps: int
    seconds: float
    """Estimated time of one contestant."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Measurement of one contestant in one round."""

    tokens: int
    seconds: float
    bytes: int
    """Peak memory, summed over the processes."""


def task_for(shape: str, vocab_size: int, batch_tokens: int, precision: str = "float32") -> Task:
    """Return the task with the shape of a preset."""
    model = PRESETS[shape]["model"]
    return Task(
        vocab_size=vocab_size,
        num_layers=model["num_encoder_layers"],
        model_dim=model["model_dim"],
        inner_dim=model["feed_forward_dim"],
        num_heads=model["num_heads"],
        norm=model["norm_placement"],
        dropout=model["dropout"],
        batch_tokens=batch_tokens,
        precision=precision,
    )


def resample_ids(data: Data, vocab_size: int, seed: int) -> Data:
    """Return the same batches with ids drawn by Zipf's law from a larger vocabulary; lengths and end tokens stay.

    Multi30k has too few words for the 37,000 tokens of the paper.
    """
    tokens = np.arange(FIRST_TOKEN, vocab_size)
    weights = 1.0 / np.arange(1, len(tokens) + 1)
    rng, probabilities = np.random.default_rng(seed), weights / weights.sum()

    def resample(rows: list[list[int]]) -> list[list[int]]:
        return [[*map(int, rng.choice(tokens, len(row) - 1, p=probabilities)), row[-1]] for row in rows]

    batches = [Pairs(resample(pairs.source), resample(pairs.target)) for pairs in data.train]
    return Data(batches, data.valid, vocab_size)


def measure_sgemm_peak(cores: int, count: int = 10) -> float:
    """Return the operations per second of a product of large matrices, the fastest of `count`."""
    torch.set_num_threads(cores)
    left, right = torch.randn(2, SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        torch.mm(left, right, out=out)
        seconds.append(time.perf_counter() - began)
    return 2 * SIDE**3 / min(seconds)


def prepare(options: argparse.Namespace, plan: Plan, peak: float) -> list[Workload]:
    """Write the batches of each shape that are needed to files, and return the workloads."""
    text = build_data(options.data, plan.batch_tokens, Task.seed)
    workloads = []
    for shape in options.shapes:
        number = SHAPES.index(shape)
        warmup, steps = plan.warmup[number], plan.steps[number]
        data = Data(text.train[: warmup + steps], Pairs([], []), text.vocab_size)
        vocab_size = PRESETS[shape].get("tokenizer", {}).get("vocab_size", text.vocab_size)
        if vocab_size != text.vocab_size:
            data = resample_ids(data, vocab_size, Task.seed)
        task = task_for(shape, data.vocab_size, plan.batch_tokens, options.precision)
        path = options.out / f"{shape}.json"
        data.write(path)
        tokens = sum(pairs.target_tokens for pairs in data.train)
        seconds = plan.start_seconds + 6 * parameters(task) * tokens / (plan.shares[number] * peak)
        workloads.append(Workload(shape, task, path, warmup, steps, seconds))
    return workloads


def parameters(task: Task) -> int:
    """Return the number of parameters of clearhead's model, without allocating them."""
    with torch.device("meta"):
        return count_parameters(Transformer(model_config(task)))


def is_measured(entry: ContestantState, shape: str) -> bool:
    return shape in SHAPES_OF_TRAINERS.get(entry.module, SHAPES)


def measure(entry: ContestantState, workload: Workload) -> Run:
    """Return the measurement of one contestant, which must have one training setting."""
    (setting,) = entry.settings_for("training")
    with Processes(entry.module, setting) as group:
        entry.parameters = group.start(workload.task, workload.data)["parameters"]
        result = time_updates(group, workload.warmup, workload.steps)
        memory = sum(answer["bytes"] for answer in group.ask("memory"))
    return Run(result.tokens, result.seconds, memory)


class RemainingTime:
    """Remaining time of a run, from estimates corrected by the elapsed time."""

    def __init__(self, seconds: float) -> None:
        self.whole, self.done, self._began = seconds, 0.0, time.monotonic()

    def after(self, seconds: float) -> float:
        """Return the remaining seconds after a measurement that was estimated to take `seconds`."""
        self.done += seconds
        return (time.monotonic() - self._began) * (self.whole / self.done - 1)


def run_rounds(workloads: list[Workload], entries: list[ContestantState], plan: Plan, cores: int) -> dict[str, Any]:
    """Return the peaks and results[shape][contestant], one per round, and the contestants' parameters by shape."""
    jobs = [(workload, entry) for workload in workloads for entry in entries if is_measured(entry, workload.shape)]
    left = RemainingTime(plan.rounds * sum(workload.seconds for workload, _ in jobs))
    log(f"{plan.rounds} rounds of {len(jobs)} measurements, about {left.whole / 60:.0f} minutes")
    results: dict[str, dict[str, list[dict[str, Any]]]] = {workload.shape: {} for workload in workloads}
    sizes: dict[str, dict[str, int]] = {workload.shape: {} for workload in workloads}
    peaks = []
    for number in range(plan.rounds):
        peaks.append(measure_sgemm_peak(cores))
        for workload, entry in jobs:
            run = measure(entry, workload)
            results[workload.shape].setdefault(entry.name, []).append(dataclasses.asdict(run))
            sizes[workload.shape][entry.name] = entry.parameters
            log(
                f"round {number + 1}: {workload.shape}: {entry.name} {run.tokens / run.seconds:,.0f} tokens/s, "
                f"{run.bytes / 1e6:,.0f} MB; about {left.after(workload.seconds) / 60:.0f} minutes left"
            )
    return {"peaks": peaks, "results": results, "parameters": sizes}


def render(record: dict[str, Any]) -> str:
    """Return the result of a run as Markdown."""
    return "\n\n".join([_heading(record), _table(record), _footing(record)])


def _heading(record: dict[str, Any]) -> str:
    plan, peak = record["plan"], max(record["peaks"])
    precision = next(iter(record["tasks"].values()))["precision"]
    lines = [f"{machine_line(record)}, {precision}; sgemm peak {peak / 1e9:,.0f} GFLOP/s"]
    for shape, task in record["tasks"].items():
        number = SHAPES.index(shape)
        lines.append(
            f"{shape}: {task['num_layers']}+{task['num_layers']} layers, {task['model_dim']} wide, "
            f"{task['inner_dim']} inner, {task['num_heads']} heads, {task['norm']}-norm, "
            f"{task['vocab_size']:,} tokens, dropout {task['dropout']}, {plan['steps'][number]} updates with at most "
            f"{task['batch_tokens']:,} tokens"
        )
    lines.append(f"Median of {plan['rounds']} alternating rounds; share of peak: 6 x parameters x target tokens")
    return "\n".join(lines + [QUICK_NOTE] * record["is_quick"])


def _table(record: dict[str, Any]) -> str:
    head = ["training", "contestant", "target tokens/s", "min..max", "speedup of clearhead",
            "share of peak", "peak memory, MB", "setting"]  # fmt: skip
    settings = {contestant["name"]: contestant["setting"] for contestant in record["contestants"]}
    rows = []
    for shape, by_name in record["results"].items():
        speeds = Speeds(by_name)
        for name, runs in by_name.items():
            ratio = speeds.ratios("clearhead", [name])[0] if "clearhead" in by_name and name != "clearhead" else ""
            work = 6 * record["parameters"][shape][name] * speeds.medians[name]
            memory = statistics.median(run["bytes"] for run in runs) / 1e6
            shares = [f"{100 * work / max(record['peaks']):.0f} %", f"{memory:,.0f}"]
            rows.append([shape, name, *speeds.cells(name), ratio, *shares, settings[name]])
    return markdown_table(head, rows)


def _footing(record: dict[str, Any]) -> str:
    return "\n".join(f"- {each['name']} {each['version']}: {each['notes']}" for each in record["contestants"])


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = create_parser("train", __doc__.splitlines()[0], out="train")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES, metavar="PRESET", help=", ".join(SHAPES))
    parser.add_argument("--contestants", nargs="+", metavar="NAME", help="files in contestants/")
    parser.add_argument("--precision", default=PRECISIONS[0], choices=PRECISIONS, help="of matrix products")
    options = parser.parse_args([*arguments])
    is_plain = options.precision == PRECISIONS[0]  # the peers' own trainers would each need a different setting
    supported = [name for name in CONTESTANTS if is_plain or name not in SHAPES_OF_TRAINERS]
    options.contestants = options.contestants or supported
    if unsupported := [name for name in options.contestants if not is_plain and name in SHAPES_OF_TRAINERS]:
        parser.error(f"--precision {options.precision} is not supported by {', '.join(unsupported)}")
    return options


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds)
    record = Record("train", options, plan)
    workloads = prepare(options, plan, measure_sgemm_peak(options.cores))
    entries = [entry for module in options.contestants for entry in describe_contestants(module, options.cores)]
    results = run_rounds(workloads, entries, plan, options.cores)
    contestants = [{**entry.to_record(), "setting": str(entry.settings_for("training")[0])} for entry in entries]
    tasks = {workload.shape: dataclasses.asdict(workload.task) for workload in workloads}
    print(render(record.save(tasks=tasks, contestants=contestants, **results)))


if __name__ == "__main__":
    main(sys.argv[1:])
