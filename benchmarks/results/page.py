"""Sections of docs/results.md, generated from the JSON files of the runs."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import replace_section
from benchmarks.results.experiments import Experiment
from clearhead.files import write_atomically

PAGE = Path("docs/results.md")


def write_section(experiment: Experiment, results: Sequence[Path]) -> None:
    """Replace the section of an experiment, or append it to the page."""
    if not results:
        return
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    page = replace_section(PAGE.read_text(encoding="utf-8"), experiment.name, "make results", render(experiment, runs))
    write_atomically(PAGE, page.encode())


def render(experiment: Experiment, runs: Sequence[dict[str, Any]]) -> str:
    """Return the section as Markdown."""
    rows = [
        f"### {experiment.title}",
        "",
        f"`make results NAME={experiment.name}`, recipe `{experiment.recipe_file}`. Criterion: {experiment.criterion}.",
    ]
    if experiment.start:
        rows[-1] += f" Fine-tuned from the imported `DATA/{experiment.start}`."
    for name in runs[0]["tests"]:
        rows += ["", *_table(experiment, runs, name)]
        rows += ["", f"Test set: {name}. Signature: `{runs[0]['tests'][name]['signature']}`."]
        rows += [f"Machine: {'; '.join(sorted({run['machine'] for run in runs}))}."]
        if experiment.by_length:
            rows += ["", *_length_table(experiment, runs, name)]
    return "\n".join(rows)


def _by_variant(experiment: Experiment, runs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups = {variant: [run for run in runs if run["variant"] == variant] for variant in experiment.variants}
    return {variant: group for variant, group in groups.items() if group}


def _table(experiment: Experiment, runs: Sequence[dict[str, Any]], test: str) -> list[str]:
    names = [score.removesuffix(".score") for score in experiment.scores]
    rows = [
        f"| | seeds | {' | '.join(names)} | parameters | updates | minutes | CPU minutes |",
        f"|---|---:|{'---:|' * (len(names) + 4)}",
    ]
    for variant, group in _by_variant(experiment, runs).items():
        scores = [_spread([run["tests"][test][score] for run in group], score) for score in experiment.scores]
        training = [run["training"] for run in group]
        facts = [
            f"{training[0]['parameters']:,}",
            f"{statistics.mean(each['steps'] for each in training):,.0f}",
            f"{statistics.mean(each['minutes'] for each in training):.1f}",
            f"{statistics.mean(each['cpu_minutes'] for each in training):.1f}",
        ]
        rows.append(f"| {variant or experiment.name} | {len(group)} | {' | '.join(scores + facts)} |")
    return rows


def _spread(values: Sequence[float], score: str) -> str:
    """Return the mean and, of several values, the range; fractions as percentages."""
    is_fraction = score in (
        "exact_match",
        "accuracy.score",
        "macro_f1.score",
        "f1.score",
        "precision.score",
        "recall.score",
    )
    scaled = [100 * value for value in values] if is_fraction else list(values)
    mean = f"{statistics.mean(scaled):.2f}"
    return mean if len(scaled) == 1 else f"{mean} ({min(scaled):.2f} to {max(scaled):.2f})"


def _length_table(experiment: Experiment, runs: Sequence[dict[str, Any]], test: str) -> list[str]:
    lengths = list(runs[0]["tests"][test]["by_length"])
    rows = [f"| BLEU by source length | {' | '.join(lengths)} |", f"|---|{'---:|' * len(lengths)}"]
    for variant, group in _by_variant(experiment, runs).items():
        cells = [f"{statistics.mean(run['tests'][test]['by_length'][each] for run in group):.1f}" for each in lengths]
        rows.append(f"| {variant} | {' | '.join(cells)} |")
    return rows
