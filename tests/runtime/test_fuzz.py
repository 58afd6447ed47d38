"""Random arguments and damaged bundles crash neither the core nor the reader: they compute, or raise an exception."""

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
refused = accepted = searched = 0

def attempt(function, *arguments):
    global refused, accepted
    try:
        result = function(*arguments)
    except (ValueError, TypeError, OverflowError, BufferError, MemoryError):
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
    names = ("beam_size", "n_best", "min_length", "end_id", "start_id", "threads", "batch_rows", "stopping_rule",
             "want_scores")
    made = dict(beam_size=2, n_best=1, min_length=0, end_id=3, start_id=2, threads=1, batch_rows=0, stopping_rule=0,
                want_scores=1)
    for name in rng.choice(names, 2):
        made[str(name)] = min(number(), 300)
    if rng.random() < 0.05:
        made.pop("end_id")
    return made

def shortlists(count):
    least = 0 if rng.random() < 0.8 else -1
    lists = [rng.integers(least, 107, rng.integers(0 if rng.random() < 0.05 else 1, 20)) for _ in range(count)]
    lists = [np.unique(each) if rng.random() < 0.95 else each for each in lists]
    return np.concatenate([[], *lists]).astype(np.int32), np.array([len(each) for each in lists], np.int32)

def model(which, settings, **change):
    network = random_model(**which)
    arrays = _replace_position_tables(network.config, tensors(network))
    made = {**_settings(network.config, "float32"), **settings}
    for name in list(arrays):
        if rng.random() < change.get("damage", 0):
            arrays[name] = rng.standard_normal(rng.integers(1, 60, rng.integers(1, 3))).astype(np.float32)
    return made, arrays

# Heads that do not belong to the model, or two of them.
def heads():
    names = ["has_masked_head", "has_classifier", "has_pooler"]
    chosen = names if rng.random() < 0.2 else []
    return {"labels": 107, **{name: int(rng.integers(2)) for name in chosen}}

def succeeds(function, *arguments):
    before = accepted
    attempt(function, *arguments)
    return accepted > before

# Calls the methods of a state at random, with right arguments most of the time.
def walk(core, ids, counts):
    sentences, width = len(counts), int(rng.integers(-1, 4))
    sources = attempt(core.encode, (ids, counts))
    if sources is None:
        sentences = int(rng.integers(-1, 4))
    else:
        other = models[rng.integers(len(models))]
        if succeeds(other.start, sources, 1, 1):
            assert other is core, "sources of another model were accepted"
    state = attempt(core.start, sources, sentences, width)
    if state is None:
        return
    rows, outputs = sentences * width, 107
    for _ in range(8):
        action, is_right = rng.integers(3), rng.random() < 0.7
        if action == 0:
            count = int(rng.integers(1, 4) if is_right else rng.integers(-1, 70))
            given = rows if is_right else int(rng.integers(1, 9))
            all_positions = bool(rng.integers(2))
            tokens = rng.integers(0 if is_right else -1, 107 if is_right else 109, max(0, given * count))
            out = np.full(outputs * given * (max(count, 0) if all_positions else 1), np.nan, np.float32)
            if succeeds(core.step, state, tokens.astype(np.int32), count, all_positions, out, number(), None):
                assert not np.isnan(out).any()
        elif action == 1:
            chosen = rng.integers(0, rows, rng.integers(1, 2 * rows + 1)).astype(np.int32) if is_right else array()
            if succeeds(core.reorder, state, chosen):
                rows = len(chosen)
        else:
            sizes = rng.integers(1 if is_right else 0, 9, sentences).astype(np.int32)
            allowed = rng.integers(0, 107 if is_right else 109, sizes.sum()).astype(np.int32)
            if succeeds(core.restrict, state, (allowed, sizes)):
                outputs = int(sizes.max())
        if rows > 200:
            return

for _ in range(60):  # damaged models
    field = rng.choice(["width", "heads", "vocabulary", "max_positions", "encoder_layers", "key_width", "feed_forward",
                        "norm", "architecture"]).item()
    settings, arrays = model({}, {field: number(), **heads()}, damage=0.03 if rng.random() < 0.5 else 0)
    attempt(_core.Model, settings, arrays, rng.choice(["", "avx2", "nonsense"]).item())
models = [_core.Model(*model({}, {}), ""), _core.Model(*model({}, {"int8": 1}), ""),
          _core.Model(*model({"family": "decoder", "num_encoder_layers": 4, **LANGUAGE_MODELS["gpt2"]}, {}), "")]
for _ in range(4000):
    core = models[rng.integers(len(models))]
    ids = rng.integers(4, 100 if rng.random() < 0.9 else 200, rng.integers(1, 50)).astype(np.int32)
    counts = lengths(len(ids))
    action = rng.integers(6)
    if action == 0:
        limit = number() if rng.random() < 0.3 else int(rng.integers(1, 30))
        limits = np.full(len(counts), limit, np.int32) if rng.random() < 0.8 else array()
        suppressed = rng.integers(-9, 300, 3).astype(np.int32)
        lists = None if rng.random() < 0.7 else shortlists(len(counts))
        deadlines = None if rng.random() < 0.9 else array().astype(float)
        searched += succeeds(core.search, (ids, counts), limits, options(), np.ones(65, np.float32), suppressed, lists,
                             flags() if rng.random() < 0.2 else [], deadlines)
    elif action == 1:
        out = np.empty(int(rng.choice([len(counts) * 24, len(ids) * 24, 7])), np.float32)
        attempt(core.encode_texts, (ids, counts), int(rng.integers(-1, 6)), out, 1)
        attempt(core.predict_masked, (ids, counts), array(), np.empty(107, np.float32), 1)
    elif action == 2:
        out = np.empty(max(0, int(rng.choice([len(ids), len(ids) - 1, 3]))), np.float32)
        given = (ids, counts) if rng.random() < 0.6 else None
        attempt(core.score, given, (ids, counts), min(number(), 200), out, int(rng.integers(-1, 4)),
                None if rng.random() < 0.7 else np.empty(len(ids) * 3, np.float32), 1)
    else:
        walk(core, ids, counts)
print(accepted, refused, searched)
"""


BUNDLES = """
import hashlib
import json
import random
import sys
from pathlib import Path

import torch
torch.set_num_threads(1)
from clearhead import bundle, config
from clearhead.decoding.requests import Request
from clearhead.engines.native_engine import NativeEngine
from clearhead.errors import ClearheadError
from clearhead.runtime import prepare
from tests.bundle.example_bundles import save
from tests.runtime.models import random_model

rng, folder = random.Random(int(sys.argv[1])), Path(sys.argv[2])
positions = ["sinusoidal", "relative", "rotary"][int(sys.argv[1])]
network = random_model(num_encoder_layers=1, num_decoder_layers=1, model_dim=12, feed_forward_dim=7, num_heads=3,
                       positions=positions)
save(folder, 1, network.state_dict(), config={"model": network.config.model_dump(mode="json")})
names = ["model.safetensors", "config.json", "tokenizer.json", "manifest.json"]
whole = {name: (folder / name).read_bytes() for name in names}
header_size = int.from_bytes(whole["model.safetensors"][:8], "little")
ODD = [None, True, -1, 0, 1, 2.5, 2**31, 2**63, 10**30, "F16", "I64", "", "BOOL", [], [0], [12, 12], {}, [[]]]

def damage_bytes(content, end):
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        changed[rng.randrange(min(end, len(changed)))] = rng.randrange(256)
    return bytes(changed)

def damage_header(content):
    header = json.loads(content[8 : 8 + header_size])
    entry = header[rng.choice([name for name in header if name != "__metadata__"])]
    field = rng.choice(["dtype", "shape", "data_offsets"])
    values = entry[field]
    if isinstance(values, list) and values and rng.random() < 0.6:
        values[rng.randrange(len(values))] = rng.choice(ODD)
    else:
        entry[field] = rng.choice(ODD)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + header_size :]

# Other values of the settings of the model.
def damage_settings(content):
    config = json.loads(content)
    for _ in range(rng.randrange(1, 3)):
        field = rng.choice(list(config["model"]))
        config["model"][field] = rng.choice([*ODD, 2, 3, 4, 7, 8, 13, 1000, 10**6, 2**16, *config["model"].values()])
    return json.dumps(config).encode()

def damaged(name):
    content = whole[name]
    if name == "config.json" and rng.random() < 0.8:
        return damage_settings(content)
    kind = rng.randrange(4 if name == "model.safetensors" else 2)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        return damage_bytes(content, len(content))
    return damage_bytes(content, 8 + header_size) if kind == 2 else damage_header(content)

# The manifest that fits the damaged files, so that the reader does not stop at a checksum.
def with_checksums(contents):
    manifest = json.loads(contents["manifest.json"])
    for name in names[:3]:
        manifest["files"][name] = {"size": len(contents[name]), "sha256": hashlib.sha256(contents[name]).hexdigest()}
    return json.dumps(manifest).encode()

# What a user's command does with a model; every error is one that the command can print.
def search(model):
    size, settings = model.config.input_vocab_size, {"beam_size": rng.choice([1, 3]), "max_length": "4"}
    request = Request((rng.randrange(size), rng.randrange(size), rng.randrange(size)))
    NativeEngine(model).run([request], config.DecodingConfig.model_validate(settings))

accepted = refused = prepared = searched = 0
for _ in range(1500):
    name = rng.choice(["model.safetensors", *names, "config.json", "config.json"])
    contents = {**whole, name: damaged(name)}
    if name != "manifest.json" and rng.random() < 0.9:
        contents["manifest.json"] = with_checksums(contents)
    for each, content in contents.items():
        (folder / each).write_bytes(content)
    try:
        loaded = bundle.load(folder)
    except ClearheadError:
        refused += 1
        continue
    accepted += 1
    try:
        model = prepare(config.parse(loaded.config).model, loaded.weights)
        prepared += 1
        search(model)
        searched += 1
    except ClearheadError:
        pass
print(accepted, refused, prepared, searched)
"""


def run(program: str, *arguments: str) -> list[int]:
    """Return the numbers that a program prints, which must not crash."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    return [int(number) for number in done.stdout.split()]


# A bundle whose tensors fit its settings, which ask for relative biases of 30 GiB.
LARGE = """
import json
import sys
from pathlib import Path

from clearhead import bundle, config
from clearhead.errors import ConfigError
from clearhead.runtime import prepare
from tests.bundle.example_bundles import save
from tests.runtime.models import random_model

folder = Path(sys.argv[1])
network = random_model(num_encoder_layers=1, num_decoder_layers=1, model_dim=2, feed_forward_dim=1, num_heads=4096,
                       key_dim=1, value_dim=1, positions="relative")
settings = {**network.config.model_dump(mode="json"), "max_positions": 10**6}
save(folder, 1, network.state_dict(), config={"model": settings})
try:
    loaded = bundle.load(folder)
    prepare(config.parse(loaded.config).model, loaded.weights)
except ConfigError as error:
    print(1)
"""


def test_a_bundle_that_asks_for_a_large_table_is_refused(tmp_path: Path) -> None:
    assert run(LARGE, str(tmp_path / "model")) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_arguments_do_not_crash_the_core(seed: int) -> None:
    accepted, refused, searched = run(PROGRAM, str(seed))
    assert accepted > 100
    assert refused > 100
    assert searched > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_damaged_bundles_do_not_crash_the_reader(seed: int, tmp_path: Path) -> None:
    accepted, refused, prepared, searched = run(BUNDLES, str(seed), str(tmp_path / "model"))
    assert refused > 100
    assert accepted > prepared > 50
    assert searched > 50
