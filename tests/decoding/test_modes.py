"""Groups, coverage and samples against what can be computed without search; and all modes in any company."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.banks import Phrases
from clearhead.decoding.layout import Constraints
from clearhead.decoding.requests import Request
from clearhead.decoding.rules import exactly
from clearhead.decoding.scoring import Hypothesis, divisor
from clearhead.decoding.search import Job, search
from clearhead.engines import torch_engine as engine_module
from clearhead.errors import DecodingError
from tests.decoding.table import END, PAD, START, TableGenerator, TableState, TableStep, _every
from tests.engines.small_models import VOCAB, nudge_batches, random_model, requests
from tests.engines.test_batch_independence import assert_same, fixed


@pytest.mark.parametrize(("groups", "width", "penalty"), [(2, 1, 0.7), (3, 2, 0.4), (2, 3, 9.0), (4, 1, 0.0)])
def test_groups_against_a_loop(groups: int, width: int, penalty: float) -> None:
    table, limit = TableGenerator(11, end_bonus=1.0), 6
    beam = groups * width
    decoding = DecodingConfig(beam_size=beam, beam_groups=groups, diversity_penalty=penalty)
    results = search(Job(table, torch.arange(9)[:, None], decoding, [limit] * 9, END, PAD, beam))
    for key, found in enumerate(results):
        expected = _diverse(table, key, groups, width, penalty, limit)
        scores = {tokens: sum(score) / divisor(len(score), decoding) for tokens, score in expected.items()}
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:beam]
        assert [each.tokens for each in found] == ranked
        assert [each.score for each in found] == pytest.approx([scores[tokens] for tokens in ranked], abs=1e-5)
    if penalty == 0:  # without a penalty all groups find the same
        assert all(len(found) == 1 for found in results)
    if penalty == 9 and width == 3:  # with a high one the groups begin differently
        assert all(len({each.tokens[:1] for each in found}) > 3 for found in results)


def _diverse(
    table: TableGenerator, key: int, groups: int, width: int, penalty: float, limit: int
) -> dict[tuple[int, ...], list[float]]:
    """Diverse beam search, written down again: outputs with their log-probabilities."""
    live: list[list[tuple[tuple[int, ...], list[float]]]] = [[((), [])] for _ in range(groups)]
    finished: list[dict[tuple[int, ...], list[float]]] = [{} for _ in range(groups)]
    for step in range(limit):
        used: Counter[int] = Counter()
        for group in range(groups):
            options = []
            for parent, (tokens, scores) in enumerate(live[group]):
                log_probs_V = table.logits(key, (START, *tokens)).log_softmax(0).tolist()
                for token in range(END, table.vocab_size):
                    rank = sum(scores) + log_probs_V[token] - penalty * used[token]
                    options.append((-rank, parent, token, tokens, [*scores, log_probs_V[token]]))
            options.sort(key=lambda option: option[:3])
            for _, _, token, tokens, scores in options[:width]:
                if token == END or step == limit - 1:
                    finished[group][tokens if token == END else (*tokens, token)] = scores
            kept = [option for option in options if option[2] != END][:width]
            used.update(option[2] for option in kept)
            is_over = len(finished[group]) >= width
            live[group] = [] if is_over else [((*tokens, token), scores) for _, _, token, tokens, scores in kept]
    return {tokens: scores for group in reversed(finished) for tokens, scores in group.items()}


@dataclass(frozen=True)
class Weights:
    cross_RHTS: Tensor


class Attending(TableGenerator):
    """Attends to four source places, by history."""

    def attention(self, key: int, history: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(hash((key, history)) % 2**30))
        return (2 * drawn).softmax(-1)  # 3 heads

    def step(self, tokens_RT: Tensor, state: TableState, /, want_attention: bool = False) -> Any:
        assert want_attention
        found: TableStep = super().step(tokens_RT, state)
        keys = state.key_N.repeat_interleave(state.width).tolist()
        seen = [self.attention(key, past) for key, past in zip(keys, found.state.history, strict=True)]
        cross_RHTS = torch.stack(seen)[:, :, None]
        return replace(found, attention=[Weights(cross_RHTS * 0), Weights(cross_RHTS)])  # type: ignore[arg-type]


@pytest.mark.parametrize("stop", ["beam_finished", "cannot_improve"])
@pytest.mark.parametrize("weight", [0.1, 1.5])
def test_coverage_against_every_output(weight: float, stop: str) -> None:
    table, limit = Attending(6), 4
    decoding = DecodingConfig.model_validate({"beam_size": 130, "coverage_penalty": weight, "stopping_rule": stop})
    src_NS = torch.tensor([[key, 5, END, PAD] for key in range(3, 7)])
    results = search(Job(table, src_NS, decoding, [limit] * 4, END, PAD, 3))
    for key, found in enumerate(results, 3):
        scores = {}
        for tokens, ends in _every(6, limit):
            log_probs = table.score(key, tokens, ends)
            histories = [(START, *tokens[:place]) for place in range(len(log_probs))]
            seen_S = torch.stack([table.attention(key, history).mean(0) for history in histories]).sum(0)
            penalty = float(seen_S.clamp(max=1)[:2].log().sum())  # the end and the padding do not count
            scores[tokens] = sum(log_probs) / divisor(len(log_probs), decoding) + weight * penalty
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:3]
        assert [each.tokens for each in found] == ranked
        assert [each.score for each in found] == pytest.approx([scores[tokens] for tokens in ranked], abs=1e-5)


def test_coverage_needs_attention() -> None:
    with pytest.raises(DecodingError, match=r"decoding\.coverage_penalty needs a model that attends to its source"):
        search(Job(TableGenerator(7), torch.zeros(1, 1).long(), DecodingConfig(coverage_penalty=0.1), [5], END, PAD))


def drawn(
    table: TableGenerator, src_NS: Tensor, n_best: int = 1, limit: int = 3, **more: Any
) -> list[list[Hypothesis]]:
    decoding = DecodingConfig.model_validate({"method": "sample", "sampling": more})
    return search(Job(table, src_NS, decoding, [limit] * len(src_NS), END, PAD, n_best))


def test_outputs_are_drawn_as_often_as_they_are_probable() -> None:
    """One distribution, 1,500 sentences that differ in what else they say; and what filters leave out never comes."""
    table, count = TableGenerator(6, scale=1.5), 1500
    src_NS = torch.stack((torch.zeros(count).long(), torch.arange(count)), 1)
    outputs = Counter(found[0].tokens for found in drawn(table, src_NS, limit=2))
    p_V = table.logits(0, (START,)).index_fill(0, torch.tensor([PAD, START]), -torch.inf).softmax(0)
    for token in range(END + 1, 6):
        share = float(p_V[token])
        times = sum(number for tokens, number in outputs.items() if tokens[:1] == (token,))
        assert abs(times / count - share) < 4 * (share * (1 - share) / count) ** 0.5
    assert len(outputs) > 9
    best = int(p_V.argmax())
    greedy = {found[0].tokens[:1] for found in drawn(table, src_NS[:50], top_k=1)}
    assert greedy == {(best,) if best != END else ()}


def test_a_draw_depends_on_seed_number_and_sentence_only() -> None:
    table = TableGenerator(11, end_bonus=-3.0)
    src_NS = torch.tensor([[4, 9], [4, 8], [4, 9], [7, PAD]])
    three = drawn(table, src_NS, 3, limit=9, seed=5)
    assert three[0] == three[2], "equal sentences are drawn equally"
    assert [found[0].tokens for found in drawn(table, src_NS[:2], 1, limit=9, seed=5)] == [
        found[0].tokens for found in three[:2]
    ]
    assert drawn(table, src_NS[3:, :1], 3, limit=9, seed=5)[0] == three[3], "padding is not what a sentence says"
    others = [drawn(table, src_NS, 3, limit=9, seed=6)[0], three[1]]
    assert len({each.tokens for found in (three[0], *others) for each in found}) == 9
    for key, found in enumerate(three):
        for each in found:
            expected = table.score(int(src_NS[key, 0]), each.tokens, each.finish_reason == "end")
            assert each.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_temperature_zero_is_greedy() -> None:
    table, src_NS = TableGenerator(11, end_bonus=0.5), torch.arange(20)[:, None]
    greedy = search(Job(table, src_NS, DecodingConfig(beam_size=1), [7] * 20, END, PAD))
    assert [each[0].tokens for each in drawn(table, src_NS, limit=7, temperature=0)] == [
        each[0].tokens for each in greedy
    ]


WANTED = Constraints((9,), Phrases(((7, 8), (30,)), frozenset({11})))
EXCLUDED = Constraints(exclude=(exactly((14,)), exactly((25, 25)), exactly((41,))))
Asked = Constraints | Callable[[int], Constraints] | None
MODES: dict[str, tuple[dict[str, Any], Asked, int]] = {
    "groups": ({"beam_size": 4, "beam_groups": 2, "diversity_penalty": 0.3}, None, 4),
    "coverage": ({"beam_size": 3, "coverage_penalty": 0.3, "stopping_rule": "cannot_improve"}, None, 3),
    "rules": ({"beam_size": 3, "no_repeat_ngram_size": 2, "min_length": 4}, Constraints((9, 12)), 3),
    "wanted": ({"beam_size": 2}, WANTED, 2),
    "exclude": ({"beam_size": 3}, EXCLUDED, 3),
    "alternatives": (
        {"beam_size": 3},
        lambda number: Constraints((9, 4 + number % 41)),
        3,
    ),  # each goes on from its own
    "sample": ({"method": "sample", "sampling": {"seed": 3}}, None, 3),
    "filters": (
        {"method": "sample", "sampling": {"top_k": 9, "top_p": 0.8, "min_p": 0.1, "temperature": 0.7}},
        None,
        2,
    ),
}
COUNT = 16
# By how often decisions are close: so that some answers change, and less than half are decoded again.
NUDGES = {"coverage": 1.2e-3, "rules": 2e-3, "alternatives": 2.3e-3, "sample": 1e-2, "filters": 6e-3}


def asked_in(mode: str, count: int = COUNT, longest: int = 7, room: int = 8) -> tuple[list[Request], DecodingConfig]:
    more, asked, n_best = MODES[mode]
    decoding = DecodingConfig.model_validate({"max_length": f"input+{room}", **more})
    sources = [each.source for each in requests(count, longest=longest)]
    return [
        Request(source, n_best, asked(number) if callable(asked) else asked) for number, source in enumerate(sources)
    ], decoding


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_any_company(mode: str) -> None:
    model = random_model()
    asked, decoding = asked_in(mode)
    alone = fixed(model, 1).run(asked, decoding)

    @given(st.randoms(use_true_random=False), st.integers(2, COUNT))
    @settings(max_examples=3, deadline=None)
    def check(rng: random.Random, size: int) -> None:
        order = rng.sample(range(COUNT), rng.randint(2, COUNT))
        found = fixed(model, size).run([asked[index] for index in order], decoding)
        for place, index in enumerate(order):
            assert_same(found[place], alone[index])

    check()


@pytest.mark.parametrize("mode", MODES)
def test_no_rank_that_decides_is_left_out_of_the_margin(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had batches moved logits by a thousand times what was measured, answers would stay; without the check not.

    Each token is moved up or down, always alike, so that what is moved adds up as far as it can.
    """
    model, count, longest, room = random_model(), 200, 2, 3
    asked, decoding = asked_in(mode, count, longest, room)
    is_sampled = decoding.method == "sample"
    nudge = NUDGES.get(mode, 1.5e-3)
    alone = fixed(model, 1).run(asked, decoding)
    sign_V = 1 - 2 * torch.randint(2, (VOCAB,), generator=torch.Generator().manual_seed(1))
    nudge_batches(monkeypatch, model, lambda logits_RTV: logits_RTV + nudge * sign_V)
    summed = 1 if is_sampled else longest + room + 1  # tokens whose log-probabilities add up before they decide
    for close, is_safe in ((4 * summed * nudge, True), (0.0, False)):
        monkeypatch.setattr(engine_module, "CLOSE", close)
        built = fixed(model, count)
        answers = built.run(asked, decoding)
        changed = sum(
            [a.tokens for a in one] != [b.tokens for b in other] for one, other in zip(answers, alone, strict=True)
        )
        if is_safe:
            assert changed == 0
            assert 0 < built.num_decoded_again < count / 2
        else:
            assert changed > 0, "nothing was close: this shows nothing"
