"""`python -m benchmarks.results NAME --data DIR`: train by the recipe, test, and write docs/results.md.

Each run (one variant, one seed) leaves a JSON file; a run that is there is not run again, so a run that was stopped
goes on where it was.
"""

import argparse
import json
import math
import os
import platform
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import clearhead
from benchmarks.core import require_core
from benchmarks.results.entries import ENTRIES, Entry
from benchmarks.results.page import write_section
from benchmarks.results.prepare import Files
from clearhead import bundle
from clearhead.cli.training_display import training_display
from clearhead.config import merge
from clearhead.data.readers.pairs import load_pairs
from clearhead.evaluation.metrics import bleu
from clearhead.files import write_atomically
from clearhead.interop.importer import ImportSource, import_checkpoint
from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer, translate_unsplit

LENGTHS = (0, 8, 12, 16, 20, 1000)  # words of a source, for scores by length


def main() -> None:
    """Runs what is missing of one entry, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(ENTRIES)}; none: list them")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the original data sets")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"))
    parser.add_argument("--seeds", type=int, nargs="*", help="other seeds than the entry's")
    parser.add_argument("--variants", nargs="*", metavar="VARIANT", help="only these of an entry that compares several")
    parser.add_argument("--page-only", action="store_true", help="only write docs/results.md from what is there")
    arguments = parser.parse_args()
    require_core()
    if not arguments.names:
        print("\n".join(f"{entry.name:<20} {entry.title}; {entry.bar}" for entry in ENTRIES.values()))
    for name in arguments.names:
        entry = ENTRIES[name]
        if not arguments.page_only:
            for variant in arguments.variants or entry.variants:
                for seed in arguments.seeds or entry.seeds:
                    run(entry, variant, seed, arguments.data, arguments.runs / name)
        write_section(entry, sorted((arguments.runs / name).glob("*.json")))


def run(entry: Entry, variant: str, seed: int, data: Path, folder: Path) -> None:
    """One training and its test, unless its result is there."""
    label = f"{variant.replace(' ', '-') or entry.name}-{seed}"
    result = folder / f"{label}.json"
    if result.exists():
        print(f"{result} is there")
        return
    (folder / "data").mkdir(parents=True, exist_ok=True)
    files = entry.prepare(data, folder / "data")
    settings = settings_of(entry, variant, seed)
    with training_display() as watcher:
        watcher.message(f"{entry.name} {variant} seed {seed}")
        start = imported(data / entry.start, folder / "start") if entry.start else None
        model = clearhead.train(
            list(files.train), folder / label, valid=list(files.valid), settings=settings, overwrite=True,
            start=start, callback=watcher,
        )  # fmt: skip
    facts = {
        "variant": variant,
        "seed": seed,
        "machine": machine(),
        "training": {name: model.manifest.training[name] for name in ("minutes", "cpu_minutes", "steps", "parameters")},
        "tests": test(entry, model, files),
    }
    write_atomically(result, (json.dumps(facts, indent=1) + "\n").encode())


def imported(checkpoint: Path, folder: Path) -> Path:
    """A checkpoint of another toolkit as a model folder, made once."""
    if not bundle.exists(folder):
        import_checkpoint(ImportSource(checkpoint), folder)
    return folder


def settings_of(entry: Entry, variant: str, seed: int) -> dict[str, Any]:
    """The recipe, and on top of it what the variant sets or takes away."""
    recipe = tomllib.loads(entry.recipe_file.read_text(encoding="utf-8"))
    settings = merge(merge(recipe, entry.variants[variant]), {"training": {"seed": seed}})
    return {name: {field: value for field, value in section.items() if value is not None}
            if isinstance(section, dict) else section for name, section in settings.items()}  # fmt: skip


def test(entry: Entry, model: Any, files: Files) -> dict[str, Any]:
    """The scores on each test set."""
    found: dict[str, Any] = {}
    for name, paths in files.tests.items():
        report = dict(model.evaluate_files(paths).to_json())
        found[name] = {path: pick(report, path) for path in entry.scores}
        found[name]["signature"] = signature(report, entry.scores[0])
        if entry.by_length:
            found[name]["by_length"] = bleu_by_length(model, paths)
        print(name, found[name])
    return found


def pick(report: Mapping[str, Any], path: str) -> float:
    """A figure by its path, such as bleu.score."""
    value: Any = report
    for key in path.split("."):
        value = value[key]
    return float(value) if value is not None else math.nan


def signature(report: Mapping[str, Any], path: str) -> str:
    """The signature of a score."""
    part = report[path.split(".")[0]]
    return str(part["signature"]) if isinstance(part, dict) else f"{path}|examples:{report['examples']}"


def machine() -> str:
    """What the time depends on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}, torch {torch.__version__}"


def bleu_by_length(model: Any, paths: Sequence[Path]) -> dict[str, float]:
    """BLEU of the sentences of like source length, in words."""
    pairs = load_pairs(paths).records
    texts = translate_unsplit(model, [pair.source for pair in pairs], model.config.decoding)
    scores = {}
    for low, high in pairwise(LENGTHS):
        chosen = [index for index, pair in enumerate(pairs) if low < len(pair.source.split()) <= high]
        if chosen:
            references = [reference_text(model.tokenizer, pairs[index].target) for index in chosen]
            score = bleu([texts[index] for index in chosen], references, tokenize=scoring_tokenizer(model.config))
            scores[f"{low + 1} to {high} words ({len(chosen)})"] = score.value
    return scores


if __name__ == "__main__":
    main()
