"""Random arguments never crash the core: it computes, or raises an exception."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
import torch
torch.set_num_threads(1)
from clearhead.runtime import _core
from clearhead.runtime.prepare import _replace_position_tables, _settings
from tests.runtime.models import LANGUAGE_MODELS, TRANSLATORS, random_model, tensors

rng = np.random.default_rng(int(sys.argv[1]))
refused = accepted = 0

def attempt(function, *arguments):
    global refused, accepted
    try:
        result = function(*arguments)
    except (ValueError, TypeError, OverflowError, BufferError, MemoryError, SystemError):
        refused += 1
        return None
    accepted += 1
    return result

def number():
    return rng.choice([-1, 0, 1, 2, 3, 5, 7, 63, 64, 65, 107, 1 << 20, 2**31 - 1, -(2**31)]).item()

def array():
    kind = rng.choice(["int32", "float32", "int64", "float64", "uint8"], p=[0.7, 0.2, 0.04, 0.03, 0.03])
    values = rng.integers(-2, 110, rng.integers(0, 40)) if rng.random() < 0.8 else np.array([number()])
    made = values.astype(kind)
    return made if rng.random() < 0.9 else made[::2]

def lengths(total):
    if rng.random() < 0.3:
        return array()
    cuts = np.sort(rng.integers(0, total + 1, rng.integers(1, 4)))
    return np.diff(np.concatenate(([0], cuts, [total]))).astype(np.int32)

def flags():
    kinds = (bytearray(1), b"\\1", None, bytearray(0), array())
    made = [kinds[rng.integers(5 if rng.random() < 0.1 else 3)] for _ in range(rng.integers(4))]
    return made if rng.random() < 0.95 else None

def options():
    names = ("beam_size", "n_best", "min_length", "end_id", "start_id", "threads", "batch_rows", "stopping_rule")
    made = dict(beam_size=2, n_best=1, min_length=0, end_id=3, start_id=2, threads=1, batch_rows=0, stopping_rule=0)
    for name in rng.choice(names, 2):
        made[str(name)] = min(number(), 300)
    if rng.random() < 0.05:
        made.pop("end_id")
    return made

def model(which, settings, **change):
    network = random_model(**which)
    arrays = _replace_position_tables(network.config, tensors(network))
    made = {**_settings(network.config, "float32"), **settings}
    for name in list(arrays):
        if rng.random() < change.get("damage", 0):
            arrays[name] = rng.standard_normal(rng.integers(1, 60, rng.integers(1, 3))).astype(np.float32)
    return made, arrays

for _ in range(60):  # damaged models
    settings, arrays = model({}, {str(rng.choice(["width", "heads", "vocabulary", "max_positions", "encoder_layers",
                                                   "key_width", "feed_forward", "norm", "architecture"])): number()},
                             damage=0.03 if rng.random() < 0.5 else 0)
    attempt(_core.Model, settings, arrays, rng.choice(["", "avx2", "nonsense"]).item())
models = [_core.Model(*model({}, {}), ""), _core.Model(*model({}, {"int8": 1}), ""),
          _core.Model(*model({"family": "decoder", "num_encoder_layers": 4, **LANGUAGE_MODELS["gpt2"]}, {}), "")]
for _ in range(4000):
    core = models[rng.integers(len(models))]
    ids = rng.integers(4, 100 if rng.random() < 0.9 else 200, rng.integers(1, 50)).astype(np.int32)
    counts = lengths(len(ids))
    action = rng.integers(6)
    if action == 0:
        limits = np.full(len(counts), min(max(number(), 0), 64), np.int32) if rng.random() < 0.8 else array()
        attempt(core.search, ids, counts, limits, options(), np.ones(65, np.float32), array(),
                None if rng.random() < 0.7 else array(), None if rng.random() < 0.7 else array(), flags(),
                None if rng.random() < 0.9 else array().astype(float))
    elif action == 1:
        out = np.empty(int(rng.choice([len(counts) * 24, len(ids) * 24, 7])), np.float32)
        attempt(core.encode_texts, ids, counts, int(rng.integers(-1, 6)), out, 1)
        attempt(core.predict_masked, ids, counts, array(), np.empty(107, np.float32), 1)
    elif action == 2:
        out = np.empty(max(0, int(rng.choice([len(ids), len(ids) - len(counts), 3]))), np.float32)
        given = (ids, counts) if rng.random() < 0.6 else (None, None)
        attempt(core.score, *given, ids, counts, min(number(), 200), out, int(rng.integers(-1, 4)),
                None if rng.random() < 0.7 else np.empty(len(ids) * 3, np.float32), 1)
    else:
        sources = attempt(core.encode, ids, counts)
        state = attempt(core.start, sources, int(rng.integers(-1, 4)), int(rng.integers(-1, 3)))
        for _ in range(4 if state is not None else 0):
            rows = int(rng.integers(1, 9))
            count = int(rng.integers(0, 3))
            tokens = rng.integers(-1, 108, rows * count).astype(np.int32)
            attempt(core.step, state, tokens, count, bool(rng.integers(2)), np.empty(107 * rows, np.float32),
                    int(rng.integers(-1, 4)), None)
            attempt(core.reorder, state, array())
            attempt(core.repeat, state, int(rng.integers(-1, 4)))
            attempt(core.restrict, state, np.unique(ids), np.array([len(np.unique(ids))], np.int32))
print(accepted, refused)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_arguments_do_not_crash_the_core(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    accepted, refused = map(int, done.stdout.split())
    assert accepted > 100
    assert refused > 100
