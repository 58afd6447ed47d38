"""Training and decoding speed of all contestants in one table: `make bench DATA=<folder>`.

Contestants run one at a time. A peer that can use the cores in two ways has two rows: one process with all threads (the
default of its users), and one process per core (which users set up themselves). First, each contestant selects its
fastest settings for each measurement and trains briefly to get weights for decoding. Then, in each round, every
contestant trains on the same batches and decodes the whole validation set; the table contains only these rounds.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.harness.data import build_data
from benchmarks.harness.processes import Processes
from benchmarks.harness.protocol import Data, Setting, Task
from benchmarks.harness.record import Record, create_parser, log
from benchmarks.report import Result, render

CONTESTANTS = ("clearhead", "huggingface", "joeynmt", "joeynmt_trainer")
BEAMS = {"greedy": 1, "beam 4": 4}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Number and size of measurements."""

    rounds: int = 5
    steps: int = 30
    """Updates timed in each round."""
    warmup: int = 5
    """Updates before timing starts."""
    trial_steps: int = 8
    learn: int = 100
    """Updates before decoding."""
    every: int = 1
    """Every n-th validation sentence is decoded."""
    trial_every: int = 2


QUICK = Plan(rounds=1, steps=3, warmup=1, trial_steps=1, learn=3, every=16, trial_every=64)


class ContestantState:
    """Description of a contestant, and its fastest setting for each measurement."""

    def __init__(self, module: str, about: dict[str, Any], processes: int, is_only: bool) -> None:
        self.module, self.about, self.processes = module, about, processes
        self.name = str(about["name"]) + ("" if is_only or processes == 1 else f", {processes} processes")
        self.parameters = 0
        self.loss = 0.0
        self.best: dict[str, Setting] = {}
        self.trials: list[dict[str, Any]] = []

    def to_record(self) -> dict[str, Any]:
        """Return the fields of the record."""
        return {"name": self.name, **{key: self.about[key] for key in ("version", "notes")}}

    def settings_for(self, measure: str) -> list[Setting]:
        kind = "train" if measure == "training" else "decode"
        settings = [Setting(**fields) for fields in self.about[kind]]
        return [setting for setting in settings if setting.processes == self.processes]


def describe_contestants(module: str, cores: int) -> list[ContestantState]:
    """Return a contestant once for each number of processes that it supports."""
    with Processes(module, Setting(threads=cores)) as group:
        about = group.ask("describe", cores=cores)[0]
    counts = sorted({Setting(**fields).processes for fields in about["train"]})
    return [ContestantState(module, about, processes, len(counts) == 1) for processes in counts]


def time_updates(group: Processes, warmup: int, steps: int) -> Result:
    """Return the speed of `steps` updates after `warmup` updates."""
    group.ask("prepare", first=0, steps=warmup)
    group.ask("train")
    tokens = group.ask("prepare", first=warmup, steps=steps)[0]["tokens"]
    seconds, _ = group.timed("train")
    return Result(tokens, seconds)


class Benchmark:
    """Measurements of one run on one data file."""

    def __init__(self, task: Task, data: Path, plan: Plan, out: Path) -> None:
        self.task, self.data, self.plan, self.out = task, data, plan, out
        self.num_valid = len(Data.read(data).valid.source)

    def open(self, entry: ContestantState, setting: Setting) -> Processes:
        """Return a contestant's processes with the model built."""
        group = Processes(entry.module, dataclasses.replace(setting, batch=0))
        entry.parameters = group.start(self.task, self.data)["parameters"]
        return group

    def time_decoding(self, group: Processes, beam: int, batch: int, every: int) -> Result:
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

    def tune_training(self, entry: ContestantState) -> None:
        speeds = {}
        for setting in entry.settings_for("training"):
            with self.open(entry, setting) as group:
                speeds[setting] = time_updates(group, self.plan.warmup, self.plan.trial_steps).speed
        self._keep_fastest(entry, "training", speeds)

    def pretrain(self, entry: ContestantState) -> None:
        """Train in the fastest setting, save the weights and record their validation loss."""
        with self.open(entry, entry.best["training"]) as group:
            group.ask("prepare", first=0, steps=self.plan.learn)
            group.ask("train")
            group.ask("save", path=str(self.weights(entry)))
            entry.loss = group.ask("loss", sentences=200)[0]["loss"]
        log(f"{entry.name}: loss {entry.loss:.3f} after {self.plan.learn} updates")

    def tune_decoding(self, entry: ContestantState) -> None:
        speeds: dict[str, dict[Setting, float]] = {measure: {} for measure in BEAMS}
        for processes, settings in groupby(entry.settings_for("decoding"), lambda s: dataclasses.replace(s, batch=0)):
            with self.open(entry, processes) as group:
                group.ask("load", path=str(self.weights(entry)))
                for setting in settings:
                    for measure, beam in BEAMS.items():
                        result = self.time_decoding(group, beam, setting.batch, self.plan.trial_every)
                        speeds[measure][setting] = result.speed
        for measure, by_setting in speeds.items():
            if by_setting:
                self._keep_fastest(entry, measure, by_setting)

    def measure(self, entry: ContestantState) -> dict[str, Result]:
        """Return all measurements of one contestant in one round."""
        with self.open(entry, entry.best["training"]) as group:
            results = {"training": time_updates(group, self.plan.warmup, self.plan.steps)}
        for measure, beam in BEAMS.items():
            if measure not in entry.best:
                continue
            setting = entry.best[measure]
            with self.open(entry, setting) as group:
                group.ask("load", path=str(self.weights(entry)))
                results[measure] = self.time_decoding(group, beam, setting.batch, self.plan.every)
        return results

    def weights(self, entry: ContestantState) -> Path:
        return self.out / f"{entry.module}-{entry.processes}.weights"

    def _keep_fastest(self, entry: ContestantState, measure: str, speeds: dict[Setting, float]) -> None:
        entry.best[measure] = max(speeds, key=speeds.__getitem__)
        for setting, speed in speeds.items():
            entry.trials.append({"measure": measure, "setting": dataclasses.asdict(setting), "speed": speed})
            log(f"{entry.name}: tried {measure} with {setting}: {speed:,.0f} tokens/s")


def run_rounds(benchmark: Benchmark, entries: list[ContestantState]) -> dict[str, dict[str, list[Result]]]:
    """Return results[measure][contestant], one result per round, for the measurements that a contestant supports."""
    results: dict[str, dict[str, list[Result]]] = {
        measure: {entry.name: [] for entry in entries if measure in entry.best} for measure in ("training", *BEAMS)
    }
    for number in range(benchmark.plan.rounds):
        for entry in entries:
            for measure, result in benchmark.measure(entry).items():
                results[measure][entry.name].append(result)
                log(f"round {number + 1}: {entry.name}: {measure} {result.speed:,.0f} tokens/s")
    return results


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = create_parser("run", __doc__.splitlines()[0], out="")
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
    entries = [entry for module in options.contestants for entry in describe_contestants(module, options.cores)]
    for entry in entries:
        benchmark.tune_training(entry)
        benchmark.pretrain(entry)
        benchmark.tune_decoding(entry)
    results = run_rounds(benchmark, entries)

    contestants = [
        {
            **entry.to_record(),
            "parameters": entry.parameters,
            "loss": entry.loss,
            "settings": {measure: str(setting) for measure, setting in entry.best.items()},
            "trials": entry.trials,
        }
        for entry in entries
    ]
    by_measure = {
        measure: {name: [dataclasses.asdict(result) for result in rounds] for name, rounds in by_name.items()}
        for measure, by_name in results.items()
    }
    print(render(record.save(task=dataclasses.asdict(task), contestants=contestants, results=by_measure)))


if __name__ == "__main__":
    main(sys.argv[1:])
