"""Batch independence: the same tokens for a sentence alone and in any batch, order and padding."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Hypothesis, Image, Request
from clearhead.engines import torch_engine as engine_module
from clearhead.engines.torch_engine import TorchEngine
from clearhead.model.transformer import Transformer
from tests.engines.small_models import END, VOCAB, engine, nudge_batches, random_model, random_requests, trained_model


class FixedBatches(TorchEngine):
    """Batches of a given size in the order of the requests, whatever their lengths."""

    size = 1

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        return [list(range(i, min(i + self.size, len(requests)))) for i in range(0, len(requests), self.size)]


def fixed(model: Any, size: int) -> FixedBatches:
    default_engine = engine(model)
    built = FixedBatches(
        model,
        default_engine.eos_id,
        default_engine.pad_id,
        default_engine.vocab_size,
        default_engine.max_positions,
        threads=1,
    )
    built.size = size
    return built


def check(
    model: Any, requests: Sequence[Request], sizes: Sequence[int], beam: int, stop: str = "beam_finished"
) -> float:
    """Compare all batches with decoding alone; return the share of sentences decoded again."""
    settings = DecodingConfig.model_validate({"beam_size": beam, "max_length": "input+10", "stopping_rule": stop})
    alone = fixed(model, 1).run(requests, settings)
    count, again = len(requests), 0
    for size in sizes:
        order = random.Random(size).sample(range(count), count)
        built = fixed(model, size)
        shuffled = built.run([requests[i] for i in order], settings)
        for answer, index in zip(shuffled, order, strict=True):
            assert_same(answer, alone[index])
        again += built.num_decoded_again
    for sorted_ in (engine(model), engine(model, batch_tokens=300, threads=2)):
        for answer, other in zip(sorted_.run(requests, settings), alone, strict=True):
            assert_same(answer, other)
    return again / (count * len(sizes))


def assert_same(first: list[Hypothesis], second: list[Hypothesis]) -> None:
    assert [(each.tokens, each.finish_reason) for each in first] == [
        (each.tokens, each.finish_reason) for each in second
    ]
    for a, b in zip(first, second, strict=True):
        assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-4)
        assert (a.score, a.log_prob) == pytest.approx((b.score, b.log_prob), abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", [random_model, trained_model])
def test_any_batch(kind: Callable[[], Transformer], beam: int) -> None:
    # About 3 of 100 have a close decision; which ones depends on the CPU that trains the model.
    assert check(kind(), random_requests(60, n_best=beam), [7, 60], beam) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
@pytest.mark.parametrize("kind", [random_model, trained_model])
def test_any_batch_of_a_thousand(kind: Callable[[], Transformer], beam: int, stop: str) -> None:
    assert check(kind(), random_requests(1000, n_best=beam), [1, 2, 7, 16, 64, 200], beam, stop) < 0.04


OTHER_MODELS: dict[str, dict[str, Any]] = {
    "gru, additive, bidirectional": {"family": "gru", "attention": "additive", "bidirectional": True},
    "lstm": {"family": "lstm", "attention": "none"},
    "batch norm": {"norm": "batch"},
    "no residual": {"residual": False},
    "captioning": {"input": "image", "image_size": 6, "patch_size": 2},
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_any_batch_of_other_models(name: str) -> None:
    """With large random weights, so that few decisions are close and decoded again alone."""
    model, requests = random_model(**OTHER_MODELS[name]), random_requests(14, n_best=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        for _ in range(30 if name == "batch norm" else 0):
            model.train()(*torch.randint(END + 1, VOCAB, (2, 16, 7)))
    model.eval()
    if name == "captioning":
        requests = [Request((), 3, image=Image(torch.randn(1, 6, 6).numpy(), num_patches=9)) for _ in requests]
    assert check(model, requests, [5, 14], beam=3) < 1, "all sentences were decoded again"
    answers = engine(model).run(requests, DecodingConfig(beam_size=3))
    assert len({round(each[0].log_prob, 2) for each in answers}) > 7, "the outputs depend on the sources"


def test_close_decisions_are_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every decision considered close, each answer is bit for bit that of decoding alone."""
    model, settings = random_model(), DecodingConfig(beam_size=3, max_length="input+5")
    requests = random_requests(20, n_best=3)
    alone = [engine(model).run([request], settings)[0] for request in requests]
    monkeypatch.setattr(engine_module, "CLOSE", float("inf"))
    built = engine(model)
    assert built.run(requests, settings) == alone
    assert built.num_decoded_again == 20


def test_perturbed_logits_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perturbations a thousand times those measured change answers only if close decisions are not repeated."""
    model, settings = random_model(), DecodingConfig(beam_size=4, max_length="input+5")
    requests = random_requests(80, longest=5, n_best=4)
    nudge, longest = 2e-3, 10
    alone = fixed(model, 1).run(requests, settings)
    nudge_batches(monkeypatch, model, lambda logits_RTV: logits_RTV + nudge * torch.sin(1e4 * logits_RTV))
    for close, is_safe in ((4 * longest * nudge, True), (0.0, False)):
        monkeypatch.setattr(engine_module, "CLOSE", close)
        built = fixed(model, 80)
        answers = built.run(requests, settings)
        is_same = [
            [a.tokens for a in first] == [b.tokens for b in second]
            for first, second in zip(answers, alone, strict=True)
        ]
        assert all(is_same) is is_safe
        assert built.num_decoded_again < 80
