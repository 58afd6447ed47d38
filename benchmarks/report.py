"""The table, from the record that a run leaves: `python -m benchmarks.report out/<file>.json` prints it again."""

import dataclasses
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Result:
    """One measurement."""

    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def render(record: dict[str, Any]) -> str:
    """The whole answer of a run, as Markdown."""
    return "\n\n".join([_heading(record), _table(record), _footing(record)])


def _heading(record: dict[str, Any]) -> str:
    task, plan, host = record["task"], record["plan"], record["machine"]
    lines = [
        f"{record['date']}, {host['cores']} cores ({host['processor']}, {host['instructions']}), "
        f"torch {host['torch']}, Python {host['python']}, float32",
        f"{task['num_layers']}+{task['num_layers']} layers, {task['model_dim']} wide, {task['inner_dim']} inner, "
        f"{task['num_heads']} heads, {task['vocab_size']:,} joint BPE pieces, tied embeddings, "
        f"dropout {task['dropout']}, label smoothing {task['label_smoothing']}, "
        f"the same batches of at most {task['batch_tokens']:,} tokens",
        f"Multi30k English to German; training: target tokens a second over {plan['steps']} updates; decoding: "
        f"{task['output_tokens']} tokens for each validation sentence; median of {plan['rounds']} rounds, in turns",
    ]
    if record["is_quick"]:
        lines.append("A quick run, only to see whether everything works: the numbers mean nothing.")
    return "\n".join(lines)


def _table(record: dict[str, Any]) -> str:
    names = [contestant["name"] for contestant in record["contestants"]]
    peers = [name for name in names if name != "clearhead"]
    head = ["tokens a second", "contestant", "median", "min..max", *(f"to {name}" for name in peers), "fastest setting"]
    rows = []
    for measure, by_name in record["results"].items():
        speeds = {name: [Result(**taken).speed for taken in by_name[name]] for name in names if name in by_name}
        medians = {name: statistics.median(taken) for name, taken in speeds.items()}
        for contestant in record["contestants"]:
            name = contestant["name"]
            if name not in medians:
                continue
            spread = f"{min(speeds[name]):,.0f}..{max(speeds[name]):,.0f}"
            ratios = [f"{medians[name] / medians[peer]:.2f}" if peer in medians else "" for peer in peers]
            rows.append([measure, name, f"{medians[name]:,.0f}", spread, *ratios, contestant["settings"][measure]])
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


if __name__ == "__main__":
    print(render(json.loads(Path(sys.argv[1]).read_text())))
