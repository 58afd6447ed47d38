"""Drawing tokens: filters against transformers, frequencies against probabilities, and a context that slides."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from clearhead.config import ModelConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.chance import Filtered, draw, gumbel, min_p, rank_by_chance, soften, top_k, top_p
from clearhead.decoding.sampling import sample
from clearhead.errors import DecodingError
from clearhead.model.language import LanguageModel

VOCAB, END = 13, 3
IDS = torch.zeros(1, 1, dtype=torch.long)  # what transformers wants and does not look at


def network(max_positions: int = 64) -> LanguageModel:
    """A network with random weights that says different things at different places."""
    torch.manual_seed(5)
    config = ModelConfig(family="decoder", num_decoder_layers=2, model_dim=8, inner_dim=11, num_heads=2,
                         vocab_size=VOCAB, max_positions=max_positions)  # fmt: skip
    model = LanguageModel(config).eval()
    with torch.no_grad():
        model.output.weight.mul_(3.0)
    return model


@pytest.mark.parametrize("seed", range(5))
def test_filters_are_those_of_transformers(seed: int) -> None:
    logits_V = 3 * torch.randn(101, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits_V[7] = logits_V[11]  # equal ones are kept together
    for temperature in (0.3, 1.0, 2.5):
        expected = TemperatureLogitsWarper(temperature)(IDS, logits_V[None])[0]
        assert torch.equal(soften(logits_V, temperature), expected)
    for count in (1, 2, 17, 100, 101, 500):
        assert torch.equal(kept(logits_V, top_k(logits_V, count)), TopKLogitsWarper(count)(IDS, logits_V[None])[0])
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        assert torch.equal(kept(logits_V, top_p(logits_V, share)), TopPLogitsWarper(share)(IDS, logits_V[None])[0])
        assert torch.equal(kept(logits_V, min_p(logits_V, share)), MinPLogitsWarper(share)(IDS, logits_V[None])[0])


def kept(logits_V: Tensor, filtered: Filtered) -> Tensor:
    """As transformers gives it back."""
    return logits_V.masked_fill(~filtered.kept_RV, float("-inf"))


FILTERS = [
    {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 5, "top_p": 0.8},
    {"top_p": 0.9, "min_p": 0.1, "temperature": 0.6}, {"temperature": 1.7},
]  # fmt: skip


@pytest.mark.parametrize("settings", FILTERS)
def test_a_draw_stays_when_nothing_moves_more_than_its_margin(settings: dict[str, float]) -> None:
    """Every logit is nudged by a quarter of the margin, which changes no draw; by 4 times it changes many."""
    config, draws, close = SamplingConfig.model_validate(settings), 0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        logits_V = 2 * torch.from_numpy(rng.standard_normal(11)).log_softmax(-1)
        noise_V = torch.from_numpy(gumbel(rng, 11))
        ranks_V, margin = rank_by_chance(logits_V, config, noise_V)
        best, second = ranks_V.topk(2).values.tolist()
        allowed = min(best - second, float("inf") if margin is None else float(margin))
        for size, must_hold in ((0.24, True), (4.0, False)):
            nudge_V = torch.from_numpy(rng.choice([-1.0, 1.0], 11)) * min(allowed, 9.0) * size
            nudged_V, _ = rank_by_chance(logits_V + nudge_V, config, noise_V)
            is_same = int(nudged_V.argmax()) == int(ranks_V.argmax())
            assert is_same or not must_hold, (seed, settings)
            draws, close = draws + (not must_hold), close + (not must_hold and not is_same)
    assert close > draws / 10, "margins are far too careful"


def test_tokens_come_as_often_as_they_are_probable() -> None:
    logits_V = torch.tensor([0.0, 1.0, -1.0, float("-inf"), 2.0])
    settings = SamplingConfig(temperature=1.5, top_k=3)
    p_V = torch.tensor([0.0, 1.0, float("-inf"), float("-inf"), 2.0]).div(1.5).softmax(-1)
    rng = np.random.default_rng(1)
    counts = Counter(draw(logits_V, settings, rng) for _ in range(4000))
    assert set(counts) == {0, 1, 4}
    for token, count in counts.items():
        share = float(p_V[token])
        assert abs(count / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5  # four standard deviations


def test_same_seed_same_tokens_and_other_samples_differ() -> None:
    def tokens(seed: int, number: int = 0) -> list[int]:
        settings = SamplingConfig(seed=seed, max_tokens=20)
        return [one.token for one in sample(network(), [2, 5], settings, 64, end_id=-1, number=number)]

    assert tokens(1) == tokens(1) and len(tokens(1)) == 20
    assert len({tuple(tokens(seed, number)) for seed in (1, 2) for number in (0, 1)}) == 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_cached_and_sliding_is_what_a_slow_loop_gives(temperature: float) -> None:
    """Context of 11 tokens, 40 to write: it slides several times, to the last 5 tokens each time."""
    model, context = network(max_positions=11), 11
    settings = SamplingConfig(max_tokens=40, temperature=temperature, seed=3)
    drawn = list(sample(model, [2, 7, 9], settings, context, end_id=-1, never=[0]))
    rng, ids, slow = np.random.default_rng([3, 0]), [2, 7, 9], []
    with torch.no_grad():
        for _ in range(40):
            ids = ids[-5:] if len(ids) > context else ids
            logits_V = model.logits(model(torch.tensor([ids])))[0, -1]
            token = draw(logits_V.index_fill(0, torch.tensor([0]), float("-inf")), settings, rng)
            slow.append((token, float(logits_V.double().log_softmax(-1)[token])))
            ids.append(token)
    assert [one.token for one in drawn] == [token for token, _ in slow]
    assert [one.log_prob for one in drawn] == pytest.approx([log_prob for _, log_prob in slow], abs=1e-5)


def test_the_end_ends_it_and_what_is_forbidden_never_comes() -> None:
    settings = SamplingConfig(max_tokens=60, temperature=2.0)
    tokens = [one.token for one in sample(network(), [2], settings, 64, end_id=-1)]
    end = tokens[9]
    until_end = [one.token for one in sample(network(), [2], settings, 64, end_id=end)]
    assert until_end == tokens[: tokens.index(end) + 1]
    never = sorted(set(tokens))[1:]
    others = [one.token for one in sample(network(), [2], settings, 64, end_id=-1, never=never)]
    assert len(others) == 60 and not set(others) & set(never)


@pytest.mark.parametrize("prompt", [[], [5] * 12])
def test_a_prompt_that_does_not_fit_is_refused(prompt: list[int]) -> None:
    with pytest.raises(DecodingError, match="expected a prompt of 1 to 11 tokens"):
        next(iter(sample(network(), prompt, SamplingConfig(), 11, END)))


def test_a_full_prompt_and_the_smallest_context_go_on() -> None:
    for context, prompt in ((11, [5] * 11), (2, [2]), (1, [2])):
        settings = SamplingConfig(max_tokens=9)
        assert len(list(sample(network(11), prompt, settings, context, end_id=-1, never=[0]))) == 9
