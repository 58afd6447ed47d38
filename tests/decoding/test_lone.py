"""Search for one sentence on plain numbers decides as search on arrays does, and leaves to it what it cannot do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.choice import Listed
from clearhead.decoding.job import Job
from clearhead.decoding.layout import Constraints
from clearhead.decoding.lone import find_one, is_lone
from clearhead.decoding.progress import Found
from clearhead.decoding.search import Walk
from clearhead.model.transformer import Transformer
from tests.decoding.table import TableGenerator
from tests.engines.small_models import END, PAD, random_model, requests, trained_model


def by_arrays(job: Job) -> Found:
    walk = Walk(job)
    for _ in walk.steps():
        pass
    return walk.progress.results(job.n_best)[0]


def check(job: Job) -> Found:
    assert is_lone(job)
    found, expected = find_one(job), by_arrays(job)
    assert found.hypotheses == expected.hypotheses  # bit for bit: both read the same logits
    assert found.margin == pytest.approx(expected.margin, abs=1e-12)
    return found


SETTINGS: list[dict[str, Any]] = [
    {"beam_size": beam, **others}
    for beam in (1, 2, 5)
    for others in (
        {},
        {"stopping_rule": "cannot_improve"},
        {"stopping_rule": "no_better_now", "length_penalty": 1.0},
        {"length_penalty_form": "gnmt"},
        {"length_penalty_form": "none", "stopping_rule": "cannot_improve"},
    )
]


@pytest.mark.parametrize("given", SETTINGS, ids=lambda given: "-".join(map(str, given.values())))
@pytest.mark.parametrize("kind", [random_model, trained_model])
def test_the_same_as_by_arrays(kind: Callable[[], Transformer], given: dict[str, Any]) -> None:
    model = kind()
    settings = DecodingConfig.model_validate(given)
    reasons = set()
    for number, request in enumerate(requests(12)):
        source = torch.tensor([request.source])
        found = check(Job(model, source, settings, [1 + 3 * number], END, PAD, n_best=settings.beam_size))
        reasons |= {each.finish_reason for each in found.hypotheses}
    assert reasons == {"end", "length"} or kind is random_model


@pytest.mark.parametrize("distinct", [0, 2], ids=["apart", "tied"])
@pytest.mark.parametrize("end_bonus", [-9.0, 0.0, 2.0])
@pytest.mark.parametrize("vocab_size", [4, 5, 11])
def test_small_vocabularies_and_exact_ties(vocab_size: int, end_bonus: float, distinct: int) -> None:
    """Fewer continuations than the beam looks at, ends everywhere or nowhere, and candidates that are equal."""
    table = TableGenerator(vocab_size, end_bonus=end_bonus, distinct=distinct)
    for number, given in enumerate(SETTINGS):
        settings = DecodingConfig.model_validate(given)
        job = Job(table, torch.tensor([[number]]), settings, [1 + number % 6], 2, 0, n_best=settings.beam_size)
        if distinct:
            assert find_one(job).hypotheses == by_arrays(job).hypotheses
        else:
            check(job)


def test_nothing_that_could_follow_is_blocked() -> None:
    """Padding and the start are never written, and the end of this table is as good as forbidden."""
    table = TableGenerator(3, end_bonus=float("-inf"))
    found = check(Job(table, torch.tensor([[5]]), DecodingConfig(beam_size=2), [4], 2, 0))
    assert [(each.tokens, each.finish_reason) for each in found.hypotheses] == [((), "blocked")]


@pytest.mark.parametrize(
    "settings, asked",
    [
        ({"coverage_penalty": 0.2}, {}),
        ({"min_length": 2}, {}),
        ({"no_repeat_ngram_size": 2}, {}),
        ({"beam_size": 4, "beam_groups": 2}, {}),
        ({"method": "sample"}, {}),
        ({}, {"prefix": (7,)}),
        ({}, {"is_stopped": lambda tokens: False}),
        ({}, {"shortlist": Listed((7, 8), 53)}),
    ],
)
def test_anything_more_is_left_to_the_arrays(settings: dict[str, Any], asked: dict[str, Any]) -> None:
    src, constraints = torch.tensor([[7, END]]), [Constraints(**asked)]
    chosen = DecodingConfig.model_validate(settings)
    assert not is_lone(Job(random_model(), src, chosen, [5], END, PAD, constraints=constraints))
    assert is_lone(Job(random_model(), src, DecodingConfig(), [5], END, PAD))
    assert not is_lone(Job(random_model(), src.repeat(2, 1), DecodingConfig(), [5, 5], END, PAD))
