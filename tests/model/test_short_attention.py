"""Attention over short sequences against torch's fused kernel: values, gradients, and where it is taken."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead.model import attention, short_attention
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.masks import document_mask
from clearhead.model.short_attention import LONGEST, REGISTER, attend_short, is_short

B, H, T, S, K, E = 3, 2, 5, 7, 11, 13


def padding(num_keys: int = S) -> Tensor:
    allowed = torch.ones(B, 1, 1, num_keys, dtype=torch.bool)
    allowed[1, ..., 4:] = False
    return allowed


def each_its_own(num_keys: int) -> Tensor:
    allowed = torch.rand(B, 1, T, num_keys) < 0.7
    allowed[..., 0] = True
    return allowed


MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "none": lambda num_keys: None, "padding": padding, "each query its own": each_its_own
}  # fmt: skip


@pytest.mark.parametrize("make_mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("num_keys", [1, S, REGISTER - 1, REGISTER, REGISTER + 2])
def test_values_and_gradients_equal_the_fused_kernel(
    make_mask: Callable[[int], Tensor | None], scale: float | None, num_keys: int
) -> None:
    q, mask = torch.randn(B, T, H, K, requires_grad=True), make_mask(num_keys)
    k, v = torch.randn(B, H, num_keys, K, requires_grad=True), torch.randn(B, num_keys, H, E, requires_grad=True)
    given = (q.transpose(1, 2), k, v.transpose(1, 2))  # views, as projections give them
    compare(attend_short(*given, mask, False, scale), (q, k, v), mask, False, scale, given)


def test_the_future_is_not_seen() -> None:
    q, k, v = (torch.randn(B, H, T, K, requires_grad=True) for _ in range(3))
    compare(attend_short(q, k, v, None, True, None), (q, k, v), None, True, None, (q, k, v))


@pytest.mark.parametrize("num_keys", [S, REGISTER + 2, LONGEST + 2])
@pytest.mark.parametrize("is_causal", [False, True])
def test_in_bfloat16_only_what_comes_in_and_goes_out_is_rounded(
    num_keys: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short and long: the numbers are those of float32, rounded once at the end."""
    seen, fused = [], F.scaled_dot_product_attention

    def noted(q_BHTK: Tensor, *rest: Any, **more: Any) -> Tensor:
        seen.append(q_BHTK.dtype)
        return fused(q_BHTK, *rest, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    queries = num_keys if is_causal else T
    short = [torch.randn(B, length, H, K).bfloat16().transpose(1, 2) for length in (queries, num_keys, num_keys)]
    leaves = [each.detach().clone().requires_grad_() for each in short]
    layer = MultiHeadAttention(H * K, H, bias=False)
    torch.nn.init.eye_(layer.output.weight)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(leaves[0], attention.KeysValues(*leaves[1:]), None, is_causal).y_BTD
    assert found.dtype == torch.bfloat16 and seen == [torch.float32] * (num_keys > LONGEST)
    wide = q, k, v = tuple(each.float().requires_grad_() for each in short)
    right = fused(q, k, v, is_causal=is_causal).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, right.bfloat16(), rtol=0.01, atol=1e-5)
    direction = torch.randn_like(right).bfloat16()
    ours = torch.autograd.grad((found * direction).sum(), leaves)
    for one, other in zip(ours, torch.autograd.grad((right * direction.float()).sum(), wide), strict=True):
        torch.testing.assert_close(one, other.bfloat16(), rtol=0.01, atol=1e-4)


def compare(
    found: Tensor,
    leaves: tuple[Tensor, ...],
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    given: tuple[Tensor, Tensor, Tensor],
) -> None:
    expected = F.scaled_dot_product_attention(*given, attn_mask=mask, is_causal=is_causal, scale=scale)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    direction = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((y * direction).sum(), leaves) for y in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_what_is_kept_is_part_of_the_graph() -> None:
    """Gradients in double precision, against differences."""
    q, k, v = (torch.randn(2, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda q, k, v: attend_short(q, k, v, None, True, None), (q, k, v))


def test_only_short_training_on_a_cpu_takes_it() -> None:
    q, k = torch.randn(B, H, T, K, requires_grad=True), torch.randn(B, H, S, K)
    assert is_short(q, k, None) and is_short(q, k, padding())
    assert not is_short(q.detach(), k, None)
    assert not is_short(q.to(torch.float64), k, None)
    assert not is_short(q, torch.randn(B, H, LONGEST + 1, K), None)
    assert not is_short(q, k, torch.zeros(B, H, T, S)), "a bias may learn"


def test_a_layer_takes_it_while_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noted(*given: object) -> Tensor:
        calls.append(given)
        return attend_short(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "attend_short", noted)
    layer, x = MultiHeadAttention(12, 3), torch.randn(B, T, 12)
    for projection in (layer.query, layer.key, layer.value):
        torch.nn.init.normal_(projection.weight)
    mask = document_mask(torch.tensor([[1, 1, 2, 2, 3]] * B))
    outputs = [layer.train(mode)(*layer.project(x), mask).y_BTD for mode in (True, False)]
    assert len(calls) == 1
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        layer.train()(*layer.project(x), mask)
    assert len(calls) == 1 and short_attention.LONGEST < 64
