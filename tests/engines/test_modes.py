"""Every mode of decoding gives the same output in any batch of the torch engine."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import exact_tokens
from clearhead.decoding.requests import Constraints, Request
from clearhead.engines import torch_engine as engine_module
from tests.engines.small_models import VOCAB, nudge_batches, random_model, random_requests
from tests.engines.test_batch_independence import assert_same, fixed

INCLUDED = Constraints((9,), LexicalConstraints(((7, 8), (30,)), frozenset({11})))
EXCLUDED = Constraints(exclude=(exact_tokens((14,)), exact_tokens((25, 25)), exact_tokens((41,))))
Asked = Constraints | Callable[[int], Constraints] | None
MODES: dict[str, tuple[dict[str, Any], Asked, int]] = {
    "groups": ({"beam_size": 4, "beam_groups": 2, "diversity_penalty": 0.3}, None, 4),
    "coverage": ({"beam_size": 3, "coverage_penalty": 0.3, "stopping_rule": "cannot_improve"}, None, 3),
    "rules": ({"beam_size": 3, "no_repeat_ngram_size": 2, "min_length": 4}, Constraints((9, 12)), 3),
    "included": ({"beam_size": 2}, INCLUDED, 2),
    "exclude": ({"beam_size": 3}, EXCLUDED, 3),
    "alternatives": (
        {"beam_size": 3},
        lambda number: Constraints((9, 4 + number % 41)),
        3,
    ),  # each continues its own prefix
    "sample": ({"method": "sample", "sampling": {"seed": 3}}, None, 3),
    "filters": (
        {"method": "sample", "sampling": {"top_k": 9, "top_p": 0.8, "min_p": 0.1, "temperature": 0.7}},
        None,
        2,
    ),
}
COUNT = 16
# Size of the perturbation in each mode: some answers change, but only some sentences are decoded again.
NUDGES = {"coverage": 1.2e-3, "rules": 2e-3, "included": 3e-3, "alternatives": 2.3e-3, "sample": 1e-2, "filters": 6e-3}


def requests_in(mode: str, count: int = COUNT, longest: int = 7, room: int = 8) -> tuple[list[Request], DecodingConfig]:
    options, constraints, n_best = MODES[mode]
    decoding = DecodingConfig.model_validate({"max_length": f"input+{room}", **options})
    sources = [each.source for each in random_requests(count, longest=longest)]
    return [
        Request(source, n_best, constraints(number) if callable(constraints) else constraints)
        for number, source in enumerate(sources)
    ], decoding


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_any_batch(mode: str) -> None:
    model = random_model()
    requests, decoding = requests_in(mode)
    alone = fixed(model, 1).run(requests, decoding)

    @given(st.randoms(use_true_random=False), st.integers(2, COUNT))
    @settings(max_examples=3, deadline=None)
    def check(rng: random.Random, size: int) -> None:
        order = rng.sample(range(COUNT), rng.randint(2, COUNT))
        results = fixed(model, size).run([requests[index] for index in order], decoding)
        for position, index in enumerate(order):
            assert_same(results[position], alone[index])

    check()


@pytest.mark.parametrize("mode", MODES)
def test_no_rank_that_decides_is_left_out_of_the_margin(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers do not change if batches perturb logits a thousand times as much as measured; without the check they do.

    The logit of a token always moves in the same direction, so that the changes add up.
    """
    model, count, longest, room = random_model(), 300, 2, 3
    requests, decoding = requests_in(mode, count, longest, room)
    is_sampled = decoding.method == "sample"
    nudge = NUDGES.get(mode, 1.5e-3)
    alone = fixed(model, 1).run(requests, decoding)
    sign_V = 1 - 2 * torch.randint(2, (VOCAB,), generator=torch.Generator().manual_seed(1))
    nudge_batches(monkeypatch, model, lambda logits_RTV: logits_RTV + nudge * sign_V)
    summed = 1 if is_sampled else longest + room + 1  # tokens whose log-probabilities add up before they decide
    for close, is_safe in ((4 * summed * nudge, True), (0.0, False)):
        monkeypatch.setattr(engine_module, "CLOSE", close)
        built = fixed(model, count)
        answers = built.run(requests, decoding)
        changed = sum(
            [a.tokens for a in first] != [b.tokens for b in second]
            for first, second in zip(answers, alone, strict=True)
        )
        if is_safe:
            assert changed == 0
            assert 0 < built.num_decoded_again < 0.8 * count
        else:
            assert changed > 0, "no decision was close, so the test has no effect"
