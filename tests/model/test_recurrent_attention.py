"""Attention of recurrent decoders: each similarity against its formula, and its gradients."""

import math

import pytest
import torch
from torch import Tensor

from clearhead.model.recurrent.attention import Additive, Cosine, General, SourceAttention
from tests.model.recurrent import LENGTHS, PAD, D, N, S, T, config, loud, padded

ATTENTIONS = ["dot", "scaled_dot", "general", "additive", "cosine"]


def score_by_hand(attention: SourceAttention, q: Tensor, k: Tensor) -> float:
    """Return the score of one pair, computed value by value."""
    similarity, dot_product = attention.similarity, sum(float(q[i] * k[i]) for i in range(D))
    if isinstance(similarity, General):
        m = similarity.bilinear.weight
        return sum(float(q[i] * m[i, j] * k[j]) for i in range(D) for j in range(D))
    if isinstance(similarity, Additive):
        a, b, bias = similarity.query.weight, similarity.key.weight, similarity.key.bias
        total = 0.0
        for i in range(D):
            inner = float(bias[i]) + sum(float(a[i, j] * q[j] + b[i, j] * k[j]) for j in range(D))
            total += float(similarity.v[i]) * math.tanh(inner)
        return total
    if isinstance(similarity, Cosine):
        norms = math.sqrt(sum(float(q[i]) ** 2 for i in range(D)) * sum(float(k[i]) ** 2 for i in range(D)))
        return math.exp(float(similarity.log_sharpness)) * dot_product / norms
    return dot_product * similarity.scale


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_follows_its_formula(kind: str) -> None:
    attention = loud(SourceAttention(config("lstm", kind)))
    q, states = torch.randn(N, 2, D), torch.randn(N, S, D)
    real = padded() != PAD
    with torch.no_grad():
        context, weights = attention(q, attention.encoder_states(states, real))
        for n in range(N):
            for t in range(2):
                scores = [math.exp(score_by_hand(attention, q[n, t], states[n, s])) for s in range(LENGTHS[n])]
                expected = torch.tensor(scores + [0.0] * (S - LENGTHS[n])) / sum(scores)
                torch.testing.assert_close(weights[n, t], expected, atol=1e-5, rtol=1e-4)
                mixed = sum(expected[s] * states[n, s] for s in range(LENGTHS[n]))
                torch.testing.assert_close(context[n, t], mixed, atol=1e-5, rtol=1e-4)


def test_the_kinds_of_dot_differ_by_their_scale() -> None:
    scales = {kind: SourceAttention(config("lstm", kind)).similarity.scale for kind in ("dot", "scaled_dot")}
    assert scales == {"dot": 1.0, "scaled_dot": pytest.approx(1 / math.sqrt(D))}


@pytest.mark.parametrize("chunk", [1, 2 * T * S * D, 10**6], ids=["one", "two", "all"])
def test_gradients_of_additive_scores(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.kernels.additive_attention.CHUNK_VALUES", chunk)
    similarity = loud(Additive(D, bias=True))
    q, k = torch.randn(N, T, D, requires_grad=True), torch.randn(N, S, D, requires_grad=True)
    gradient = torch.randn(N, T, S)
    inputs = (q, k, *similarity.parameters())
    actual = similarity(q, similarity.keys(k))
    expected = torch.tanh(similarity.query(q)[:, :, None] + similarity.key(k)[:, None]) @ similarity.v
    torch.testing.assert_close(actual, expected)
    for first, second in zip(
        torch.autograd.grad(actual, inputs, gradient), torch.autograd.grad(expected, inputs, gradient), strict=True
    ):
        torch.testing.assert_close(first, second, atol=2e-5, rtol=1e-4)
