"""Properties of a recurrent translator with any weights."""

import copy

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.model.recurrent.translator import RecurrentTranslator
from tests.model.recurrent import (
    END,
    LENGTHS,
    PAD,
    START,
    N,
    S,
    T,
    V,
    config,
    ids,
    loud,
    padded,
)

CASES = [
    ("rnn", "none", False),
    ("rnn", "scaled_dot", True),
    ("gru", "cosine", False),
    ("gru", "dot", True),
    ("lstm", "additive", False),
    ("lstm", "general", True),
    ("lstm", "none", True),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'both' if case[2] else 'one'}")
def model(request: pytest.FixtureRequest) -> RecurrentTranslator:
    """A small network with random weights, far enough from zero that everything matters."""
    return loud(RecurrentTranslator(config(*request.param))).eval()


def test_cached_steps_equal_one_pass(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    expected = model.logits(model(src, torch.cat((torch.full((N, 1), START), tgt), 1)))
    first, state = model.start(model.encode(src), 1)
    assert first.tolist() == [[START]] * N
    actual = []
    for tokens in (first, tgt[:, :1], tgt[:, 1:3], tgt[:, 3:]):  # one token, and several at once
        step = model.step(tokens, state)
        actual.append(step.logits_RTV)
        state = step.state
    torch.testing.assert_close(torch.cat(actual, 1), expected, atol=2e-5, rtol=1e-5)


def test_more_padding_changes_nothing(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    padded_src = torch.cat((src, torch.full((N, 4), PAD)), 1)
    padded_tgt = torch.cat((tgt, torch.full((N, 2), PAD)), 1)
    torch.testing.assert_close(model(padded_src, padded_tgt)[:, :T], model(src, tgt), atol=2e-6, rtol=1e-5)


def test_any_batch_equals_alone(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    together = model(src, tgt)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, atol=2e-6, rtol=1e-5)


def test_padding_embeddings_have_no_effect(model: RecurrentTranslator) -> None:
    """Its embedding, even if large, affects no output, and it receives no gradient."""
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    with torch.no_grad():
        model.encoder.embedding.weight[PAD] = 100.0
    after = model(src, tgt)
    torch.testing.assert_close(after, before, atol=2e-6, rtol=1e-5)
    after.square().sum().backward()
    assert model.encoder.embedding.weight.grad is not None
    assert model.encoder.embedding.weight.grad[PAD].abs().max() == 0
    assert model.encoder.embedding.weight.grad[src[0, 0]].abs().max() > 0


def test_every_source_token_matters(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    for row, length in enumerate(LENGTHS):
        for position in range(length):
            changed = src.clone()
            changed[row, position] = (changed[row, position] - 3) % (V - 4) + 4
            is_touched = (model(changed, tgt) - before).abs().amax((1, 2)) > 1e-6
            assert is_touched.tolist() == [each == row for each in range(N)]


def test_future_cannot_touch_the_past(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    for position in range(1, T):
        changed = tgt.clone()
        changed[:, position:] = (changed[:, position:] - 3) % (V - 4) + 4
        torch.testing.assert_close(model(src, changed)[:, :position], before[:, :position], atol=1e-6, rtol=0)
        assert not torch.allclose(model(src, changed)[:, position], before[:, position], atol=1e-3)


@pytest.mark.parametrize(
    "rows", [[5, 4, 0, 0], [1, 0, 2, 2, 4, 5], [4, 4, 2, 3, 1, 0]], ids=["one leaves", "beams move", "sentences move"]
)
def test_rows_share_their_sentence_and_are_reordered(model: RecurrentTranslator, rows: list[int]) -> None:
    src, tgt, width = padded(), ids(N * 2, T), 2
    first, state = model.start(model.encode(src), width)
    with_start = torch.cat((first, tgt), 1)
    state = model.step(with_start, state).state
    if state.source is not None:
        assert len(state.source.states_NSD) == N
    last = ids(len(rows), 1)
    actual = model.step(last, model.reorder(state, torch.tensor(rows))).logits_RTV
    sentences = torch.tensor(rows) // width
    expected = model.logits(model(src[sentences], torch.cat((with_start[rows], last), 1)))[:, -1:]
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-5)


def test_attention_rows_are_probabilities_and_change_nothing(model: RecurrentTranslator) -> None:
    src, width = padded(), 2
    _, state = model.start(model.encode(src), width)
    tokens = ids(N * width, T)
    baseline, traced = model.step(tokens, state), model.step(tokens, state, want_attention=True)
    torch.testing.assert_close(traced.logits_RTV, baseline.logits_RTV)
    assert baseline.attention is None and traced.attention is not None
    assert len(traced.attention) == (0 if model.config.attention == "none" else 1)
    for layer in traced.attention:
        assert layer.cross_RHTS.shape == (N * width, 1, T, S)
        torch.testing.assert_close(layer.cross_RHTS.sum(-1), torch.ones(N * width, 1, T))
        for row in range(N * width):
            assert layer.cross_RHTS[row, :, :, LENGTHS[row // width] :].abs().sum() == 0


def unpadded(src_NS: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token != PAD] for row in src_NS.tolist()]


def test_beam_of_one_is_the_argmax_loop(model: RecurrentTranslator) -> None:
    src, limit = padded(), 9
    results = search(
        SearchBatch(TorchGenerator(model, PAD), unpadded(src), DecodingConfig(beam_size=1), [limit] * N, END, PAD)
    )
    for row, length in enumerate(LENGTHS):
        tokens: list[int] = []
        while len(tokens) < limit and (not tokens or tokens[-1] != END):
            logits = model.logits(model(src[row : row + 1, :length], torch.tensor([[START, *tokens]])))[0, -1]
            logits[[PAD, START]] = float("-inf")
            tokens.append(int(logits.argmax()))
        assert results[row][0].tokens == tuple(token for token in tokens if token != END)


def test_beam_search_gives_the_models_own_probabilities(model: RecurrentTranslator) -> None:
    src, limit = padded(), 9
    generator, settings = TorchGenerator(model, PAD), DecodingConfig(beam_size=3)
    results = search(SearchBatch(generator, unpadded(src), settings, [limit] * N, END, PAD, n_best=3))
    for row, hypotheses in enumerate(results):
        assert len({each.tokens for each in hypotheses}) == 3
        for each in hypotheses:
            written = [*each.tokens, *([END] if each.finish_reason == "end" else [])]
            logits = model.logits(model(src[row : row + 1], torch.tensor([[START, *written[:-1]]])))[0]
            log_probs = logits.log_softmax(-1)[range(len(written)), written]
            assert each.token_log_probs == pytest.approx(log_probs.tolist(), abs=2e-4)


def test_every_weight_learns(model: RecurrentTranslator) -> None:
    model.train()
    model.logits(model(padded(), ids(N, T))).square().sum().backward()  # type: ignore[no-untyped-call]
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_a_copy_with_the_same_weights_has_separate_gradients(model: RecurrentTranslator) -> None:
    """Training on several cores makes such copies."""
    replica = copy.deepcopy(model)
    for parameter, copied in zip(model.parameters(), replica.parameters(), strict=True):
        copied.data = parameter.data
    with torch.no_grad():
        next(iter(model.encoder.parameters())).add_(0.1)
    src, tgt = padded(), ids(N, T)
    torch.testing.assert_close(replica(src, tgt), model(src, tgt))
    replica(src, tgt).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in replica.encoder.parameters())
