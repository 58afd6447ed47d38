"""Speed of translation, text in and text out, in one table: `make bench-decoding DATA=<folder>` calls it.

clearhead's engines, CTranslate2 by itself (with clearhead's settings, and with its own defaults) and Hugging Face
`generate`, on the validation text of Multi30k: the whole set at once on all cores, and one sentence at a time on one
thread. Weights are random and never end a sentence (`endless.py`), so that everybody writes equally many tokens; what
is written is counted and checked. First Hugging Face tries its batch sizes and ways to use the cores and keeps the
fastest. Then come the rounds, in each of which every contestant is measured alone, one after the other.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.contestants.translators import KINDS, OUTPUT_TOKENS
from benchmarks.corpus import VOCAB_SIZE, read_lines
from benchmarks.endless import SHAPES, save_endless
from benchmarks.group import ROOT, Group
from benchmarks.protocol import Setting
from benchmarks.report import Result, aligned, machine
from benchmarks.run import check_load, say
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig

MODULE = "translators"
PEERS = ("Hugging Face Marian", "plain ctranslate2", "ctranslate2 defaults")
BATCHES = (32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int = 5
    every: int = 1
    """of the sentences, each n-th is translated with the whole set"""
    every_single: int = 10
    """and one by one"""
    every_trial: int = 4


QUICK = Plan(rounds=1, every=16, every_single=64, every_trial=64)


@dataclasses.dataclass(frozen=True)
class Measure:
    """One thing that is timed for every contestant."""

    shape: str
    beam: int
    is_single: bool

    def __str__(self) -> str:
        return f"{self.shape}, {'one by one' if self.is_single else 'whole set'}, beam {self.beam}"


class Benchmark:
    """One run: the bundles, the text, and each contestant's fastest settings."""

    def __init__(self, out: Path, plan: Plan, cores: int) -> None:
        self.out, self.plan, self.cores = out, plan, cores
        self.lines = out / "lines.txt"
        self.best: dict[tuple[str, Measure], Setting] = {}

    def prepare(self, data: Path, shapes: Iterable[str]) -> None:
        """One vocabulary, and a bundle of each shape."""
        texts = read_lines(data, "train.en") + read_lines(data, "train.de")
        tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=VOCAB_SIZE))
        lines = [line for line in read_lines(data, "val.en") if line.strip()]
        self.lines.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for shape in shapes:
            save_endless(self.out / f"{shape}.bundle", shape, tokenizer)

    def options(self, kind: str, measure: Measure) -> list[Setting]:
        """The settings that a contestant may use; clearhead and CTranslate2 divide the work by themselves."""
        if measure.is_single:
            return [Setting(threads=1, batch=1)]
        if kind != "Hugging Face Marian":
            return [Setting(threads=self.cores)]
        ways = [Setting(threads=self.cores)] + [Setting(processes=self.cores)] * (self.cores > 1)
        return [dataclasses.replace(way, batch=batch) for way in ways for batch in BATCHES]

    def choose(self, kind: str, measure: Measure) -> None:
        """The fastest of its settings counts."""
        options = self.options(kind, measure)
        if len(options) == 1:
            self.best[kind, measure] = options[0]
            return
        speeds = {setting: self.time(kind, measure, setting, self.plan.every_trial).speed for setting in options}
        self.best[kind, measure] = max(speeds, key=speeds.__getitem__)

    def measure(self, kind: str, measure: Measure) -> Result:
        every = self.plan.every_single if measure.is_single else self.plan.every
        return self.time(kind, measure, self.best[kind, measure], every)

    def time(self, kind: str, measure: Measure, setting: Setting, every: int) -> Result:
        """In processes of its own, after a short warm-up."""
        fields = {"beam": measure.beam, "batch": setting.batch, "is_single": measure.is_single}
        with Group(MODULE, setting) as group:
            group.ask_each("open", kind=kind, bundle=str(self.out / f"{measure.shape}.bundle"), lines=str(self.lines))
            group.ask("translate", **fields, every=max(every, 32))
            seconds, answers = group.timed("translate", **fields, every=every)
        sentences, tokens = (sum(answer[key] for answer in answers) for key in ("sentences", "tokens"))
        expected = len(self.lines.read_text(encoding="utf-8").splitlines()[::every])
        if (sentences, tokens) != (expected, expected * OUTPUT_TOKENS):
            raise SystemExit(
                f"{kind} translated {sentences} sentences to {tokens} tokens; expected {expected} sentences "
                f"to {OUTPUT_TOKENS} tokens each"
            )
        return Result(tokens, seconds)


def measures(shapes: Iterable[str], beams: Iterable[int]) -> Iterator[Measure]:
    beams = list(beams)
    for shape in shapes:
        for is_single in (False, True):
            for beam in beams:
                yield Measure(shape, beam, is_single)


def render(record: dict[str, Any]) -> str:
    """The whole answer of a run, as Markdown."""
    host, kinds = record["machine"], record["contestants"]
    peers = [peer for peer in PEERS if peer in kinds]
    heading = (
        f"{record['date']}, {host['cores']} cores ({host['processor']}, {host['instructions']}), "
        f"torch {host['torch']}, Python {host['python']}\nMulti30k validation text, {OUTPUT_TOKENS} pieces for each "
        f"sentence, tokenisation included; one by one on one thread; median of {record['plan']['rounds']} rounds, "
        "in turns"
    )
    if record["is_quick"]:
        heading += "\nA quick run, only to see whether everything works: the numbers mean nothing."
    head = ["tokens a second", "contestant", "median", "min..max", *(f"to {peer}" for peer in peers), "setting"]
    rows = []
    for measure, by_kind in record["results"].items():
        speeds = {kind: [Result(**taken).speed for taken in by_kind[kind]] for kind in kinds}
        medians = {kind: statistics.median(taken) for kind, taken in speeds.items()}
        for kind in kinds:
            spread = f"{min(speeds[kind]):,.0f}..{max(speeds[kind]):,.0f}"
            ratios = [f"{medians[kind] / medians[peer]:.2f}" for peer in peers]
            setting = record["settings"][measure][kind]
            rows.append([measure, kind, f"{medians[kind]:,.0f}", spread, *ratios, setting])
    return f"{heading}\n\n{aligned(head, rows)}"


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.decoding", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train.en, train.de and val.en (or .gz)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out" / "decoding", help="where results go")
    parser.add_argument("--shapes", nargs="+", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--contestants", nargs="+", default=[*KINDS], choices=[*KINDS], metavar="NAME")
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="cores that everybody may use")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="only see whether everything runs")
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    began, load, clock = datetime.now().astimezone(), check_load(options.cores), time.monotonic()
    benchmark = Benchmark(options.out, plan, options.cores)
    benchmark.prepare(options.data, options.shapes)
    wanted = [*measures(options.shapes, options.beams)]
    results: dict[str, dict[str, list[dict[str, Any]]]] = {
        str(measure): {kind: [] for kind in options.contestants} for measure in wanted
    }
    for measure in wanted:
        for kind in options.contestants:
            benchmark.choose(kind, measure)
    for number in range(plan.rounds):
        for measure in wanted:
            for kind in options.contestants:
                result = benchmark.measure(kind, measure)
                results[str(measure)][kind].append(dataclasses.asdict(result))
                say(f"round {number + 1}: {measure}: {kind} {result.speed:,.0f} tokens/s")
    record = {
        "date": began.isoformat(timespec="minutes"),
        "minutes": round((time.monotonic() - clock) / 60, 1),
        "machine": {**machine(), "cores": options.cores, "load_before": load},
        "is_quick": options.quick,
        "plan": dataclasses.asdict(plan),
        "contestants": options.contestants,
        "settings": {str(m): {k: str(benchmark.best[k, m]) for k in options.contestants} for m in wanted},
        "results": results,
    }
    path = options.out / f"{began:%Y-%m-%d-%H%M}{'-quick' if options.quick else ''}.json"
    path.write_text(json.dumps(record, indent=1))
    say(f"raw numbers: {path}")
    print(render(record))


if __name__ == "__main__":
    main(sys.argv[1:])
