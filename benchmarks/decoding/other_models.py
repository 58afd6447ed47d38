"""Comparison on GPT-2's shape and MiniLM: native engine, CTranslate2, onnxruntime and transformers, alternating."""

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.language_models import KINDS
from benchmarks.decoding.translation import OWN_THREADS
from benchmarks.harness.processes import Processes
from benchmarks.harness.protocol import Setting
from benchmarks.harness.record import log
from benchmarks.report import Result

PROMPT, NEW = 64, 64
ENCODER_BATCHES = (8, 16, 32, 64)
WORKERS = {"encoders": ("ctranslate2", "onnxruntime"), "language_models": ("ctranslate2",)}
"""Contestants that can divide batches among several workers."""
OWN_WEIGHTS = "transformers"
"""Contestant of GPT-2's shape with different random weights."""


def measure_gpt(out: Path, batch: int, rounds: int, cores: int, new: int = NEW) -> dict[str, Any]:
    """Return the speed of generating `new` tokens after a prompt, and the number of equal outputs.

    Peers use their fastest number of workers.
    """
    with ExitStack() as stack:
        groups = {
            kind: stack.enter_context(Processes("language_models", Setting(threads=cores), OWN_THREADS))
            for kind in KINDS
        }
        results: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        outputs: dict[str, Any] = {}
        best: dict[str, int] = {}
        for kind, group in groups.items():
            speeds = {}
            for workers in (1, cores) if kind in WORKERS["language_models"] and batch > 1 else (1,):
                group.ask("open", kind=kind, folder=str(out / "models"), threads=cores, workers=workers)
                group.ask("generate", batch=batch, prompt=PROMPT, new=new)  # warm up
                [answer] = group.ask("generate", batch=batch, prompt=PROMPT, new=new)
                outputs[kind], speeds[workers] = answer["outputs"], answer["tokens"] / answer["seconds"]
            best[kind] = max(speeds, key=speeds.__getitem__)
            if best[kind] != workers:
                group.ask("open", kind=kind, folder=str(out / "models"), threads=cores, workers=best[kind])
        for _ in range(rounds):
            for kind, group in groups.items():
                [answer] = group.ask("generate", batch=batch, prompt=PROMPT, new=new)
                results[kind].append({"tokens": answer["tokens"], "seconds": answer["seconds"]})
    rows = np.array(outputs["native"])
    same = {kind: int((np.array(tokens) == rows).all(1).sum()) for kind, tokens in outputs.items()}
    name = f"GPT-2's shape, prompt of {PROMPT}, {new} new tokens, batch {batch}"
    log(f"{name}: {_speeds(results)}, equal outputs {same}")
    return {
        "name": name,
        "results": results,
        "settings": {kind: f"{count} workers" for kind, count in best.items() if count > 1},
        "same": same,
        "rows": batch,
    }


def measure_minilm(bundle: Path, huggingface: Path, lines: Path, rounds: int, cores: int) -> dict[str, Any]:
    """Return the speed of sentence embeddings; peers use their fastest batch size and number of workers."""
    with ExitStack() as stack:
        groups = {
            kind: stack.enter_context(Processes("encoders", Setting(threads=cores), OWN_THREADS)) for kind in KINDS
        }
        results: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        best: dict[str, tuple[int, int]] = {}
        vectors: dict[str, Any] = {}
        paths = {"bundle": str(bundle), "huggingface": str(huggingface), "lines": str(lines)}
        for kind, group in groups.items():
            speeds = {}
            for workers in (1, cores) if kind in WORKERS["encoders"] else (1,):
                group.ask("open", kind=kind, threads=cores, workers=workers, **paths)
                vectors[kind] = np.array(group.ask("vectors", batch=8)[0]["vectors"])
                for batch in ENCODER_BATCHES if kind != "native" else (0,):
                    speeds[batch, workers] = _embed(group, batch).speed
            best[kind] = max(speeds, key=speeds.__getitem__)
            if best[kind][1] != workers:
                group.ask("open", kind=kind, threads=cores, workers=best[kind][1], **paths)
        for _ in range(rounds):
            for kind, group in groups.items():
                results[kind].append(dataclasses.asdict(_embed(group, best[kind][0])))
    differences = {kind: float(np.abs(output - vectors["native"]).max()) for kind, output in vectors.items()}
    name = "MiniLM, 1,000 sentences"
    log(f"{name}: {_speeds(results)}, largest difference {differences}")
    settings = {kind: f"batch {batch}, {count} workers" if batch else "" for kind, (batch, count) in best.items()}
    return {"name": name, "results": results, "settings": settings, "largest_difference": differences}


def _embed(group: Processes, batch: int) -> Result:
    [answer] = group.ask("embed", batch=batch)
    return Result(answer["tokens"], answer["seconds"])


def _speeds(results: dict[str, list[Any]]) -> str:
    means = {kind: sum(r["tokens"] for r in runs) / sum(r["seconds"] for r in runs) for kind, runs in results.items()}
    return ", ".join(f"{kind} {speed:,.0f} tokens/s" for kind, speed in means.items())
