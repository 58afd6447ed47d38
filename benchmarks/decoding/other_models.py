"""GPT-2's shape and MiniLM: the native engine, CTranslate2, onnxruntime and transformers, in turns."""

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.language_models import KINDS
from benchmarks.decoding.translation import OWN_THREADS
from benchmarks.group import Group
from benchmarks.protocol import Setting
from benchmarks.record import say
from benchmarks.report import Result

PROMPT, NEW = 64, 64
ENCODER_BATCHES = (8, 16, 32, 64)
OWN_WEIGHTS = "transformers"
"""Contestant of GPT-2's shape whose random weights are others."""


def measure_gpt(out: Path, batch: int, rounds: int, cores: int, new: int = NEW) -> dict[str, Any]:
    """Return the speed of generating `new` tokens after a prompt; the same weights must give the same tokens."""
    with ExitStack() as stack:
        groups = {
            kind: stack.enter_context(Group("language_models", Setting(threads=cores), OWN_THREADS)) for kind in KINDS
        }
        results: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        outputs: dict[str, Any] = {}
        for kind, group in groups.items():
            group.ask("open", kind=kind, folder=str(out / "models"), threads=cores)
            outputs[kind] = group.ask("generate", batch=batch, prompt=PROMPT, new=new)[0]["outputs"]  # warm up
        for _ in range(rounds):
            for kind, group in groups.items():
                [answer] = group.ask("generate", batch=batch, prompt=PROMPT, new=new)
                results[kind].append({"tokens": answer["tokens"], "seconds": answer["seconds"]})
    rows = np.array(outputs["native"])
    same = {kind: int((np.array(found) == rows).all(1).sum()) for kind, found in outputs.items()}
    name = f"GPT-2's shape, prompt of {PROMPT}, {new} new tokens, batch {batch}"
    say(f"{name}: {_speeds(results)}, equal outputs {same}")
    return {"name": name, "results": results, "settings": {}, "same": same, "rows": batch}


def measure_minilm(bundle: Path, huggingface: Path, lines: Path, rounds: int, cores: int) -> dict[str, Any]:
    """Return the speed of sentence embeddings; peers use their fastest batch size."""
    with ExitStack() as stack:
        groups = {kind: stack.enter_context(Group("encoders", Setting(threads=cores), OWN_THREADS)) for kind in KINDS}
        results: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        best: dict[str, int] = {}
        vectors: dict[str, Any] = {}
        for kind, group in groups.items():
            group.ask("open", kind=kind, bundle=str(bundle), huggingface=str(huggingface), lines=str(lines),
                      threads=cores)  # fmt: skip
            vectors[kind] = np.array(group.ask("vectors", batch=8)[0]["vectors"])
            speeds = {batch: _embed(group, batch).speed for batch in (ENCODER_BATCHES if kind != "native" else (0,))}
            best[kind] = max(speeds, key=speeds.__getitem__)
        for _ in range(rounds):
            for kind, group in groups.items():
                results[kind].append(dataclasses.asdict(_embed(group, best[kind])))
    away = {kind: float(np.abs(found - vectors["native"]).max()) for kind, found in vectors.items()}
    name = "MiniLM, 1,000 sentences"
    say(f"{name}: {_speeds(results)}, largest difference {away}")
    settings = {kind: f"batch {batch}" if batch else "" for kind, batch in best.items()}
    return {"name": name, "results": results, "settings": settings, "largest_difference": away}


def _embed(group: Group, batch: int) -> Result:
    [answer] = group.ask("embed", batch=batch)
    return Result(answer["tokens"], answer["seconds"])


def _speeds(results: dict[str, list[Any]]) -> str:
    means = {kind: sum(r["tokens"] for r in some) / sum(r["seconds"] for r in some) for kind, some in results.items()}
    return ", ".join(f"{kind} {speed:,.0f} tokens/s" for kind, speed in means.items())
