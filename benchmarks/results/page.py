"""One section of docs/results.md, made from the JSON files of its runs."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results.entries import Entry
from benchmarks.sections import put
from clearhead.files import write_atomically

PAGE = Path("docs/results.md")


def write_section(entry: Entry, results: Sequence[Path]) -> None:
    """Puts the section in its place, or at the end where there is none yet."""
    if not results:
        return
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    page = put(PAGE.read_text(encoding="utf-8"), entry.name, "make results", render(entry, runs))
    write_atomically(PAGE, page.encode())


def render(entry: Entry, runs: Sequence[dict[str, Any]]) -> str:
    """The section as Markdown."""
    rows = [
        f"### {entry.title}",
        "",
        f"`make results NAME={entry.name}`, recipe `{entry.recipe_file}`. Bar: {entry.bar}.",
    ]
    if entry.start:
        rows[-1] += f" Starts from `DATA/{entry.start}`, imported."
    for name in runs[0]["tests"]:
        rows += ["", *_table(entry, runs, name)]
        rows += ["", f"Test set: {name}. Signature: `{runs[0]['tests'][name]['signature']}`."]
        rows += [f"Machine: {'; '.join(sorted({run['machine'] for run in runs}))}."]
        if entry.by_length:
            rows += ["", *_length_table(entry, runs, name)]
    return "\n".join(rows)


def _by_variant(entry: Entry, runs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups = {variant: [run for run in runs if run["variant"] == variant] for variant in entry.variants}
    return {variant: group for variant, group in groups.items() if group}


def _table(entry: Entry, runs: Sequence[dict[str, Any]], test: str) -> list[str]:
    names = [score.removesuffix(".score") for score in entry.scores]
    rows = [
        f"| | seeds | {' | '.join(names)} | parameters | updates | minutes | CPU minutes |",
        f"|---|---:|{'---:|' * (len(names) + 4)}",
    ]
    for variant, group in _by_variant(entry, runs).items():
        scores = [_spread([run["tests"][test][score] for run in group], score) for score in entry.scores]
        training = [run["training"] for run in group]
        facts = [
            f"{training[0]['parameters']:,}",
            f"{statistics.mean(one['steps'] for one in training):,.0f}",
            f"{statistics.mean(one['minutes'] for one in training):.1f}",
            f"{statistics.mean(one['cpu_minutes'] for one in training):.1f}",
        ]
        rows.append(f"| {variant or entry.name} | {len(group)} | {' | '.join(scores + facts)} |")
    return rows


def _spread(values: Sequence[float], score: str) -> str:
    """The mean, and lowest to highest where there are several; shares as percent."""
    is_share = score in (
        "exact_match",
        "accuracy.score",
        "macro_f1.score",
        "f1.score",
        "precision.score",
        "recall.score",
    )
    shown = [100 * value for value in values] if is_share else list(values)
    mean = f"{statistics.mean(shown):.2f}"
    return mean if len(shown) == 1 else f"{mean} ({min(shown):.2f} to {max(shown):.2f})"


def _length_table(entry: Entry, runs: Sequence[dict[str, Any]], test: str) -> list[str]:
    lengths = list(runs[0]["tests"][test]["by_length"])
    rows = [f"| BLEU by source length | {' | '.join(lengths)} |", f"|---|{'---:|' * len(lengths)}"]
    for variant, group in _by_variant(entry, runs).items():
        cells = [f"{statistics.mean(run['tests'][test]['by_length'][each] for run in group):.1f}" for each in lengths]
        rows.append(f"| {variant} | {' | '.join(cells)} |")
    return rows
