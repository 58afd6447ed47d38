"""The parts, each against a formula or against torch's own."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clearhead.model import affine
from clearhead.model.dropout import Dropout, dropout_seed, keep_mask
from clearhead.model.loss import MAX_NUMBERS, chunk_size, cross_entropy
from clearhead.model.masks import causal_mask, padding_mask
from clearhead.model.positions import LearnedPositions, SinusoidalPositions, sinusoids


@pytest.mark.parametrize("width", [10, 7], ids=["even", "odd"])
def test_sinusoids_follow_the_formula(width: int) -> None:
    table = sinusoids(13, width)
    for position in (0, 1, 12):
        for i in range(width):
            angle = position / 10000 ** (2 * (i // 2) / width)
            assert table[position, i] == pytest.approx(math.sin(angle) if i % 2 == 0 else math.cos(angle), abs=1e-6)


def test_sinusoids_of_an_offset_are_a_rotation() -> None:
    """PE(pos + k) is the same linear map of PE(pos) for every pos: a rotation of each sine-cosine pair."""
    table, offset = sinusoids(50, 6).double(), 9
    for pair in range(3):
        angle = offset / 10000 ** (2 * pair / 6)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double()
        both = table[:, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(both[:-offset] @ turn.T, both[offset:], atol=1e-6, rtol=0)


def test_positions_start_anywhere() -> None:
    for positions in (SinusoidalPositions(11, 6), LearnedPositions(11, 6)):
        torch.testing.assert_close(positions(3, 5), positions(0, 11)[3:8])
    assert not SinusoidalPositions(11, 6).state_dict()


def test_masks_say_what_may_be_attended() -> None:
    assert padding_mask(torch.tensor([[5, 6], [7, 8]]), 0) is None
    allowed = padding_mask(torch.tensor([[5, 0], [7, 8]]), 0)
    assert allowed is not None and allowed.shape == (2, 1, 1, 2)
    assert allowed.flatten().tolist() == [True, False, True, True]
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocab", [29, 3001], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize("has_onednn", [True, False])
@pytest.mark.parametrize("turns", [True, False], ids=["turned", "as it is"])
def test_loss_and_gradients_equal_torch(
    smoothing: float, vocab: int, has_onednn: bool, turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply, multiply_onto = affine.multiply, affine.multiply_onto
    calls = []

    def noted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        calls.append(len(left))
        return multiply(left, right)

    def noted_onto(summed: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        calls.append(len(left))
        return multiply_onto(summed, left, right)

    monkeypatch.setattr(affine, "multiply", noted)
    monkeypatch.setattr(affine, "multiply_onto", noted_onto)
    if not turns:
        monkeypatch.setattr("clearhead.model.loss.TURNED_NUMBERS", 0)
    if not has_onednn:
        monkeypatch.setattr(affine, "has_kernel", lambda *factors: False)
    monkeypatch.setattr("clearhead.model.loss.CHUNK_NUMBERS", 10000)
    monkeypatch.setattr("clearhead.model.loss.MIN_CHUNK", 1)
    rows, length, width = 5, 7, 11
    hidden = torch.randn(rows, length, width, requires_grad=True)
    weight = torch.randn(vocab, width, requires_grad=True)
    target = torch.randint(1, vocab, (rows, length))
    target[1, 4:] = 0
    loss = cross_entropy(hidden, weight, target, 0, smoothing)
    loss.smoothed.backward()  # type: ignore[no-untyped-call]
    gradients = (hidden.grad, weight.grad)
    hidden.grad = weight.grad = None
    logits = (hidden @ weight.T).flatten(0, 1)
    expected = F.cross_entropy(logits, target.flatten(), label_smoothing=smoothing, ignore_index=0, reduction="sum")
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss.smoothed, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, target.flatten(), ignore_index=0, reduction="sum"))
    torch.testing.assert_close(gradients[0], hidden.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], weight.grad, rtol=1e-4, atol=1e-5)
    assert loss.tokens == rows * length - 3
    of_a_chunk = [3, 3, width] if turns else [3, 3]
    assert calls == (of_a_chunk * 10 if affine.has_kernel(weight) and vocab == 3001 else []), (
        "for each whole chunk, no others"
    )


def test_loss_of_an_impossible_token_is_finite() -> None:
    hidden = torch.tensor([[[1000.0]]])
    loss = cross_entropy(hidden, torch.tensor([[0.0], [1.0], [0.0]]), torch.tensor([[2]]), 0, 0.0)
    assert float(loss.nll) == pytest.approx(1000.0)


@pytest.mark.parametrize("distance", [40.0, 80.0, 102.0, 200.0])
def test_unlikely_tokens_lose_no_accuracy(distance: float) -> None:
    """Between e^-87 and e^-104 float32 has fewer and fewer digits, below it none."""
    hidden = torch.tensor([[[distance], [1.0]]], requires_grad=True)
    weight = torch.tensor([[0.0], [1.0], [0.0]], requires_grad=True)
    target = torch.tensor([[2, 1]])
    loss = cross_entropy(hidden, weight, target, 0, 0.1)
    expected = F.cross_entropy((hidden @ weight.T)[0].double(), target[0], label_smoothing=0.1, reduction="sum")
    assert float(loss.smoothed.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    ours = torch.autograd.grad(loss.smoothed, (hidden, weight))
    for found, wanted in zip(ours, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        torch.testing.assert_close(found, wanted)


def test_gradients_of_a_loss_are_handed_out_once() -> None:
    hidden = torch.randn(2, 3, 5, requires_grad=True)
    loss = cross_entropy(hidden, torch.randn(7, 5), torch.full((2, 3), 4), 0, 0.1)
    (3 * loss.smoothed).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="handed out already"):
        loss.smoothed.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("vocab", [100, 6_000, 37_000, 250_000])
def test_logits_do_not_grow_with_the_batch(vocab: int) -> None:
    few, many = chunk_size(10_000, vocab), chunk_size(10_000_000, vocab)
    assert few * vocab <= MAX_NUMBERS and many * vocab <= MAX_NUMBERS
    assert chunk_size(3, vocab) == 3


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_the_rate(rate: float) -> None:
    with dropout_seed(1, 2, 3):
        mask = keep_mask(torch.Size((1009, 499)), rate)
    assert mask.mean().item() == pytest.approx(1.0, abs=0.01)
    assert (mask == 0).float().mean().item() == pytest.approx(round(rate * 256) / 256, abs=0.003)


def test_dropout_is_a_pure_function_of_its_seed() -> None:
    def draw(*words: int) -> torch.Tensor:
        with dropout_seed(*words):
            return torch.cat([keep_mask(torch.Size((7,)), 0.5) for _ in range(9)])

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
    assert not torch.equal(draw(1, 2), draw(2, 2))


def test_dropped_sum_and_its_gradient() -> None:
    dropout = Dropout(0.5)
    skip, x = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    with dropout_seed(4):
        mask = keep_mask(x.shape, 0.5)
    with dropout_seed(4):
        total = dropout.add(skip, x)
    torch.testing.assert_close(total, skip + x * mask)
    total.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, mask)
    torch.testing.assert_close(skip.grad, torch.ones(5, 7))
    dropout.eval()
    torch.testing.assert_close(dropout.add(skip, x), skip + x)
    assert dropout(x) is x


def test_dropout_outside_a_seed_follows_torch() -> None:
    torch.manual_seed(5)
    first = nn.Sequential(Dropout(0.5))(torch.ones(101))
    assert 0 < int((first == 0).sum()) < 101
