"""The table, from the record that a run leaves: `python -m benchmarks.report out/<file>.json` prints any of them."""

import dataclasses
import importlib
import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

QUICK_NOTE = "A quick run, only to see whether everything works: the numbers mean nothing."
RENDERERS = {"run": "report", "decoding": "decoding.page", "train": "train", "against": "against"}
"""The module that knows the table of a benchmark's record."""


@dataclasses.dataclass(frozen=True)
class Result:
    """One measurement."""

    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Speeds:
    """One measure of several contestants, one result a round."""

    def __init__(self, results: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        self.taken = {
            name: [Result(one["tokens"], one["seconds"]).speed for one in rounds] for name, rounds in results.items()
        }
        self.medians = {name: statistics.median(speeds) for name, speeds in self.taken.items()}

    def cells(self, name: str) -> list[str]:
        """The median and the spread."""
        speeds = self.taken[name]
        return [f"{self.medians[name]:,.0f}", f"{min(speeds):,.0f}..{max(speeds):,.0f}"]

    def ratios(self, name: str, peers: Iterable[str]) -> list[str]:
        """How many times as fast as each of the peers; nothing for those that were not measured."""
        medians = self.medians
        return [f"{medians[name] / medians[peer]:.2f}" if peer in medians else "" for peer in peers]


def host_line(record: dict[str, Any]) -> str:
    """When and where."""
    host = record["machine"]
    return (
        f"{record['date']}, {host['cores']} cores ({host.get('cpu') or host['processor']}, {host['instructions']}), "
        f"torch {host['torch']}, Python {host['python']}"
    )


def render(record: dict[str, Any]) -> str:
    """The whole answer of a run, as Markdown."""
    return "\n\n".join([_heading(record), _table(record), _footing(record)])


def _heading(record: dict[str, Any]) -> str:
    task, plan = record["task"], record["plan"]
    lines = [
        f"{host_line(record)}, float32",
        f"{task['num_layers']}+{task['num_layers']} layers, {task['model_dim']} wide, {task['inner_dim']} inner, "
        f"{task['num_heads']} heads, {task['vocab_size']:,} joint BPE pieces, tied embeddings, "
        f"dropout {task['dropout']}, label smoothing {task['label_smoothing']}, "
        f"the same batches of at most {task['batch_tokens']:,} tokens",
        f"Multi30k English to German; training: target tokens a second over {plan['steps']} updates; decoding: "
        f"{task['output_tokens']} tokens for each validation sentence; median of {plan['rounds']} rounds, in turns",
    ]
    if record["is_quick"]:
        lines.append(QUICK_NOTE)
    return "\n".join(lines)


def _table(record: dict[str, Any]) -> str:
    names = [contestant["name"] for contestant in record["contestants"]]
    peers = [name for name in names if name != "clearhead"]
    head = ["tokens a second", "contestant", "median", "min..max", *(f"to {name}" for name in peers), "fastest setting"]
    rows = []
    for measure, by_name in record["results"].items():
        speeds = Speeds(by_name)
        for contestant in record["contestants"]:
            name = contestant["name"]
            if name in by_name:
                setting = contestant["settings"][measure]
                rows.append([measure, name, *speeds.cells(name), *speeds.ratios(name, peers), setting])
    return aligned(head, rows)


def aligned(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first two columns and the last hold text."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    is_text = [i < 2 or i == len(head) - 1 for i in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [c.ljust(w) if text else c.rjust(w) for c, w, text in zip(cells, widths, is_text, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if text else ("-" * (w - 1) + ":") for w, text in zip(widths, is_text, strict=True)]
    return "\n".join([line(head), line(rule), *map(line, rows)])


def _footing(record: dict[str, Any]) -> str:
    return "\n".join(
        f"- {c['name']} {c['version']}: {c['parameters']:,} parameters, validation loss {c['loss']:.2f} after "
        f"{record['plan']['learn']} updates; {c['notes']}"
        for c in record["contestants"]
    )


def render_any(record: dict[str, Any]) -> str:
    """The table of whichever benchmark left this record; records from before they said so are of `benchmarks.run`."""
    module = importlib.import_module(f"benchmarks.{RENDERERS[record.get('benchmark', 'run')]}")
    return str(module.render(record))


if __name__ == "__main__":
    print(render_any(json.loads(Path(sys.argv[1]).read_text())))
