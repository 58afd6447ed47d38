"""Linear layers by oneDNN compared with torch: values, gradients, and the numbers of rows for which it is used."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead import kernels
from clearhead.kernels import Linear, joint_linear, linear, linear_layers, onednn
from clearhead.kernels.onednn import WIDE
from clearhead.kernels.padding_free import ROW_MULTIPLE, row_multiple

D, N = WIDE, WIDE + 3

pytestmark = pytest.mark.skipif(not onednn.has_onednn(torch.ones(1)), reason="torch has no such kernels here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Yield a list to which the shapes of all products by oneDNN are appended."""
    shapes, multiply = [], onednn.multiply

    def noted(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append((*left.shape, right.shape[1]))
        return multiply(left, right, bias)

    monkeypatch.setattr(linear_layers, "multiply", noted)
    yield shapes


def weights(requires_grad: bool = True) -> tuple[Tensor, Tensor]:
    return torch.randn(N, D, requires_grad=requires_grad), torch.randn(N, requires_grad=requires_grad)


@pytest.mark.parametrize("shape", [(ROW_MULTIPLE,), (1, 2 * ROW_MULTIPLE), (4, ROW_MULTIPLE // 4)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_equal_torch(shape: tuple[int, ...], has_bias: bool, calls: list[tuple[int, ...]]) -> None:
    weight, bias = weights()
    inputs = [torch.randn(*shape, D, requires_grad=True), weight, *([bias] if has_bias else [])]
    target = torch.randn(*shape, N)
    results = []
    for multiply in (linear, F.linear):
        y = multiply(*inputs)
        results.append([y, *torch.autograd.grad((y * target).sum(), inputs)])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-4)
    rows = target.numel() // N
    assert calls == [(rows, D, N), (rows, N, D)]


def test_only_required_gradients_are_computed(calls: list[tuple[int, ...]]) -> None:
    """The first layer's input has no gradient, and a bias may be frozen."""
    weight, bias = weights()
    bias.requires_grad_(False)
    linear(torch.randn(ROW_MULTIPLE, D), weight, bias).sum().backward()  # type: ignore[no-untyped-call]
    assert len(calls) == 1 and weight.grad is not None and bias.grad is None


def test_cases_in_which_torch_multiplies(calls: list[tuple[int, ...]]) -> None:
    """Torch multiplies for rare numbers of rows, narrow layers, other dtypes, at inference, and with frozen weights."""
    (weight, bias), x = weights(), torch.randn(ROW_MULTIPLE, D)
    linear(x[1:], weight, bias)
    linear(torch.randn(65 * ROW_MULTIPLE, D), weight, bias)
    linear(x[:, 1:], weight[:, 1:], bias)
    linear(x.double(), weight.double(), bias.double())
    linear(x, *weights(requires_grad=False))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    with torch.no_grad():
        linear(x, weight, bias)
    with kernels.disabled():
        linear(x, weight, bias)
    assert not calls
    layer = Linear(D, N)
    assert layer(x).shape == (ROW_MULTIPLE, N) and len(calls) == 1
    assert layer(x[:0]).shape == (0, N)


@pytest.mark.parametrize("is_wide", [True, False])
def test_joint_products_equal_single_ones(is_wide: bool) -> None:
    """Outputs are column blocks of one product; gradients are joined, also if they are not adjacent."""
    width = D if is_wide else 5
    layers = [nn.Linear(width, outputs) for outputs in (width, width + 2, width)]
    x, inputs = (
        torch.randn(ROW_MULTIPLE, width, requires_grad=True),
        [p for layer in layers for p in layer.parameters()],
    )
    results = []
    for outputs in (joint_linear(x, *layers), tuple(layer(x) for layer in layers)):
        total = (outputs[0] * outputs[2]).sum() + outputs[1].square().sum()
        results.append([*outputs, *torch.autograd.grad(total, [x, *inputs])])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)


def test_few_numbers_of_rows() -> None:
    assert [row_multiple(rows) for rows in (0, 1, 64, 4095, 4096, 12500)] == [64, 64, 64, 64, 128, 256]
