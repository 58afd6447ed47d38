"""What a vocabulary shortlist gains and costs: speed and BLEU of one trained model, with and without, in turns.

    python -m benchmarks.shortlist DIR --pairs train.tsv --test test.tsv

The list is learned from the pairs; the test set is translated as a whole on all cores, and one sentence at a time on
one thread, each way in every round. Speeds are compared within a round, and the median of the ratios is given.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.core import require_core
from benchmarks.record import check_load, machine, say
from benchmarks.report import aligned
from clearhead.api import Model, load
from clearhead.data.readers.pairs import Pair, load_pairs
from clearhead.data.shortlist import Shortlist
from clearhead.engines.threads import set_num_threads
from clearhead.evaluation.metrics import bleu
from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer


@dataclass(frozen=True)
class Way:
    """One way to translate, and what came out."""

    name: str
    beam: int
    listed: float
    """Pieces on the list of a sentence, on average; the whole vocabulary without one."""
    seconds: list[float]
    seconds_one_by_one: list[float]
    bleu: float
    differing: int
    """Translations that are not those without a list."""


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(
    model: Model,
    pairs: Sequence[Pair],
    lists: dict[str, Shortlist | None],
    beam: int,
    rounds: int,
    cores: int,
    every: int,
) -> list[Way]:
    """All ways with one beam, in turns."""
    sources, few = [pair.source for pair in pairs], [pair.source for pair in pairs[::every]]
    settings, encoded = model.decoding(beam_size=beam), model.tokenizer.encode_batch(sources)
    references = [reference_text(model.tokenizer, pair.target) for pair in pairs]
    whole: dict[str, list[float]] = {name: [] for name in lists}
    single: dict[str, list[float]] = {name: [] for name in lists}
    texts: dict[str, list[str]] = {}

    def translate(lines: list[str], shortlist: Shortlist | None) -> list[str]:
        return [one.text for one in model.translate_many(lines, settings=settings, shortlist=shortlist)]

    for number in range(rounds):
        for name, shortlist in lists.items():
            set_num_threads(cores)
            start = time.perf_counter()
            texts[name] = translate(sources, shortlist)
            whole[name].append(time.perf_counter() - start)
            set_num_threads(1)
            single[name].append(timed(lambda listed=shortlist: [translate([line], listed) for line in few]))  # type: ignore[misc]
            say(
                f"round {number + 1}, beam {beam}, {name}: {whole[name][-1]:.1f} s, {single[name][-1]:.1f} s one by one"
            )
    plain = next(iter(lists))
    found = []
    for name, shortlist in lists.items():
        sizes = [len(shortlist.of(ids)) if shortlist else model.tokenizer.target.vocab_size for ids in encoded]
        score = bleu(texts[name], references, tokenize=scoring_tokenizer(model.config))
        differing = sum(a != b for a, b in zip(texts[plain], texts[name], strict=True))
        found.append(Way(name, beam, statistics.mean(sizes), whole[name], single[name], score.value, differing))
    return found


def render(ways: list[Way]) -> str:
    """One line a way; ratios are medians over the rounds."""
    head = ["beam", "list", "pieces", "speed", "one by one", "BLEU", "loss", "differ"]
    rows = []
    for way in ways:
        plain = next(one for one in ways if one.beam == way.beam)
        ratios = [
            statistics.median(a / b for a, b in zip(getattr(plain, field), getattr(way, field), strict=True))
            for field in ("seconds", "seconds_one_by_one")
        ]
        rows.append([str(way.beam), way.name, f"{way.listed:,.0f}", *(f"{ratio:.2f}" for ratio in ratios),
                     f"{way.bleu:.2f}", f"{plain.bleu - way.bleu:.2f}", f"{way.differing:,}"])  # fmt: skip
    return aligned(head, rows)


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.shortlist", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a trained model")
    parser.add_argument("--pairs", type=Path, nargs="+", required=True, help="pairs that the list is learned from")
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="pairs to translate")
    parser.add_argument("--best", type=int, nargs="+", default=[20, 50, 100], help="target pieces of a source piece")
    parser.add_argument("--frequent", type=int, default=100, help="target pieces of every sentence")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=int, default=10, help="of the sentences, each n-th is translated by itself")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="where the raw numbers go, as JSON")
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    require_core()
    load_before = check_load(options.cores)
    model, test = load(options.folder), load_pairs(options.test).records
    pairs = load_pairs(options.pairs).records
    lists: dict[str, Shortlist | None] = {"whole vocabulary": None}
    for best in options.best:
        start = time.perf_counter()
        lists[f"best {best}"] = model.learn_shortlist(pairs, best, options.frequent)
        say(f"learned a list of the best {best} from {len(pairs):,} pairs in {time.perf_counter() - start:.1f} s")
    ways = [
        way
        for beam in options.beams
        for way in measure(model, test, lists, beam, options.rounds, options.cores, options.every)
    ]
    record = {"machine": {**machine(), "cores": options.cores, "load_before": load_before}, "sentences": len(test),
              "ways": [asdict(way) for way in ways]}  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))
    print(render(ways))


if __name__ == "__main__":
    main(sys.argv[1:])
