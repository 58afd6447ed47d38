"""A trained translator in the native engine: torch finds the same outputs, and every way to run it the same bits."""

import json
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

import clearhead
from clearhead import grammar
from clearhead.cli.data import write_grammar
from clearhead.cli.main import main
from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Request
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.runtime import ComputeType
from tests.serving.browser import free_port, running
from tests.terminal import run_process

pytestmark = pytest.mark.slow

SENTENCES, FEWER, SERVED = 1000, 100, 50
MOST_DIFFERING = 2
NEAR_TIE = 1e-4  # of a decision in the search, as a difference of log-probabilities
STEPS = 400
SETTINGS = [
    "model.num_encoder_layers=2", "model.num_decoder_layers=2", "model.model_dim=64", "model.feed_forward_dim=128",
    "model.num_heads=4", "model.dropout=0.0", "model.positions=rotary", "tokenizer.vocab_size=1000",
    "training.batch_tokens=1024", "training.learning_rate=0.005", "training.warmup=100", "training.cooldown=0.6",
    "training.label_smoothing=0.0", "training.validate_lines=40", "training.validate_every=10000", "training.seed=7",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator after some updates on the built-in grammar: its outputs are sentences, few of them correct."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("agreement")
    write_grammar(path / "train.tsv", 8000, 1, "train")
    write_grammar(path / "valid.tsv", 40, 1, "valid")
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    files = [str(path / "train.tsv"), "--valid", str(path / "valid.tsv"), "--out", str(path / "model")]
    assert main(["train", *files, "--steps", str(STEPS), "--threads", "1", *sets]) == 0
    return path / "model"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [example.source for example in grammar.generate(SENTENCES, 5, "test")]


def margin(model: clearhead.Model, line: str, settings: DecodingConfig) -> float:
    """Return the smallest difference of log-probabilities by which torch's search for this line made a decision."""
    config = model.config.model
    request = Request((*model.tokenizer.encode_batch([line])[0], config.eos_id))
    limits = [request.output_limit(settings, config.max_positions)]
    generator = TorchGenerator(model.network, config.pad_id)
    batch = SearchBatch(generator, [request.source], settings, limits, config.eos_id, config.pad_id, 1)
    return float(run_search(batch)[0].margin)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_torch_finds_the_same_translations(folder: Path, lines: list[str], beam_size: int) -> None:
    model = clearhead.load(folder)
    settings = model.decoding(beam_size=beam_size)
    native, by_torch = (
        model.translate_many(lines, settings=settings, engine=name, split=False) for name in ("native", "torch")
    )
    assert len({one.text for one in native}) > SENTENCES // 2, "the model has learned too little for this comparison"
    differing = []
    for line, mine, other in zip(lines, native, by_torch, strict=True):
        if mine.tokens != other.tokens:
            differing.append(margin(model, line, settings))
            print(f"margin {differing[-1]:.1e}: {line!r}\n  native {mine.text!r}\n  torch  {other.text!r}")
            continue
        assert mine.finish_reason == other.finish_reason
        np.testing.assert_allclose(mine.token_log_probs, other.token_log_probs, atol=1e-4, rtol=1e-5)
        np.testing.assert_allclose(mine.log_prob, other.log_prob, atol=1e-4, rtol=1e-5)
    assert len(differing) <= MOST_DIFFERING
    assert all(one < NEAR_TIE for one in differing)


def test_few_decisions_are_near_ties(folder: Path, lines: list[str]) -> None:
    """Near ties are rare: if they were frequent, every difference between the engines could be explained by one."""
    model = clearhead.load(folder)
    margins = [margin(model, line, model.decoding(beam_size=4)) for line in lines[:FEWER]]
    assert min(margins) > 0
    assert sum(margin_of_line < NEAR_TIE for margin_of_line in margins) < FEWER // 20


COMPUTE_TYPES: tuple[ComputeType, ...] = ("float32", "int8")


@pytest.mark.parametrize("compute_type", COMPUTE_TYPES)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_file_has_the_same_bits_in_any_order_and_on_any_number_of_threads(
    folder: Path, lines: list[str], beam_size: int, compute_type: ComputeType
) -> None:
    model = clearhead.load(folder, compute_type=compute_type)
    settings = model.decoding(beam_size=beam_size)
    end = model.config.model.eos_id
    requests = [Request((*ids, end), beam_size) for ids in model.tokenizer.encode_batch(lines)]
    one, two = (NativeEngine(model.weights.native_model(compute_type), threads) for threads in (1, 2))
    alone = [one.run([request], settings)[0] for request in requests]
    order = random.Random(beam_size).sample(range(SENTENCES), SENTENCES)
    for engine in (one, two):
        assert engine.run(requests, settings) == alone
        assert engine.run([requests[index] for index in order], settings) == [alone[index] for index in order]
    translations = model.translate_many(lines[:FEWER], settings=settings, split=False)
    for translation, [best, *_] in zip(translations, alone, strict=False):
        assert translation.tokens == tuple(map(model.tokenizer.target.token, best.tokens))
        assert translation.token_log_probs == best.token_log_probs
        assert (translation.log_prob, translation.score) == (best.log_prob, best.score)


@pytest.mark.parametrize("compute_type", COMPUTE_TYPES)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_python_the_command_and_the_server_give_the_same_bits(
    folder: Path, lines: list[str], beam_size: int, compute_type: ComputeType
) -> None:
    model, some = clearhead.load(folder, compute_type=compute_type), lines[:FEWER]
    expected = [model.translate(line, beam_size=beam_size).to_json() for line in some]
    assert [translation.to_json() for translation in model.translate(some[::-1], beam_size=beam_size)] == expected[::-1]
    assert by_command(folder, some, beam_size, compute_type) == expected
    assert by_server(folder, some[:SERVED], beam_size, compute_type) == expected[:SERVED]


def by_command(folder: Path, lines: list[str], beam_size: int, compute_type: ComputeType) -> list[dict[str, Any]]:
    """Return the translations of `clearhead translate`, on two threads."""
    options = ["--json", "--beam", beam_size, "--compute-type", compute_type, "--threads", 2]
    process = run_process(["translate", folder, *options], "".join(f"{line}\n" for line in lines), threads=2)
    assert process.code == 0, process.stderr.decode()
    records = [json.loads(line) for line in process.stdout.decode().splitlines()]
    return [without_source(record, line) for record, line in zip(records, lines, strict=True)]


def by_server(folder: Path, lines: list[str], beam_size: int, compute_type: ComputeType) -> list[dict[str, Any]]:
    """Return the translations of `clearhead serve`: of single sentences at the same time, equal to those of a list."""
    port = free_port()
    url, options = f"http://127.0.0.1:{port}", ["--port", str(port), "--threads", "2", "--compute-type", compute_type]
    command = [sys.executable, "-m", "clearhead", "serve", str(folder), *options]

    def ask(some: Sequence[str]) -> list[dict[str, Any]]:
        body = {"text": [*some], "beam_size": beam_size}
        response = httpx2.post(f"{url}/v1/translate", json=body, timeout=100)
        assert response.status_code == 200, response.text
        translations = response.json()["translations"]
        assert all(record.pop("n_best") for record in translations)
        return [without_source(record, line) for record, line in zip(translations, some, strict=True)]

    with running(command, f"{url}/readyz"), ThreadPoolExecutor(4) as clients:
        single = [record for [record] in clients.map(ask, [[line] for line in lines])]
        assert ask(lines) == single
    return single


def without_source(record: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the record without its source, which is the one expected."""
    assert record.pop("source") == source
    return record
