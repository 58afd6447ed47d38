"""Speed and BLEU of one trained model with and without a vocabulary shortlist, alternating.

    python -m benchmarks.shortlist DIR --pairs train.tsv --test test.tsv

The shortlist is learned from the pairs. In every round, the test set is translated as a whole on all cores, and one
sentence at a time on one thread. Speeds are compared within a round; the table shows the median of the ratios.
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

from benchmarks.harness.record import log, machine, require_core, warn_about_load
from benchmarks.report import markdown_table
from clearhead.api import Model, load
from clearhead.data.readers.pairs import Pair, load_pairs
from clearhead.data.shortlist import Shortlist
from clearhead.engines.threads import set_num_threads
from clearhead.evaluation.metrics import bleu
from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer


@dataclass(frozen=True)
class Variant:
    """Results with one shortlist, or without."""

    name: str
    beam: int
    list_size: float
    """Mean number of allowed tokens per sentence; the vocabulary size without a shortlist."""
    seconds: list[float]
    seconds_one_by_one: list[float]
    bleu: float
    differing: int
    """Number of translations that differ from those without a shortlist."""


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
) -> list[Variant]:
    """Return the results of all shortlists with one beam size, measured alternately."""
    sources, sample = [pair.source for pair in pairs], [pair.source for pair in pairs[::every]]
    settings, encoded = model.decoding(beam_size=beam), model.tokenizer.encode_batch(sources)
    references = [reference_text(model.tokenizer, pair.target) for pair in pairs]
    whole: dict[str, list[float]] = {name: [] for name in lists}
    single: dict[str, list[float]] = {name: [] for name in lists}
    texts: dict[str, list[str]] = {}

    def translate(lines: list[str], shortlist: Shortlist | None) -> list[str]:
        return [output.text for output in model.translate_many(lines, settings=settings, shortlist=shortlist)]

    for number in range(rounds):
        for name, shortlist in lists.items():
            set_num_threads(cores)
            start = time.perf_counter()
            texts[name] = translate(sources, shortlist)
            whole[name].append(time.perf_counter() - start)
            set_num_threads(1)
            single[name].append(timed(lambda allowed=shortlist: [translate([line], allowed) for line in sample]))  # type: ignore[misc]
            log(
                f"round {number + 1}, beam {beam}, {name}: {whole[name][-1]:.1f} s, {single[name][-1]:.1f} s one by one"
            )
    plain = next(iter(lists))
    variants = []
    for name, shortlist in lists.items():
        sizes = [
            len(shortlist.allowed_targets(ids)) if shortlist else model.tokenizer.target.vocab_size for ids in encoded
        ]
        score = bleu(texts[name], references, tokenize=scoring_tokenizer(model.config))
        differing = sum(a != b for a, b in zip(texts[plain], texts[name], strict=True))
        variants.append(Variant(name, beam, statistics.mean(sizes), whole[name], single[name], score.value, differing))
    return variants


def render(variants: list[Variant]) -> str:
    """Return the table, one line per variant; ratios are medians over the rounds."""
    head = ["beam", "list", "tokens", "speed", "one by one", "BLEU", "loss", "differ"]
    rows = []
    for variant in variants:
        plain = next(each for each in variants if each.beam == variant.beam)
        ratios = [
            statistics.median(a / b for a, b in zip(getattr(plain, field), getattr(variant, field), strict=True))
            for field in ("seconds", "seconds_one_by_one")
        ]
        rows.append([str(variant.beam), variant.name, f"{variant.list_size:,.0f}",
                     *(f"{ratio:.2f}" for ratio in ratios), f"{variant.bleu:.2f}",
                     f"{plain.bleu - variant.bleu:.2f}", f"{variant.differing:,}"])  # fmt: skip
    return markdown_table(head, rows)


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.shortlist", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of a trained model")
    parser.add_argument("--pairs", type=Path, nargs="+", required=True, help="pairs to learn the shortlist from")
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="pairs to translate")
    parser.add_argument("--best", type=int, nargs="+", default=[20, 50, 100], help="target tokens per source token")
    parser.add_argument(
        "--frequent", type=int, default=100, help="most frequent target tokens, allowed in every sentence"
    )
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=int, default=10, help="every n-th sentence is also translated individually")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="file for the raw numbers (JSON)")
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    require_core()
    load_before = warn_about_load(options.cores)
    model, test = load(options.folder), load_pairs(options.test).records
    pairs = load_pairs(options.pairs).records
    lists: dict[str, Shortlist | None] = {"whole vocabulary": None}
    for best in options.best:
        start = time.perf_counter()
        lists[f"best {best}"] = model.learn_shortlist(pairs, best, options.frequent)
        log(f"learned a shortlist of the best {best} from {len(pairs):,} pairs in {time.perf_counter() - start:.1f} s")
    variants = [
        variant
        for beam in options.beams
        for variant in measure(model, test, lists, beam, options.rounds, options.cores, options.every)
    ]
    record = {"machine": {**machine(), "cores": options.cores, "load_before": load_before}, "sentences": len(test),
              "variants": [asdict(variant) for variant in variants]}  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))
    print(render(variants))


if __name__ == "__main__":
    main(sys.argv[1:])
