"""Train by a recipe, evaluate, and write docs/results.md: `python -m benchmarks.results NAME --data DIR`.

Each run (one variant, one seed) writes a JSON file. Finished runs are skipped, so an interrupted command can be
repeated.
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
from benchmarks.harness.record import require_core
from benchmarks.results.experiments import EXPERIMENTS, Experiment
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

LENGTHS = (0, 8, 12, 16, 20, 1000)  # bounds of source lengths in words, for scores by length


def main() -> None:
    """Run the unfinished runs of the given experiments and update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}; none: list them")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the original data sets")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"))
    parser.add_argument("--seeds", type=int, nargs="*", help="seeds (default: the experiment's)")
    parser.add_argument("--variants", nargs="*", metavar="VARIANT", help="run only these variants")
    parser.add_argument("--page-only", action="store_true", help="only write docs/results.md from finished runs")
    arguments = parser.parse_args()
    require_core()
    if not arguments.names:
        print(
            "\n".join(
                f"{experiment.name:<20} {experiment.title}; {experiment.criterion}"
                for experiment in EXPERIMENTS.values()
            )
        )
    for name in arguments.names:
        experiment = EXPERIMENTS[name]
        if not arguments.page_only:
            for variant in arguments.variants or experiment.variants:
                for seed in arguments.seeds or experiment.seeds:
                    run(experiment, variant, seed, arguments.data, arguments.runs / name)
        write_section(experiment, sorted((arguments.runs / name).glob("*.json")))


def run(experiment: Experiment, variant: str, seed: int, data: Path, folder: Path) -> None:
    """Train and evaluate one run, unless it is finished."""
    label = f"{variant.replace(' ', '-') or experiment.name}-{seed}"
    result = folder / f"{label}.json"
    if result.exists():
        print(f"{result} exists, skipping this run")
        return
    (folder / "data").mkdir(parents=True, exist_ok=True)
    files = experiment.prepare(data, folder / "data")
    settings = settings_of(experiment, variant, seed)
    with training_display() as watcher:
        watcher.message(f"{experiment.name} {variant} seed {seed}")
        start = import_once(data / experiment.start, folder / "start") if experiment.start else None
        model = clearhead.train(
            list(files.train), folder / label, valid=list(files.valid), settings=settings, overwrite=True,
            start=start, callback=watcher,
        )  # fmt: skip
    facts = {
        "variant": variant,
        "seed": seed,
        "machine": machine(),
        "training": {name: model.manifest.training[name] for name in ("minutes", "cpu_minutes", "steps", "parameters")},
        "tests": evaluate(experiment, model, files),
    }
    write_atomically(result, (json.dumps(facts, indent=1) + "\n").encode())


def import_once(checkpoint: Path, folder: Path) -> Path:
    """Return the model folder of another toolkit's checkpoint, importing it if necessary."""
    if not bundle.exists(folder):
        import_checkpoint(ImportSource(checkpoint), folder)
    return folder


def settings_of(experiment: Experiment, variant: str, seed: int) -> dict[str, Any]:
    """Return the settings of the recipe, overridden by those of the variant; None removes a setting."""
    recipe = tomllib.loads(experiment.recipe_file.read_text(encoding="utf-8"))
    settings = merge(merge(recipe, experiment.variants[variant]), {"training": {"seed": seed}})
    return {name: {field: value for field, value in section.items() if value is not None}
            if isinstance(section, dict) else section for name, section in settings.items()}  # fmt: skip


def evaluate(experiment: Experiment, model: Any, files: Files) -> dict[str, Any]:
    """Return the scores on each test set."""
    scores: dict[str, Any] = {}
    for name, paths in files.tests.items():
        report = dict(model.evaluate_files(paths).to_json())
        scores[name] = {path: read_score(report, path) for path in experiment.scores}
        scores[name]["signature"] = signature(report, experiment.scores[0])
        if experiment.by_length:
            scores[name]["by_length"] = bleu_by_length(model, paths)
        print(name, scores[name])
    return scores


def read_score(report: Mapping[str, Any], path: str) -> float:
    """Return the value at a dotted path of a report, such as bleu.score."""
    value: Any = report
    for key in path.split("."):
        value = value[key]
    return float(value) if value is not None else math.nan


def signature(report: Mapping[str, Any], path: str) -> str:
    """Return the signature of the score at a dotted path."""
    part = report[path.split(".")[0]]
    return str(part["signature"]) if isinstance(part, dict) else f"{path}|examples:{report['examples']}"


def machine() -> str:
    """Return the properties of the machine that times depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}, torch {torch.__version__}"


def bleu_by_length(model: Any, paths: Sequence[Path]) -> dict[str, float]:
    """Return the BLEU of sentences grouped by source length in words."""
    pairs = load_pairs(paths).records
    texts = translate_unsplit(model, [pair.source for pair in pairs], model.config.decoding)
    scores = {}
    for low, high in pairwise(LENGTHS):
        indices = [index for index, pair in enumerate(pairs) if low < len(pair.source.split()) <= high]
        if indices:
            references = [reference_text(model.tokenizer, pairs[index].target) for index in indices]
            score = bleu([texts[index] for index in indices], references, tokenize=scoring_tokenizer(model.config))
            scores[f"{low + 1} to {high} words ({len(indices)})"] = score.value
    return scores


if __name__ == "__main__":
    main()
