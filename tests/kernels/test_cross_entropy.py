"""Cross-entropy in chunks against torch's: values, gradients, and which products oneDNN computes."""

import pytest
import torch
from torch.nn import functional as F

from clearhead import kernels
from clearhead.kernels import chunked_cross_entropy, onednn
from clearhead.kernels.chunked_cross_entropy import MAX_LOGITS, chunk_size
from clearhead.model.loss import cross_entropy

MODULE = "clearhead.kernels.chunked_cross_entropy."


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocab", [29, 3001], ids=["one chunk", "many chunks"])
@pytest.mark.parametrize("has_onednn", [True, False])
@pytest.mark.parametrize("transposes", [True, False], ids=["transposed", "not transposed"])
def test_loss_and_gradients_equal_torch(
    smoothing: float, vocab: int, has_onednn: bool, transposes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply, multiply_add = onednn.multiply, onednn.multiply_add
    calls = []

    def noted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        calls.append(len(left))
        return multiply(left, right)

    def noted_add(summed: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        calls.append(len(left))
        return multiply_add(summed, left, right)

    monkeypatch.setattr(MODULE + "multiply", noted)
    monkeypatch.setattr(MODULE + "multiply_add", noted_add)
    if not transposes:
        monkeypatch.setattr(MODULE + "MAX_TRANSPOSED", 0)
    if not has_onednn:
        monkeypatch.setattr(MODULE + "has_onednn", lambda *factors: False)
    monkeypatch.setattr(MODULE + "CHUNK_LOGITS", 10000)
    monkeypatch.setattr(MODULE + "MIN_CHUNK", 1)
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
    of_a_chunk = [3, 3, width] if transposes else [3, 3]
    assert calls == (of_a_chunk * 10 if has_onednn and onednn.has_onednn(weight) and vocab == 3001 else []), (
        "for each full chunk, no others"
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
    for actual, is_selected in zip(ours, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        torch.testing.assert_close(actual, is_selected)


def test_gradients_of_a_loss_are_used_once() -> None:
    hidden = torch.randn(2, 3, 5, requires_grad=True)
    loss = cross_entropy(hidden, torch.randn(7, 5), torch.full((2, 3), 4), 0, 0.1)
    (3 * loss.smoothed).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="used already"):
        loss.smoothed.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("vocab", [100, 6_000, 37_000, 250_000])
def test_logits_do_not_grow_with_the_batch(vocab: int) -> None:
    few, many = chunk_size(10_000, vocab), chunk_size(10_000_000, vocab)
    assert few * vocab <= MAX_LOGITS and many * vocab <= MAX_LOGITS
    assert chunk_size(3, vocab) == 3


@pytest.mark.parametrize("has_bias", [True, False])
def test_plain_torch_gives_the_same(has_bias: bool) -> None:
    hidden, weight = torch.randn(7, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    bias = torch.randn(11, requires_grad=True) if has_bias else None
    inputs = [each for each in (hidden, weight, bias) if each is not None]
    results: list[list[torch.Tensor]] = []
    for _ in range(2):
        with kernels.disabled() if results else torch.enable_grad():
            smoothed, nll = kernels.cross_entropy(hidden, weight, bias, torch.arange(7), 0.1)
        results.append([smoothed, nll, *torch.autograd.grad(smoothed, inputs)])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_gradients_are_computed_only_if_required(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight = torch.randn(7, 5), torch.randn(11, 5, requires_grad=True)
    calls: list[object] = []
    monkeypatch.setattr(chunked_cross_entropy._Chunks, "_add_gradients", lambda *inputs: calls.append(inputs))
    with torch.no_grad():
        kernels.cross_entropy(hidden, weight, None, torch.arange(7), 0.1)
    assert not calls
    kernels.cross_entropy(hidden, weight, None, torch.arange(7), 0.1)
    assert calls
