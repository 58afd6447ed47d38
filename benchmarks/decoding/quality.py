"""Quality and memory of the native engine: agreement with torch, BLEU of int8, bytes allocated by the core."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contestants.translators import decoding_settings
from benchmarks.harness.record import log
from clearhead.api import Model, load
from clearhead.decoding.requests import Request
from clearhead.evaluation.metrics import bleu

LEAST_AGREEMENT = 0.998
NEAR_TIE = 1e-4
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-5
"""Difference of a token's log-probability x from torch's: at most TOLERANCE + RELATIVE_TOLERANCE * |x|."""
MOST_BLEU_LOSS = 0.2
MOST_MEMORY = 1.3
"""Bytes allocated by the core, divided by the bytes of weights and KV cache."""


def agreement(bundle: Path, lines: list[str], beam: int) -> dict[str, Any]:
    """Compare the outputs of the native and the torch engine.

    For different texts, the result contains the margin of the torch engine's search: the smallest difference of two
    log-probabilities (of sums, in beam search) that determined one of its decisions. For equal texts, the
    log-probabilities of their tokens are compared.
    """
    model = load(bundle)
    both = [_translate(model, lines, beam, engine, "float32") for engine in ("native", "torch")]
    native, torch = ([output.text for output in outputs] for outputs in both)
    differing = [index for index, (a, b) in enumerate(zip(native, torch, strict=True)) if a != b]
    margins = _margins(model, [lines[index] for index in differing], beam)
    records = [
        {"source": lines[index], "native": native[index], "torch": torch[index], "margin": margin}
        for index, margin in zip(differing, margins, strict=True)
    ]
    for record in records:
        log(f"{bundle.name}, beam {beam}: {record}")
    return {"shape": bundle.name, "beam": beam, "sentences": len(lines), "differing": records,
            "log_probs": log_prob_difference(*both)}  # fmt: skip


def log_prob_difference(native: Sequence[Any], torch: Sequence[Any]) -> dict[str, float]:
    """Return the largest difference of a token's log-probability over the translations with equal tokens.

    Keys: tokens (number of compared tokens), largest (absolute difference), of_tolerance (largest fraction of the
    tolerance, which is met if it is at most 1).
    """
    equal = [(a, b) for a, b in zip(native, torch, strict=True) if (a.text, a.tokens) == (b.text, b.tokens)]
    pairs = [pair for a, b in equal for pair in zip(a.token_log_probs, b.token_log_probs, strict=True)]
    differences = [(abs(a - b), TOLERANCE + RELATIVE_TOLERANCE * abs(b)) for a, b in pairs]
    return {
        "tokens": len(pairs),
        "largest": max((difference for difference, _ in differences), default=0.0),
        "of_tolerance": max((difference / allowed for difference, allowed in differences), default=0.0),
    }


def _margins(model: Model, lines: list[str], beam: int) -> list[float]:
    """Return the margin of the torch engine's search for each line, decoded alone."""
    from clearhead.decoding.search import run_search
    from clearhead.decoding.search_batch import SearchBatch
    from clearhead.engines.torch_forward import TorchGenerator

    config, settings = model.config.model, decoding_settings(beam)
    margins = []
    for ids in model.tokenizer.encode_batch(lines):
        request = Request((*ids, config.eos_id))
        longest = request.output_limit(settings, config.max_positions)
        generator = TorchGenerator(model.network, config.pad_id)
        batch = SearchBatch(generator, [request.source], settings, [longest], config.eos_id, config.pad_id, 1)
        margins.append(float(run_search(batch)[0].margin))
    return margins


def int8_quality(bundle: Path, lines: list[str], references: list[str], beam: int) -> dict[str, Any]:
    """Return BLEU of float32 and int8 on the same sentences."""
    model = load(bundle)
    scores = {
        compute_type: bleu([one.text for one in _translate(model, lines, beam, "native", compute_type)], references)
        for compute_type in ("float32", "int8")
    }
    return {"shape": bundle.name, "beam": beam, **{name: score.value for name, score in scores.items()},
            "signature": scores["float32"].signature}  # fmt: skip


def _translate(model: Model, lines: list[str], beam: int, engine: str, compute_type: str) -> list[Any]:
    loaded = model.engine(engine, compute_type)
    return model.translate_many(lines, settings=decoding_settings(beam), engine=loaded, split=False)


_MEASURE_MEMORY = """
import json, sys
from pathlib import Path
from benchmarks.contestants.translators import Clearhead
from clearhead.runtime import _core
native = Clearhead(Path(sys.argv[1]), "float32", "native")
native.configure({"threads": int(sys.argv[4])})
loaded = _core.allocated_bytes()
sources = native.inputs(Path(sys.argv[2]).read_text().splitlines())
outputs = native.run(sources, int(sys.argv[3]))
longest = [max(map(len, sources)), max(len(native.ids(output)) for output in outputs)]
print(json.dumps({"loaded": loaded, "after": _core.allocated_bytes(), "longest": longest}))
"""


def memory(bundle: Path, lines: Path, beam: int, threads: int) -> dict[str, Any]:
    """Return the bytes allocated by the core after translating the set in a separate process, and their use."""
    command = [sys.executable, "-c", _MEASURE_MEMORY, str(bundle), str(lines), str(beam), str(threads)]
    measured = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    config, [source, target] = load(bundle).config.model, measured["longest"]
    sentences = threads * max(1, 24 // beam)  # decoded together: kRows in native/search.cpp
    entry = config.num_decoder_layers * 2 * config.model_dim * 4
    cache = sentences * entry * (beam * (target + 1) + source)
    return {"shape": bundle.name, "beam": beam, "weights": _weight_bytes(bundle), "cache": cache, **measured}


def _weight_bytes(bundle: Path) -> int:
    """Return the bytes of the tensors of a bundle; tied ones are stored once."""
    from safetensors import safe_open

    with safe_open(bundle / "model.safetensors", "np") as file:
        return sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118


def is_near_tie(record: dict[str, Any]) -> bool:
    """Return whether the outputs of a sentence differ because of a decision within rounding errors."""
    return bool(record["margin"] < NEAR_TIE)
