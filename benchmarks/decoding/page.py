"""Tables of a record of the decoding benchmark."""

from typing import Any

from benchmarks.decoding.quality import (
    LEAST_AGREEMENT,
    MOST_BLEU_LOSS,
    MOST_MEMORY,
    RELATIVE_TOLERANCE,
    TOLERANCE,
    is_near_tie,
)
from benchmarks.report import QUICK_NOTE, Speeds, machine_line, markdown_table


def render(record: dict[str, Any]) -> str:
    """Return the result of a run as Markdown."""
    parts = [_heading(record)]
    if record["translation"]:
        parts.append(_translation(record))
    if record["interface"]:
        parts.append(_interface(record["interface"]))
    if record["other_models"]:
        parts.append(_other_models(record))
    if record["quality"]:
        parts.append(_quality(record["quality"]))
    return "\n\n".join(parts)


def _heading(record: dict[str, Any]) -> str:
    lines = [
        f"{machine_line(record)}, CTranslate2 {record['ctranslate2']}; kernels of the core: {record['isa']}",
        f"Models trained on Multi30k, validation set, natural sentence ends, tokens per second; "
        f"median of {record['plan']['rounds']} alternating rounds",
    ]
    return "\n".join([*lines, *[QUICK_NOTE] * record["is_quick"]])


def _ratio_range(results: dict[str, list[Any]], ours: str, theirs: str) -> str:
    """Return the lowest and the highest ratio of the rounds."""
    ratios = [(a["tokens"] / a["seconds"]) / (b["tokens"] / b["seconds"])
              for a, b in zip(results[ours], results[theirs], strict=True)]  # fmt: skip
    return f"{min(ratios):.2f}..{max(ratios):.2f}"


def _translation(record: dict[str, Any]) -> str:
    head = ["", "", "native", "CTranslate2", "ratio", "rounds", "target", "CTranslate2's fastest setting"]
    rows = []
    for row in record["translation"]:
        speeds = Speeds(row["results"]).medians
        names = ("native", "ctranslate2") if "native" in speeds else ("with", "without")
        ratio, target = speeds[names[0]] / speeds[names[1]], row["target"]
        verdict = "" if target is None else _verdict(ratio >= target)
        rows.append([row["name"], verdict, *(f"{speeds[name]:,.0f}" for name in names), f"{ratio:.2f}",
                     _ratio_range(row["results"], *names), f"{target or ''}",
                     row.get("setting", "native engine without a shortlist instead of CTranslate2")])  # fmt: skip
    return markdown_table(head, rows)


def _interface(times: dict[str, Any]) -> str:
    return (
        f"A model of 1 + 1 layers, 16 wide, which generates {times['tokens']} tokens per sentence, takes "
        f"{times['ctranslate2']:.0f} microseconds per sentence with CTranslate2 and {times['native']:.0f} with the "
        "native engine (one thread): an upper bound of the cost of their interfaces (strings, ids)."
    )


def _other_models(record: dict[str, Any]) -> str:
    peers = ("ctranslate2", "onnxruntime", "transformers")
    head = ["tokens per second", "", "native", *peers, *(f"native / {peer}" for peer in peers), "batches"]
    rows = []
    for row in record["other_models"]:
        medians = Speeds(row["results"]).medians
        settings = ", ".join(f"{kind}: {text}" for kind, text in row["settings"].items() if text)
        rows.append([row["name"], "", *(f"{medians[kind]:,.0f}" for kind in ("native", *peers)),
                     *(f"{medians['native'] / medians[peer]:.2f}" for peer in peers), settings])  # fmt: skip
    return markdown_table(head, rows)


def _verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


def _log_probs(comparison: dict[str, Any]) -> list[str]:
    """Return the line on log-probabilities of a comparison with torch, none for records without them."""
    if not (difference := comparison.get("log_probs")):
        return []
    name = f"{comparison['shape']}, beam {comparison['beam']}"
    return [
        f"- {_verdict(difference['of_tolerance'] <= 1)}: {name}: log-probabilities of "
        f"{difference['tokens']:,} tokens of equal translations differ by at most {difference['largest']:.1e} "
        f"({difference['of_tolerance']:.0%} of {TOLERANCE:g} + {RELATIVE_TOLERANCE:g} |x|)"
    ]


def _quality(quality: dict[str, Any]) -> str:
    lines = []
    for one in quality.get("agreement", []):
        differing, count = one["differing"], one["sentences"]
        close = sum(map(is_near_tie, differing))
        agrees = count - len(differing) >= LEAST_AGREEMENT * count and close == len(differing)
        lines.append(f"- {_verdict(agrees)}: {one['shape']}, beam {one['beam']}: the same text as the torch engine for "
                     f"{count - len(differing)} of {count} sentences (least: {LEAST_AGREEMENT * count:.0f}); "
                     f"{close} of {len(differing)} differing ones are near-ties")  # fmt: skip
        lines += [f"  - margin {each['margin']:.1e}: {each['native']!r}, torch {each['torch']!r}" for each in differing]
        lines += _log_probs(one)
    for one in quality.get("int8", []):
        loss = one["float32"] - one["int8"]
        lines.append(f"- {_verdict(loss <= MOST_BLEU_LOSS)}: {one['shape']}, beam {one['beam']}: BLEU "
                     f"{one['float32']:.2f} in float32, {one['int8']:.2f} in int8 (loses {loss:.2f}, at most "
                     f"{MOST_BLEU_LOSS})")  # fmt: skip
    mib = 2**20
    for one in quality.get("memory", []):
        ratio = one["after"] / (one["weights"] + one["cache"])
        loaded, weights, after, cache = (
            f"{one[name] / mib:.0f} MiB" for name in ("loaded", "weights", "after", "cache")
        )
        lines.append(
            f"- {_verdict(ratio <= MOST_MEMORY)}: {one['shape']}, beam {one['beam']}: the core allocates {loaded} for "
            f"weights of {weights}, {after} "
            f"after translating the set (KV cache {cache}): {ratio:.2f} times both, at most {MOST_MEMORY}"
        )
    return "\n".join(lines)
