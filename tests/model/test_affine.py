"""A product laid out beforehand is the product, and it is not used once its numbers have changed."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.model import affine
from clearhead.model.affine import Affine

SHAPES = [(24, 37), (256, 768), (16, 40_000)]
needs_packing = pytest.mark.skipif(not affine._HAS_PACKED, reason="this torch has no oneDNN")


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 5, 130])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_always_packed", [False, True])
def test_the_same_sums(
    is_always_packed: bool, shape: tuple[int, int], rows: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_always_packed:
        monkeypatch.setattr(affine, "_MANY_NUMBERS", 0)
        monkeypatch.setattr(affine, "_FEW_PRODUCTS", 0)
    width, outputs = shape
    linear = nn.Linear(width, outputs, bias=has_bias)
    made = Affine(linear.weight, linear.bias)
    x_MD, stream_MN = torch.randn(rows, width), torch.randn(rows, outputs)
    for _ in range(2):  # laid out, and used again
        close(made(x_MD), F.linear(x_MD, linear.weight, linear.bias))
        close(made.relu(x_MD), F.linear(x_MD, linear.weight, linear.bias).relu())
        close(made.onto(stream_MN, x_MD), stream_MN + F.linear(x_MD, linear.weight, linear.bias))
        into_MN = np.empty((rows, outputs), np.float32)
        assert made.few(x_MD.numpy(), into_MN) is into_MN
        for found in (into_MN, made.few(x_MD.numpy())):
            close(torch.from_numpy(found), F.linear(x_MD, linear.weight, linear.bias))
    assert made.is_fresh


@needs_packing
def test_large_products_are_laid_out_and_small_ones_are_not() -> None:
    large, small = nn.Linear(256, 768), nn.Linear(16, 16)
    for linear, rows, is_packed in ((large, 6, True), (large, 1, False), (small, 4, False), (small, 20_000, True)):
        made = Affine(linear.weight, linear.bias)
        with torch.inference_mode():
            made(torch.randn(rows, linear.in_features))
        assert (made._packed is not None) is is_packed
    assert not Affine(large.double().weight, large.bias)._can_pack
    with torch.inference_mode():
        assert not Affine(torch.randn(256, 768), None)._can_pack


def in_place(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.add_(1.0)


def by_an_optimiser(weight: nn.Parameter) -> None:
    """Which leaves the version as it is."""
    before = weight._version
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()
    assert weight._version == before


def by_hand(weight: nn.Parameter) -> None:
    """One row, past autograd."""
    weight.data[200] = 9.0


def in_a_column(weight: nn.Parameter) -> None:
    weight.data[:, 41] += 1e-3


def in_a_block(weight: nn.Parameter) -> None:
    weight.data[1500:, :100] = 0.0


@needs_packing
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("change", [in_place, by_an_optimiser, by_hand, in_a_column, in_a_block])
def test_what_has_changed_is_not_fresh(change: Callable[[nn.Parameter], None], rows: int) -> None:
    weight = nn.Parameter(torch.randn(3000, 200))
    made = Affine(weight, None)
    with torch.inference_mode():
        made(torch.randn(rows, 200))
    assert made.is_fresh
    change(weight)
    assert not made.is_fresh
    with torch.inference_mode():
        made(torch.randn(4 - rows, 200))  # the other copy, of the new numbers
    assert not made.is_fresh


@needs_packing
def test_another_type_than_the_weights_has_the_plain_product() -> None:
    linear = nn.Linear(256, 768)
    made, x_MD, stream_MN = Affine(linear.weight, linear.bias), torch.randn(4, 256), torch.randn(4, 768)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        found = made.onto(stream_MN, made.weight_ND.new_ones(4, 256).bfloat16())
        expected = stream_MN + F.linear(torch.ones(4, 256), linear.weight, linear.bias)
    torch.testing.assert_close(found.float(), expected.float(), atol=0.1, rtol=0.05)
    with torch.inference_mode():
        close(made(x_MD), F.linear(x_MD, linear.weight, linear.bias))
