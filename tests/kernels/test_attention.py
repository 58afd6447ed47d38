"""Attention over short sequences against torch's fused kernel: values, gradients, and where it is used."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead import kernels
from clearhead.kernels import AttentionLayout, PaddedLayout, dot_product_attention
from clearhead.kernels.short_attention import MAX_KEYS, SIMD_WIDTH, short_attention

B, H, T, S, K, E = 3, 2, 5, 7, 11, 13

SCALE = K**-0.5


def padding(num_keys: int = S) -> Tensor:
    allowed = torch.ones(B, 1, 1, num_keys, dtype=torch.bool)
    allowed[1, ..., 4:] = False
    return allowed


def one_for_each_query(num_keys: int) -> Tensor:
    allowed = torch.rand(B, 1, T, num_keys) < 0.7
    allowed[..., 0] = True
    return allowed


MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "none": lambda num_keys: None, "padding": padding, "one for each query": one_for_each_query
}  # fmt: skip


def layout(num_queries: int, num_keys: int, **options: Any) -> AttentionLayout:
    queries, keys = (PaddedLayout.of(length, torch.device("cpu")) for length in (num_queries, num_keys))
    return AttentionLayout(queries, keys, **options)


def compare(actual: Tensor, expected: Tensor, leaves: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    direction = torch.randn_like(actual)
    ours, theirs = (torch.autograd.grad((y * direction).sum(), leaves) for y in (actual, expected))
    for first, second in zip(ours, theirs, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make_mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [SCALE, 1.0])
@pytest.mark.parametrize("num_keys", [1, S, SIMD_WIDTH - 1, SIMD_WIDTH, SIMD_WIDTH + 2])
def test_values_and_gradients_equal_the_fused_kernel(
    make_mask: Callable[[int], Tensor | None], scale: float, num_keys: int
) -> None:
    q, mask = torch.randn(B, T, H, K, requires_grad=True), make_mask(num_keys)
    k, v = torch.randn(B, H, num_keys, K, requires_grad=True), torch.randn(B, num_keys, H, E, requires_grad=True)
    inputs = (q.transpose(1, 2), k, v.transpose(1, 2))  # views, as projections give them
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=mask, scale=scale)
    compare(short_attention(*inputs, mask, scale), expected, (q, k, v))


def test_gradients_in_double_precision_equal_differences() -> None:
    q, k, v = (torch.randn(2, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.autograd.gradcheck(lambda q, k, v: short_attention(q, k, v, mask, 2**-0.5), (q, k, v))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("num_keys", [S, MAX_KEYS, MAX_KEYS + 1])
def test_kernels_equal_plain_torch(num_keys: int, is_causal: bool) -> None:
    queries = num_keys if is_causal else T
    q, k, v = (torch.randn(B, n, H, K, requires_grad=True) for n in (queries, num_keys, num_keys))
    for options in ({}, {"allowed": padding(num_keys)}):
        attention_layout = layout(queries, num_keys, is_causal=is_causal, **options)
        with kernels.disabled():
            expected = kernels.attention(q, k, v, attention_layout, SCALE)
        compare(kernels.attention(q, k, v, attention_layout, SCALE), expected, (q, k, v))


def test_hypotheses_share_the_keys_of_their_sentence() -> None:
    q, k, v = torch.randn(B * 4, T, H, K), torch.randn(B, S, H, K), torch.randn(B, S, H, E)
    attention_layout = layout(T, S, allowed=padding())
    actual = kernels.attention(q, k, v, attention_layout, SCALE)
    repeated = layout(T, S, allowed=padding().repeat_interleave(4, 0))
    expected = kernels.attention(q, k.repeat_interleave(4, 0), v.repeat_interleave(4, 0), repeated, SCALE)
    torch.testing.assert_close(actual, expected)


def test_it_is_used_for_short_sequences_while_a_cpu_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noted(*arguments: Any) -> Tensor:
        calls.append(arguments)
        return short_attention(*arguments)

    monkeypatch.setattr(dot_product_attention, "short_attention", noted)
    q, k = torch.randn(B, T, H, K, requires_grad=True), torch.randn(B, S, H, K)
    kernels.attention(q, k, k, layout(T, S), SCALE)
    assert len(calls) == 1
    long = torch.randn(B, MAX_KEYS + 1, H, K)
    kernels.attention(q.detach(), k, k, layout(T, S), SCALE)
    kernels.attention(q.double(), k.double(), k.double(), layout(T, S), SCALE)
    kernels.attention(q, long, long, layout(T, MAX_KEYS + 1), SCALE)
    kernels.attention(q, k, k, layout(T, S, bias_1HTS=torch.zeros(1, H, T, S)), SCALE)  # a bias may be trained
    with kernels.disabled():
        kernels.attention(q, k, k, layout(T, S), SCALE)
    with torch.no_grad():
        kernels.attention(q, k, k, layout(T, S), SCALE)
    assert len(calls) == 1


@pytest.mark.parametrize("num_keys", [S, SIMD_WIDTH + 2, MAX_KEYS + 2])
@pytest.mark.parametrize("is_causal", [False, True])
def test_in_bfloat16_only_inputs_and_outputs_are_rounded(
    num_keys: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes, fused = [], F.scaled_dot_product_attention

    def noted(q_BHTK: Tensor, *rest: Any, **options: Any) -> Tensor:
        dtypes.append(q_BHTK.dtype)
        return fused(q_BHTK, *rest, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    queries = num_keys if is_causal else T
    short = [torch.randn(B, length, H, K).bfloat16() for length in (queries, num_keys, num_keys)]
    leaves = [each.detach().clone().requires_grad_() for each in short]
    with torch.autocast("cpu", torch.bfloat16):
        result = kernels.attention(
            leaves[0], leaves[1], leaves[2], layout(queries, num_keys, is_causal=is_causal), SCALE
        )
    assert result.dtype == torch.bfloat16 and dtypes == [torch.float32] * (num_keys > MAX_KEYS)
    wide = tuple(each.float().requires_grad_() for each in short)
    q, k, v = (each.transpose(1, 2) for each in wide)
    right = fused(q, k, v, is_causal=is_causal).transpose(1, 2)
    torch.testing.assert_close(result, right.bfloat16(), rtol=0.01, atol=1e-5)
    direction = torch.randn_like(right).bfloat16()
    ours = torch.autograd.grad((result * direction).sum(), leaves)
    for first, second in zip(ours, torch.autograd.grad((right * direction.float()).sum(), wide), strict=True):
        torch.testing.assert_close(first, second.bfloat16(), rtol=0.01, atol=1e-4)
