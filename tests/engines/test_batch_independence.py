"""The same sentence gives the same answer whatever it is decoded with: alone, in any batch, order and padding."""

import random
from collections.abc import Callable, Sequence

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.requests import Request
from clearhead.engines import torch_engine as engine_module
from clearhead.engines.torch_engine import TorchEngine
from clearhead.model.transformer import Transformer
from tests.engines.small_models import engine, nudge_batches, random_model, requests, trained_model


class FixedBatches(TorchEngine):
    """Batches of a given size in the order of the requests, however unlike their lengths."""

    size = 1

    def _batches(self, requests: Sequence[Request], settings: DecodingConfig) -> list[list[int]]:
        return [list(range(i, min(i + self.size, len(requests)))) for i in range(0, len(requests), self.size)]


def fixed(model: Transformer, size: int) -> FixedBatches:
    plain = engine(model)
    built = FixedBatches(model, plain.eos_id, plain.pad_id, plain.vocab_size, plain.max_positions, threads=1)
    built.size = size
    return built


def check(model: Transformer, count: int, sizes: Sequence[int], beam: int, stop: str = "beam_finished") -> float:
    """Everything equal to decoding alone; the share of sentences decoded again."""
    settings = DecodingConfig.model_validate({"beam_size": beam, "max_length": "input+10", "stopping_rule": stop})
    asked = requests(count, n_best=beam)
    alone = fixed(model, 1).run(asked, settings)
    again = 0
    for size in sizes:
        order = random.Random(size).sample(range(count), count)
        built = fixed(model, size)
        shuffled = built.run([asked[i] for i in order], settings)
        for place, index in enumerate(order):
            assert_same(shuffled[place], alone[index])
        again += built.num_decoded_again
    for sorted_ in (engine(model), engine(model, batch_tokens=300, threads=2)):
        for one, other in zip(sorted_.run(asked, settings), alone, strict=True):
            assert_same(one, other)
    return again / (count * len(sizes))


def assert_same(one: list[Hypothesis], other: list[Hypothesis]) -> None:
    assert [(each.tokens, each.finish_reason) for each in one] == [(each.tokens, each.finish_reason) for each in other]
    for a, b in zip(one, other, strict=True):
        assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-4)
        assert (a.score, a.log_prob) == pytest.approx((b.score, b.log_prob), abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", [random_model, trained_model])
def test_any_batch(kind: Callable[[], Transformer], beam: int) -> None:
    # About 3 of 100 have a close decision; which ones depends on the CPU that trains the model.
    assert check(kind(), 60, [7, 60], beam) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
@pytest.mark.parametrize("kind", [random_model, trained_model])
def test_any_batch_of_a_thousand(kind: Callable[[], Transformer], beam: int, stop: str) -> None:
    assert check(kind(), 1000, [1, 2, 7, 16, 64, 200], beam, stop) < 0.04


def test_what_is_close_is_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every decision taken for close, each answer is bit for bit that of decoding alone."""
    model, settings = random_model(), DecodingConfig(beam_size=3, max_length="input+5")
    asked = requests(20, n_best=3)
    alone = [engine(model).run([request], settings)[0] for request in asked]
    monkeypatch.setattr(engine_module, "CLOSE", float("inf"))
    built = engine(model)
    assert built.run(asked, settings) == alone
    assert built.num_decoded_again == 20


def test_nudged_numbers_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Had batches moved logits by a thousand times what was measured, answers would stay; without the check not."""
    model, settings = random_model(), DecodingConfig(beam_size=4, max_length="input+5")
    asked = requests(80, longest=5, n_best=4)
    nudge, longest = 2e-3, 10
    alone = fixed(model, 1).run(asked, settings)
    nudge_batches(monkeypatch, model, lambda logits_RTV: logits_RTV + nudge * torch.sin(1e4 * logits_RTV))
    for close, is_safe in ((4 * longest * nudge, True), (0.0, False)):
        monkeypatch.setattr(engine_module, "CLOSE", close)
        built = fixed(model, 80)
        answers = built.run(asked, settings)
        is_same = [
            [a.tokens for a in one] == [b.tokens for b in other] for one, other in zip(answers, alone, strict=True)
        ]
        assert all(is_same) is is_safe
        assert built.num_decoded_again < 80
