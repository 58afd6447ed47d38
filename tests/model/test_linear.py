"""x W + b by oneDNN against torch's own: values, gradients, and for which rows it is taken."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.model import affine
from clearhead.model.linear import GRAIN, WIDE, Linear, grain, linear

D, N = WIDE, WIDE + 3

pytestmark = pytest.mark.skipif(not affine.has_kernel(torch.ones(1)), reason="torch has no such kernels here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The shapes that oneDNN multiplied."""
    seen, multiply = [], affine.multiply

    def noted(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append((*left.shape, right.shape[1]))
        return multiply(left, right, bias)

    monkeypatch.setattr(affine, "multiply", noted)
    yield seen


def trained(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return linear(x, weight, bias, is_training=True)


def weights(requires_grad: bool = True) -> tuple[Tensor, Tensor]:
    return torch.randn(N, D, requires_grad=requires_grad), torch.randn(N, requires_grad=requires_grad)


@pytest.mark.parametrize("shape", [(GRAIN,), (1, 2 * GRAIN), (4, GRAIN // 4)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_equal_torch(shape: tuple[int, ...], has_bias: bool, calls: list[tuple[int, ...]]) -> None:
    weight, bias = weights()
    given = [torch.randn(*shape, D, requires_grad=True), weight, *([bias] if has_bias else [])]
    target = torch.randn(*shape, N)
    found = []
    for multiply in (trained, F.linear):
        y = multiply(*given)
        found.append([y, *torch.autograd.grad((y * target).sum(), given)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-4)
    rows = target.numel() // N
    assert calls == [(rows, D, N), (rows, N, D)]


def test_only_what_is_wanted_is_computed(calls: list[tuple[int, ...]]) -> None:
    """The first layer's input has no gradient, and a bias may stay as it is."""
    weight, bias = weights()
    bias.requires_grad_(False)
    trained(torch.randn(GRAIN, D), weight, bias).sum().backward()  # type: ignore[no-untyped-call]
    assert len(calls) == 1 and weight.grad is not None and bias.grad is None


def test_where_torch_is_left_to_it(calls: list[tuple[int, ...]]) -> None:
    """Numbers of rows that seldom come again, narrow layers, other types, at run time, and weights that stay."""
    (weight, bias), x = weights(), torch.randn(GRAIN, D)
    trained(x[1:], weight, bias)
    trained(torch.randn(65 * GRAIN, D), weight, bias)
    trained(x[:, 1:], weight[:, 1:], bias)
    trained(x.double(), weight.double(), bias.double())
    trained(x, *weights(requires_grad=False))
    with torch.autocast("cpu", torch.bfloat16):
        assert trained(x, weight, bias).dtype == torch.bfloat16
    with torch.no_grad():
        trained(x, weight, bias)
    layer = Linear(D, N)
    assert layer.eval()(x).shape == (GRAIN, N)
    assert not calls
    assert layer.train()(x).shape == (GRAIN, N) and len(calls) == 1
    assert layer(x[:0]).shape == (0, N)


def test_few_numbers_of_rows() -> None:
    assert [grain(rows) for rows in (0, 1, 64, 4095, 4096, 12500)] == [64, 64, 64, 64, 128, 256]
