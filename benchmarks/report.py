"""Tables of benchmark records, and generated sections of pages: `python -m benchmarks.report out/<file>.json`."""

import dataclasses
import importlib
import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

QUICK_NOTE = "Quick run, only to check that everything works: the numbers are meaningless."
RENDERERS = {"run": "report", "decoding": "decoding.page", "train": "train", "against": "against"}
"""Benchmark -> module that renders its record."""


@dataclasses.dataclass(frozen=True)
class Result:
    """Generated or processed tokens, and the seconds taken."""

    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        """Return tokens per second."""
        return self.tokens / self.seconds


class Speeds:
    """Speeds of several contestants in one measurement, with one result per round."""

    def __init__(self, results: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        self.by_name = {
            name: [Result(each["tokens"], each["seconds"]).speed for each in rounds] for name, rounds in results.items()
        }
        self.medians = {name: statistics.median(speeds) for name, speeds in self.by_name.items()}

    def cells(self, name: str) -> list[str]:
        """Return the median and the range as text."""
        speeds = self.by_name[name]
        return [f"{self.medians[name]:,.0f}", f"{min(speeds):,.0f}..{max(speeds):,.0f}"]

    def ratios(self, name: str, peers: Iterable[str]) -> list[str]:
        """Return the speed relative to each peer as text, "" for peers that were not measured."""
        medians = self.medians
        return [f"{medians[name] / medians[peer]:.2f}" if peer in medians else "" for peer in peers]


def machine_line(record: dict[str, Any]) -> str:
    """Return date, CPU and versions as one line."""
    host = record["machine"]
    return (
        f"{record['date']}, {host['cores']} cores ({host.get('cpu') or host['processor']}, {host['instructions']}), "
        f"torch {host['torch']}, Python {host['python']}"
    )


def render(record: dict[str, Any]) -> str:
    """Return the result of a run as Markdown."""
    return "\n\n".join([_heading(record), _table(record), _footing(record)])


def _heading(record: dict[str, Any]) -> str:
    task, plan = record["task"], record["plan"]
    lines = [
        f"{machine_line(record)}, float32",
        f"{task['num_layers']}+{task['num_layers']} layers, {task['model_dim']} wide, {task['inner_dim']} inner, "
        f"{task['num_heads']} heads, {task['vocab_size']:,} joint BPE tokens, tied embeddings, "
        f"dropout {task['dropout']}, label smoothing {task['label_smoothing']}, "
        f"the same batches of at most {task['batch_tokens']:,} tokens",
        f"Multi30k English to German; training: target tokens per second over {plan['steps']} updates; decoding: "
        f"{task['output_tokens']} tokens for each validation sentence; median of {plan['rounds']} alternating rounds",
    ]
    if record["is_quick"]:
        lines.append(QUICK_NOTE)
    return "\n".join(lines)


def _table(record: dict[str, Any]) -> str:
    names = [contestant["name"] for contestant in record["contestants"]]
    peers = [name for name in names if name != "clearhead"]
    head = [
        "tokens per second",
        "contestant",
        "median",
        "min..max",
        *(f"relative to {name}" for name in peers),
        "fastest setting",
    ]
    rows = []
    for measure, by_name in record["results"].items():
        speeds = Speeds(by_name)
        for contestant in record["contestants"]:
            name = contestant["name"]
            if name in by_name:
                setting = contestant["settings"][measure]
                rows.append([measure, name, *speeds.cells(name), *speeds.ratios(name, peers), setting])
    return markdown_table(head, rows)


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; the first two columns and the last one contain text."""
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


def replace_section(page: str, name: str, command: str, text: str) -> str:
    """Return the page with a new text of the generated section, appended if the page does not contain it."""
    begin, end = _markers(name, command)
    section = f"{begin}\n{text}\n{end}\n"
    if begin not in page:
        return f"{page.rstrip()}\n\n{section}"
    before, rest = page.split(begin)
    return before + section + rest.split(f"{end}\n")[1]


def read_section(page: str, name: str, command: str) -> str | None:
    """Return the text of a generated section, None if the page does not contain it."""
    begin, end = _markers(name, command)
    if begin not in page:
        return None
    return page.split(begin)[1].split(end)[0].strip("\n")


def _markers(name: str, command: str) -> tuple[str, str]:
    return f"<!-- {name}: generated by {command} -->", f"<!-- end of {name} -->"


def render_record(record: dict[str, Any]) -> str:
    """Return the Markdown of a record; records without the name of a benchmark are those of `benchmarks.run`."""
    module = importlib.import_module(f"benchmarks.{RENDERERS[record.get('benchmark', 'run')]}")
    return str(module.render(record))


if __name__ == "__main__":
    print(render_record(json.loads(Path(sys.argv[1]).read_text())))
