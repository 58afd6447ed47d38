"""Speed of translation, text in and text out, in one table: `make bench-decoding DATA=<folder>` calls it.

clearhead's engines, CTranslate2 by itself (with clearhead's settings, and with its own defaults) and Hugging Face
`generate` (in one process with a thread a core, as a call of it runs, and with the sentences divided among one process
a core), on the validation text of Multi30k: the whole set at once on all cores, and one sentence at a time on one
thread. Weights are random and never end a sentence (`endless.py`), so that everybody writes equally many tokens; what
is written is counted and checked. First Hugging Face tries its batch sizes and keeps the fastest. Then come the rounds,
in each of which every contestant is measured alone, one after the other.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.contestants.translators import KINDS, OUTPUT_TOKENS
from benchmarks.corpus import VOCAB_SIZE, read_lines
from benchmarks.endless import SHAPES, save_endless
from benchmarks.group import Group
from benchmarks.protocol import Setting
from benchmarks.record import Record, parser_of, say
from benchmarks.report import QUICK_NOTE, Result, Speeds, aligned, host_line
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig

MODULE = "translators"
DIVIDED = "Hugging Face, a process a core"
PEERS = ("Hugging Face Marian", DIVIDED, "plain ctranslate2", "ctranslate2 defaults")
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
        if not kind.startswith("Hugging Face"):
            return [Setting(threads=self.cores)]
        way = Setting(processes=self.cores) if kind == DIVIDED else Setting(threads=self.cores)
        return [dataclasses.replace(way, batch=batch) for batch in BATCHES]

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


def contestants(measure: Measure, kinds: Iterable[str]) -> list[str]:
    """One sentence at a time cannot be divided."""
    return [kind for kind in kinds if not (measure.is_single and kind == DIVIDED)]


def render(record: dict[str, Any]) -> str:
    """The whole answer of a run, as Markdown."""
    kinds = record["contestants"]
    peers = [peer for peer in PEERS if peer in kinds]
    heading = (
        f"{host_line(record)}\nMulti30k validation text, {OUTPUT_TOKENS} pieces for each "
        f"sentence, tokenisation included; one by one on one thread; median of {record['plan']['rounds']} rounds, "
        "in turns"
    )
    if record["is_quick"]:
        heading += f"\n{QUICK_NOTE}"
    head = ["tokens a second", "contestant", "median", "min..max", *(f"to {peer}" for peer in peers), "setting"]
    rows = []
    for measure, by_kind in record["results"].items():
        speeds = Speeds(by_kind)
        for kind in by_kind:
            setting = record["settings"][measure][kind]
            rows.append([measure, kind, *speeds.cells(kind), *speeds.ratios(kind, peers), setting])
    return f"{heading}\n\n{aligned(head, rows)}"


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = parser_of("decoding", __doc__.splitlines()[0], out="decoding")
    parser.add_argument("--shapes", nargs="+", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--contestants", nargs="+", default=[*KINDS], choices=[*KINDS], metavar="NAME")
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds)
    record = Record("decoding", options, plan)
    benchmark = Benchmark(options.out, plan, options.cores)
    benchmark.prepare(options.data, options.shapes)
    wanted = [*measures(options.shapes, options.beams)]
    taking_part = {measure: contestants(measure, options.contestants) for measure in wanted}
    results: dict[str, dict[str, list[dict[str, Any]]]] = {
        str(measure): {kind: [] for kind in kinds} for measure, kinds in taking_part.items()
    }
    for measure, kinds in taking_part.items():
        for kind in kinds:
            benchmark.choose(kind, measure)
    for number in range(plan.rounds):
        for measure, kinds in taking_part.items():
            for kind in kinds:
                result = benchmark.measure(kind, measure)
                results[str(measure)][kind].append(dataclasses.asdict(result))
                say(f"round {number + 1}: {measure}: {kind} {result.speed:,.0f} tokens/s")
    settings = {str(m): {k: str(benchmark.best[k, m]) for k in kinds} for m, kinds in taking_part.items()}
    print(render(record.keep(contestants=options.contestants, settings=settings, results=results)))


if __name__ == "__main__":
    main(sys.argv[1:])
