"""Speed of training in one table: `make bench-training DATA=<folder>` calls it.

clearhead's own trainer against Hugging Face Marian, EOLE, JoeyNMT and torch.nn.Transformer, with the shapes of presets
tiny, small and paper-base. Everybody trains on the same batches, alone, in processes of its own, one after the other;
then the next round begins. The peers' own trainers make their own batches of the same sentences. A peer stands in the
table once for each way to use the cores: as it is called, and with one process a core. Besides the tokens a second
there are the share of the machine's peak that they are worth, with 6 operations a parameter and target token, as
docs/scale.md has it, and the most memory that the processes held. The peak is that of a product of large matrices on
all cores, in one process, the best of all rounds.
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
from benchmarks.corpus import build_data
from benchmarks.group import Group
from benchmarks.protocol import Data, Pairs, Task
from benchmarks.record import Record, parser_of, say
from benchmarks.report import QUICK_NOTE, Speeds, aligned, host_line
from benchmarks.run import Entry, enter, time_training
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
ONLY_FOR = {"joeynmt_trainer": ("tiny",), "huggingface_trainer": ("tiny",), "eole_trainer": ("tiny", "small")}
"""Larger models have few updates. Beside them JoeyNMT's checkpoint at the end would weigh too much, and Hugging Face's
sampler, which sorts by length within a quarter of the sentences, would not sort at all; EOLE would have one batch.
"""
PRECISIONS = ("float32", "bfloat16")
SHAPES = ("tiny", "small", "paper-base")
FIRST_PIECE = 4
"""Smaller ids are special."""
SIDE = 2048
"""Of the matrices that the peak is measured with."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured. Figures by shape are those of tiny, small and paper-base."""

    rounds: int = 3
    steps: tuple[int, ...] = (10, 5, 1)
    """updates timed in each round"""
    warmup: tuple[int, ...] = (2, 1, 1)
    """updates before the clock starts"""
    batch_tokens: int = 4096
    shares: tuple[float, ...] = (0.25, 0.4, 0.55)
    """of the peak, guessed of an average contestant: only for the estimate of the time"""
    start_seconds: float = 7.0
    """until a contestant is ready, guessed"""


QUICK = Plan(rounds=1, steps=(2, 1, 1), warmup=(1, 1, 1), batch_tokens=1024)


@dataclasses.dataclass(frozen=True)
class Race:
    """One shape: what everybody does with it, and how often."""

    shape: str
    task: Task
    data: Path
    warmup: int
    steps: int
    seconds: float
    """that a contestant is guessed to take"""


@dataclasses.dataclass(frozen=True)
class Run:
    """One contestant in one round."""

    tokens: int
    seconds: float
    bytes: int
    """The most memory of its processes together."""


def task_of(shape: str, vocab_size: int, batch_tokens: int, precision: str = "float32") -> Task:
    """The preset as everybody gets it."""
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


def with_vocabulary(data: Data, vocab_size: int, seed: int) -> Data:
    """The same batches with other ids: drawn by Zipf's law from so large a vocabulary, each sentence ended as before.

    Multi30k does not have the words for the 37,000 pieces of the paper.
    """
    pieces = np.arange(FIRST_PIECE, vocab_size)
    chances = 1.0 / np.arange(1, len(pieces) + 1)
    generator, chances = np.random.default_rng(seed), chances / chances.sum()

    def drawn(rows: list[list[int]]) -> list[list[int]]:
        return [[*map(int, generator.choice(pieces, len(row) - 1, p=chances)), row[-1]] for row in rows]

    batches = [Pairs(drawn(pairs.source), drawn(pairs.target)) for pairs in data.train]
    return Data(batches, data.valid, vocab_size)


def sgemm_peak(cores: int, count: int = 10) -> float:
    """Operations a second of a product of large matrices, the fastest of some."""
    torch.set_num_threads(cores)
    left, right = torch.randn(2, SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        torch.mm(left, right, out=out)
        seconds.append(time.perf_counter() - began)
    return 2 * SIDE**3 / min(seconds)


def prepare(options: argparse.Namespace, plan: Plan, peak: float) -> list[Race]:
    """The batches of each shape in a file, only as many as are trained on."""
    text = build_data(options.data, plan.batch_tokens, Task.seed)
    races = []
    for shape in options.shapes:
        number = SHAPES.index(shape)
        warmup, steps = plan.warmup[number], plan.steps[number]
        data = Data(text.train[: warmup + steps], Pairs([], []), text.vocab_size)
        wanted = PRESETS[shape].get("tokenizer", {}).get("vocab_size", text.vocab_size)
        if wanted != text.vocab_size:
            data = with_vocabulary(data, wanted, Task.seed)
        task = task_of(shape, data.vocab_size, plan.batch_tokens, options.precision)
        path = options.out / f"{shape}.json"
        data.write(path)
        tokens = sum(pairs.target_tokens for pairs in data.train)
        seconds = plan.start_seconds + 6 * parameters(task) * tokens / (plan.shares[number] * peak)
        races.append(Race(shape, task, path, warmup, steps, seconds))
    return races


def parameters(task: Task) -> int:
    """Of clearhead's model; nothing is computed."""
    with torch.device("meta"):
        return count_parameters(Transformer(model_config(task)))


def takes_part(entry: Entry, shape: str) -> bool:
    return shape in ONLY_FOR.get(entry.module, SHAPES)


def measure(entry: Entry, race: Race) -> Run:
    """One contestant in processes of its own, in the one setting that it has."""
    (setting,) = entry.options("training")
    with Group(entry.module, setting) as group:
        entry.parameters = group.start(race.task, race.data)["parameters"]
        result = time_training(group, race.warmup, race.steps)
        memory = sum(answer["bytes"] for answer in group.ask("memory"))
    return Run(result.tokens, result.seconds, memory)


class TimeLeft:
    """How long the rest takes, by the guesses and by how wrong they were so far."""

    def __init__(self, seconds: float) -> None:
        self.whole, self.done, self._began = seconds, 0.0, time.monotonic()

    def after(self, seconds: float) -> float:
        """What is left once something is done that was guessed to take so long."""
        self.done += seconds
        return (time.monotonic() - self._began) * (self.whole / self.done - 1)


def take_rounds(races: list[Race], entries: list[Entry], plan: Plan, cores: int) -> dict[str, Any]:
    """The peaks, one a round; results[shape][contestant], one a round; and each contestant's parameters by shape."""
    jobs = [(race, entry) for race in races for entry in entries if takes_part(entry, race.shape)]
    left = TimeLeft(plan.rounds * sum(race.seconds for race, _ in jobs))
    say(f"{plan.rounds} rounds of {len(jobs)} measurements, about {left.whole / 60:.0f} minutes")
    results: dict[str, dict[str, list[dict[str, Any]]]] = {race.shape: {} for race in races}
    sizes: dict[str, dict[str, int]] = {race.shape: {} for race in races}
    peaks = []
    for number in range(plan.rounds):
        peaks.append(sgemm_peak(cores))
        for race, entry in jobs:
            run = measure(entry, race)
            results[race.shape].setdefault(entry.name, []).append(dataclasses.asdict(run))
            sizes[race.shape][entry.name] = entry.parameters
            say(
                f"round {number + 1}: {race.shape}: {entry.name} {run.tokens / run.seconds:,.0f} tokens/s, "
                f"{run.bytes / 1e6:,.0f} MB; about {left.after(race.seconds) / 60:.0f} minutes left"
            )
    return {"peaks": peaks, "results": results, "parameters": sizes}


def render(record: dict[str, Any]) -> str:
    """The whole answer of a run, as Markdown."""
    return "\n\n".join([_heading(record), _table(record), _footing(record)])


def _heading(record: dict[str, Any]) -> str:
    plan, peak = record["plan"], max(record["peaks"])
    precision = next(iter(record["tasks"].values()))["precision"]
    lines = [f"{host_line(record)}, {precision}; sgemm peak {peak / 1e9:,.0f} GFLOP/s"]
    for shape, task in record["tasks"].items():
        number = SHAPES.index(shape)
        lines.append(
            f"{shape}: {task['num_layers']}+{task['num_layers']} layers, {task['model_dim']} wide, "
            f"{task['inner_dim']} inner, {task['num_heads']} heads, {task['norm']}-norm, "
            f"{task['vocab_size']:,} pieces, dropout {task['dropout']}, {plan['steps'][number]} updates with at most "
            f"{task['batch_tokens']:,} tokens"
        )
    lines.append(f"Median of {plan['rounds']} rounds, in turns; share of the peak: 6 x parameters x target tokens")
    return "\n".join(lines + [QUICK_NOTE] * record["is_quick"])


def _table(record: dict[str, Any]) -> str:
    head = ["training", "contestant", "target tokens/s", "min..max", "clearhead is so many times as fast",
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
    return aligned(head, rows)


def _footing(record: dict[str, Any]) -> str:
    return "\n".join(f"- {one['name']} {one['version']}: {one['notes']}" for one in record["contestants"])


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = parser_of("train", __doc__.splitlines()[0], out="train")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES, metavar="PRESET", help=", ".join(SHAPES))
    parser.add_argument("--contestants", nargs="+", metavar="NAME", help="files in contestants/")
    parser.add_argument("--precision", default=PRECISIONS[0], choices=PRECISIONS, help="of products; bare loops only")
    options = parser.parse_args([*arguments])
    is_plain = options.precision == PRECISIONS[0]  # the peers' own trainers would each have to be told in another way
    able = [name for name in CONTESTANTS if is_plain or name not in ONLY_FOR]
    options.contestants = options.contestants or able
    if unable := [name for name in options.contestants if not is_plain and name in ONLY_FOR]:
        parser.error(f"--precision {options.precision} is for bare loops, not for {', '.join(unable)}")
    return options


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds)
    record = Record("train", options, plan)
    races = prepare(options, plan, sgemm_peak(options.cores))
    entries = [entry for module in options.contestants for entry in enter(module, options.cores)]
    found = take_rounds(races, entries, plan, options.cores)
    contestants = [{**entry.facts(), "setting": str(entry.options("training")[0])} for entry in entries]
    tasks = {race.shape: dataclasses.asdict(race.task) for race in races}
    print(render(record.keep(tasks=tasks, contestants=contestants, **found)))


if __name__ == "__main__":
    main(sys.argv[1:])
