"""Runs the contestants one at a time, in turns, and prints one table. `make bench DATA=<folder>` calls it.

A peer that can use the cores in two ways stands in the table twice: as it runs when it is called (one process with
all threads), and with one process a core, which its users set up themselves. First each tries its settings (sentences
at a time), keeps the fastest for each measure, and trains for a minute or so, so that there is something to decode
with. Then come the rounds: in each, every contestant trains on the same batches and decodes the whole validation set.
Only the rounds are in the table.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.corpus import build_data
from benchmarks.group import Group
from benchmarks.protocol import Data, Setting, Task
from benchmarks.record import Record, parser_of, say
from benchmarks.report import Result, render

CONTESTANTS = ("clearhead", "huggingface", "joeynmt", "joeynmt_trainer")
BEAMS = {"greedy": 1, "beam 4": 4}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int = 5
    steps: int = 30
    """updates timed in each round"""
    warmup: int = 5
    """updates before the clock starts"""
    trial_steps: int = 8
    learn: int = 100
    """updates before there is something to decode with"""
    every: int = 1
    """of the validation sentences, each n-th is decoded"""
    trial_every: int = 2


QUICK = Plan(rounds=1, steps=3, warmup=1, trial_steps=1, learn=3, every=16, trial_every=64)


class Entry:
    """A contestant as the runner knows it: what it said of itself, and its fastest setting for each measure."""

    def __init__(self, module: str, about: dict[str, Any], processes: int, is_only: bool) -> None:
        self.module, self.about, self.processes = module, about, processes
        self.name = str(about["name"]) + ("" if is_only or processes == 1 else f", {processes} processes")
        self.parameters = 0
        self.loss = 0.0
        self.best: dict[str, Setting] = {}
        self.trials: list[dict[str, Any]] = []

    def facts(self) -> dict[str, Any]:
        """What a record says of it."""
        return {"name": self.name, **{key: self.about[key] for key in ("version", "notes")}}

    def options(self, measure: str) -> list[Setting]:
        kind = "train" if measure == "training" else "decode"
        settings = [Setting(**fields) for fields in self.about[kind]]
        return [setting for setting in settings if setting.processes == self.processes]


def enter(module: str, cores: int) -> list[Entry]:
    """A contestant, once for each way in which it can use the cores."""
    with Group(module, Setting(threads=cores)) as group:
        about = group.ask("describe", cores=cores)[0]
    ways = sorted({Setting(**fields).processes for fields in about["train"]})
    return [Entry(module, about, processes, len(ways) == 1) for processes in ways]


def time_training(group: Group, warmup: int, steps: int) -> Result:
    """Of some updates, after others for which there is no clock."""
    group.ask("prepare", first=0, steps=warmup)
    group.ask("train")
    tokens = group.ask("prepare", first=warmup, steps=steps)[0]["tokens"]
    seconds, _ = group.timed("train")
    return Result(tokens, seconds)


class Benchmark:
    """One run: the data, the contestants, and what was measured."""

    def __init__(self, task: Task, data: Path, plan: Plan, out: Path) -> None:
        self.task, self.data, self.plan, self.out = task, data, plan, out
        self.num_valid = len(Data.read(data).valid.source)

    def open(self, entry: Entry, setting: Setting) -> Group:
        """A contestant's processes with the model built; the size of its decoding batches is said later."""
        group = Group(entry.module, dataclasses.replace(setting, batch=0))
        entry.parameters = group.start(self.task, self.data)["parameters"]
        return group

    def time_decoding(self, group: Group, beam: int, batch: int, every: int) -> Result:
        group.ask("decode", beam=beam, every=max(every, 16), batch=batch)
        seconds, answers = group.timed("decode", beam=beam, every=every, batch=batch)
        tokens, sentences = (sum(answer[key] for answer in answers) for key in ("tokens", "sentences"))
        expected = len(range(0, self.num_valid, every))
        if (sentences, tokens) != (expected, expected * self.task.output_tokens):
            raise SystemExit(
                f"{group.module} decoded {sentences} sentences to {tokens} tokens; expected {expected} sentences "
                f"to {self.task.output_tokens} tokens each"
            )
        return Result(tokens, seconds)

    def try_training(self, entry: Entry) -> None:
        speeds = {}
        for setting in entry.options("training"):
            with self.open(entry, setting) as group:
                speeds[setting] = time_training(group, self.plan.warmup, self.plan.trial_steps).speed
        self._keep_fastest(entry, "training", speeds)

    def learn(self, entry: Entry) -> None:
        """Train for a while in the fastest setting, keep the weights, and note how well they do."""
        with self.open(entry, entry.best["training"]) as group:
            group.ask("prepare", first=0, steps=self.plan.learn)
            group.ask("train")
            group.ask("save", path=str(self.weights(entry)))
            entry.loss = group.ask("loss", sentences=200)[0]["loss"]
        say(f"{entry.name}: loss {entry.loss:.3f} after {self.plan.learn} updates")

    def try_decoding(self, entry: Entry) -> None:
        speeds: dict[str, dict[Setting, float]] = {measure: {} for measure in BEAMS}
        for way, settings in groupby(entry.options("decoding"), lambda s: dataclasses.replace(s, batch=0)):
            with self.open(entry, way) as group:
                group.ask("load", path=str(self.weights(entry)))
                for setting in settings:
                    for measure, beam in BEAMS.items():
                        result = self.time_decoding(group, beam, setting.batch, self.plan.trial_every)
                        speeds[measure][setting] = result.speed
        for measure, tried in speeds.items():
            if tried:
                self._keep_fastest(entry, measure, tried)

    def measure(self, entry: Entry) -> dict[str, Result]:
        """All measures of one contestant in one round."""
        with self.open(entry, entry.best["training"]) as group:
            results = {"training": time_training(group, self.plan.warmup, self.plan.steps)}
        for measure, beam in BEAMS.items():
            if measure not in entry.best:
                continue
            setting = entry.best[measure]
            with self.open(entry, setting) as group:
                group.ask("load", path=str(self.weights(entry)))
                results[measure] = self.time_decoding(group, beam, setting.batch, self.plan.every)
        return results

    def weights(self, entry: Entry) -> Path:
        return self.out / f"{entry.module}-{entry.processes}.weights"

    def _keep_fastest(self, entry: Entry, measure: str, speeds: dict[Setting, float]) -> None:
        entry.best[measure] = max(speeds, key=speeds.__getitem__)
        for setting, speed in speeds.items():
            entry.trials.append({"measure": measure, "setting": dataclasses.asdict(setting), "speed": speed})
            say(f"{entry.name}: tried {measure} with {setting}: {speed:,.0f} tokens/s")


def take_rounds(benchmark: Benchmark, entries: list[Entry]) -> dict[str, dict[str, list[Result]]]:
    """results[measure][contestant], one result a round; only of what a contestant does."""
    results: dict[str, dict[str, list[Result]]] = {
        measure: {entry.name: [] for entry in entries if measure in entry.best} for measure in ("training", *BEAMS)
    }
    for number in range(benchmark.plan.rounds):
        for entry in entries:
            for measure, result in benchmark.measure(entry).items():
                results[measure][entry.name].append(result)
                say(f"round {number + 1}: {entry.name}: {measure} {result.speed:,.0f} tokens/s")
    return results


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = parser_of("run", __doc__.splitlines()[0], out="")
    parser.add_argument("--contestants", nargs="+", default=CONTESTANTS, metavar="NAME", help="files in contestants/")
    parser.add_argument("--steps", type=int, help="updates timed in each round")
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds, steps=options.steps or plan.steps)
    record = Record("run", options, plan)

    data = build_data(options.data, Task.batch_tokens, Task.seed)
    data.write(options.out / "data.json")
    task = Task(vocab_size=data.vocab_size)
    benchmark = Benchmark(task, options.out / "data.json", plan, options.out)
    entries = [entry for module in options.contestants for entry in enter(module, options.cores)]
    for entry in entries:
        benchmark.try_training(entry)
        benchmark.learn(entry)
        benchmark.try_decoding(entry)
    results = take_rounds(benchmark, entries)

    contestants = [
        {
            **entry.facts(),
            "parameters": entry.parameters,
            "loss": entry.loss,
            "settings": {measure: str(setting) for measure, setting in entry.best.items()},
            "trials": entry.trials,
        }
        for entry in entries
    ]
    found = {
        measure: {name: [dataclasses.asdict(result) for result in taken] for name, taken in by_name.items()}
        for measure, by_name in results.items()
    }
    print(render(record.keep(task=dataclasses.asdict(task), contestants=contestants, results=found)))


if __name__ == "__main__":
    main(sys.argv[1:])
