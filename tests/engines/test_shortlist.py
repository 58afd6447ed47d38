"""Search over shortlists equals search over a network without the other tokens, alone and in any batch."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import exact_tokens
from clearhead.decoding.requests import AllowedTokens, Constraints, Request
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_engine import TorchEngine
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.model.recurrent.translator import RecurrentTranslator
from tests.engines.small_models import END, PAD, START, VOCAB, random_model, random_requests
from tests.engines.test_batch_independence import assert_same, fixed

LONG = 24


def lists(count: int) -> list[tuple[int, ...]]:
    """Return a few tokens for each sentence; some include padding and the start token, which are never generated."""
    rng = random.Random(4)
    return [tuple(sorted({PAD, START, *rng.sample(range(END, VOCAB), LONG)})) for _ in range(count)]


@dataclass(frozen=True)
class MutedStep:
    logits_RTV: Tensor
    state: Any
    attention: Any


class Muted:
    """Network for one sentence whose logits are minus infinity except for the tokens of a list."""

    def __init__(self, network: Any, tokens: tuple[int, ...]) -> None:
        self.network, self.tokens = network, [*tokens]

    def encode(self, src_NS: Tensor) -> Any:
        return self.network.encode(src_NS)

    def start(self, memory: Any, width: int) -> tuple[Tensor, Any]:
        first_RT, state = self.network.start(memory, width)
        return first_RT, state

    def step(self, tokens_RT: Tensor, state: Any, want_attention: bool = False) -> MutedStep:
        step = self.network.step(tokens_RT, state, want_attention)
        logits_RTV = torch.full_like(step.logits_RTV, float("-inf"))
        logits_RTV[..., self.tokens] = step.logits_RTV[..., self.tokens]
        return MutedStep(logits_RTV, step.state, step.attention)

    def reorder(self, state: Any, rows_R: Tensor) -> Any:
        return self.network.reorder(state, rows_R)


MODES: dict[str, tuple[dict[str, Any], Constraints, int]] = {
    "greedy": ({"beam_size": 1}, Constraints(), 1),
    "beam": ({"beam_size": 4}, Constraints(), 4),
    "coverage": ({"beam_size": 2, "coverage_penalty": 0.2}, Constraints(), 2),
    "groups": ({"beam_size": 4, "beam_groups": 2}, Constraints(), 4),
    "rules": (
        {"beam_size": 2, "no_repeat_ngram_size": 2, "min_length": 4},
        Constraints(exclude=(exact_tokens((14,)),)),
        2,
    ),
    "prefix": ({"beam_size": 3}, Constraints(prefix=(9, 12)), 3),
    "included": ({"beam_size": 2}, Constraints(include=LexicalConstraints(((7, 8), (30,)))), 2),
    "sample": ({"method": "sample", "sampling": {"seed": 3, "top_k": 9}}, Constraints(), 3),
}


def requests_in(mode: str, count: int = 12) -> tuple[list[Request], DecodingConfig]:
    options, base_constraints, n_best = MODES[mode]
    decoding = DecodingConfig.model_validate({"max_length": "input+6", **options})
    return [
        replace(request, n_best=n_best, constraints=replace(base_constraints, shortlist=AllowedTokens(each, VOCAB)))
        for request, each in zip(random_requests(count), lists(count), strict=True)
    ], decoding


def lstm() -> RecurrentTranslator:
    torch.manual_seed(4)
    shape = {"family": "lstm", "num_encoder_layers": 1, "num_decoder_layers": 1, "model_dim": 11, "vocab_size": VOCAB}
    return RecurrentTranslator(ModelConfig.model_validate(shape)).eval()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [random_model, lstm])
def test_a_shortlist_equals_a_muted_network(make: Any, mode: str) -> None:
    """Log-probabilities are normalized over the list of the sentence, not over those of others in the batch."""
    model: nn.Module = make()
    requests, decoding = requests_in(mode)
    answers = TorchEngine(model, END, PAD, VOCAB, 64, threads=1).run(requests, decoding)
    for request, each in zip(requests, answers, strict=True):
        assert request.constraints_or_empty.shortlist is not None
        phrase_tokens = (token for phrase in request.constraints_or_empty.include.phrases for token in phrase)
        allowed = {
            *request.constraints_or_empty.shortlist.tokens,
            *request.constraints_or_empty.prefix,
            *phrase_tokens,
            END,
        } - {PAD, START}
        muted = Muted(model, tuple(sorted(allowed)))
        baseline = replace(request.constraints_or_empty, shortlist=None)
        generator, limits = TorchGenerator(muted, PAD), [request.output_limit(decoding, 64)]
        batch = SearchBatch(
            generator, [request.source], decoding, limits, END, PAD, request.n_best, constraints=[baseline]
        )
        assert_same(each, search(batch)[0])
        assert {token for one in each for token in one.tokens} <= allowed
    unlisted = [
        replace(request, constraints=replace(request.constraints_or_empty, shortlist=None)) for request in requests
    ]
    other = TorchEngine(model, END, PAD, VOCAB, 64, threads=1).run(unlisted, decoding)
    assert [one[0].tokens for one in other] != [one[0].tokens for one in answers], "lists change something"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_any_batch(mode: str) -> None:
    model, count = random_model(), 12
    requests, decoding = requests_in(mode, count)
    alone = fixed(model, 1).run(requests, decoding)

    @given(st.randoms(use_true_random=False), st.integers(2, count))
    @settings(max_examples=3, deadline=None)
    def check(rng: random.Random, size: int) -> None:
        order = rng.sample(range(count), rng.randint(2, count))
        for position, results in enumerate(fixed(model, size).run([requests[index] for index in order], decoding)):
            assert_same(results, alone[order[position]])

    check()


def test_a_shortlist_of_all_tokens_only_excludes_suppressed_tokens() -> None:
    """Padding and the start token lose their probability; the order of the others does not change."""
    model, decoding = random_model(), DecodingConfig(beam_size=3, max_length="input+6", length_penalty_form="none")
    with torch.no_grad():
        model.output.weight[[PAD, START]] = 0.0
    requests = random_requests(20, n_best=3)
    everything = Constraints(shortlist=AllowedTokens(tuple(range(VOCAB)), VOCAB))
    answers = fixed(model, 20).run([replace(request, constraints=everything) for request in requests], decoding)
    for mine, other in zip(fixed(model, 20).run(requests, decoding), answers, strict=True):
        assert all(hypothesis.log_prob < another.log_prob for hypothesis, another in zip(mine, other, strict=True))
    assert (
        sum(a[0].tokens == b[0].tokens for a, b in zip(fixed(model, 20).run(requests, decoding), answers, strict=True))
        > 15
    )


def test_requests_with_and_without_a_list_are_decoded_together() -> None:
    model, decoding = random_model(), DecodingConfig(beam_size=2, max_length="input+6")
    listed, _ = requests_in("beam")
    mixed = [
        replace(request, n_best=1, constraints=request.constraints if position % 2 else None)
        for position, request in enumerate(listed)
    ]
    together = TorchEngine(model, END, PAD, VOCAB, 64, threads=1).run(mixed, decoding)
    for request, result in zip(mixed, together, strict=True):
        assert_same(result, TorchEngine(model, END, PAD, VOCAB, 64, threads=1).run([request], decoding)[0])
