"""Every option of the Transformer, part by part against its formula."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import DataError
from clearhead.kernels import AttentionLayout, dropout_seed
from clearhead.kernels.dropout_masks import keep_mask
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import PositionedEmbedding, TokenEmbedding
from clearhead.model.feed_forward import FeedForward
from clearhead.model.language_model import LanguageModel
from clearhead.model.normalization import build_norm
from clearhead.model.positions import RelativeBias, RotaryPositions, relative_buckets
from clearhead.model.residual import Residual
from clearhead.model.transformer import Transformer
from tests.model.options import (
    D,
    E,
    H,
    K,
    N,
    S,
    T,
    V,
    close,
    config,
    ids,
    padded_layout,
    with_random_weights,
)


def centred(x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    variance = x.var(axes, unbiased=False, keepdim=True)
    return (x - x.mean(axes, keepdim=True)) / (variance + epsilon).sqrt()


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": lambda x: centred(x, (2,), 0.01),
    "rms": lambda x: x / (x.square().mean(2, keepdim=True) + 0.01).sqrt(),
    "group": lambda x: centred(x.reshape(N, T, 11, 2), (3,), 0.01).flatten(2),
    "batch": lambda x: centred(x, (0, 1), 0.01),
}


@pytest.mark.parametrize("kind", NORMS)
def test_norms_follow_their_formulas(kind: str) -> None:
    norm: Any = with_random_weights(build_norm(config(norm=kind, norm_epsilon=0.01)))
    norm.train()  # batch norm: by the figures of the batch
    x_NTD = torch.randn(N, T, D) * 3 + 1
    shift = 0.0 if kind == "rms" else norm.bias
    close(norm(x_NTD), NORMS[kind](x_NTD) * norm.weight + shift)


def test_batch_norm_uses_running_statistics_at_inference() -> None:
    norm: Any = with_random_weights(build_norm(config(norm="batch", norm_epsilon=0.01)))
    x_NTD = torch.randn(N, T, D)
    close(norm(x_NTD), (x_NTD - norm.running_mean) / (norm.running_var + 0.01).sqrt() * norm.weight + norm.bias)


@pytest.mark.parametrize("kind", NORMS)
def test_residuals_and_stacks_follow_norm_placement(kind: str) -> None:
    x_NTD, y_NTD = torch.randn(N, T, D), torch.randn(N, T, D)
    for placement in ("pre", "post"):
        settings = config(norm=kind, norm_placement=placement, norm_epsilon=0.01)
        residual, norm = Residual(settings), NORMS[kind]
        residual.dropout.eval()
        close(residual.sublayer_input(x_NTD), norm(x_NTD) if placement == "pre" else x_NTD)
        total_NTD = x_NTD + y_NTD
        close(residual(x_NTD, y_NTD), total_NTD if placement == "pre" else norm(total_NTD))
        model = Transformer(settings)
        for stack in (model.encoder, model.decoder):
            close(stack.norm(x_NTD), norm(x_NTD) if placement == "pre" else x_NTD)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_feed_forward_follows_its_formula(kind: str, gated: bool, bias: bool) -> None:
    network, x_ND = with_random_weights(FeedForward(config(activation=kind, gated=gated, bias=bias))), torch.randn(N, D)

    def apply(linear: nn.Linear, x: Tensor) -> Tensor:
        return x @ linear.weight.T + (linear.bias if bias else 0)

    inner_NF = ACTIVATIONS[kind](apply(network.w1, x_ND))
    if gated:
        assert network.w3 is not None
        inner_NF = inner_NF * apply(network.w3, x_ND)
    close(network(x_ND[:, None])[:, 0], apply(network.w2, inner_NF))
    assert bias == any("bias" in name for name, _ in network.named_parameters())


def draw(attention: MultiHeadAttention, deviation: float) -> None:
    """Random projections."""
    for projection in (attention.query, attention.key, attention.value):
        nn.init.normal_(projection.weight, std=deviation)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_attention_equals_plain_loops(scaled: bool, bias: bool) -> None:
    attention = MultiHeadAttention(config(scale_attention=scaled, bias=bias))
    draw(attention, 0.3)
    with_random_weights(attention)
    assert attention.query.weight.shape == attention.key.weight.shape == (H * K, D)
    assert attention.value.weight.shape == (H * E, D) and attention.output.weight.shape == (D, H * E)
    x_NTD, source_NSD = torch.randn(N, T, D), torch.randn(N, S, D)
    expected_NTD = torch.zeros(N, T, D)
    for n, t in itertools.product(range(N), range(T)):
        mixed = []
        for h in range(H):
            k_rows, v_rows = slice(h * K, (h + 1) * K), slice(h * E, (h + 1) * E)
            q = attention.query(x_NTD[n, t])[k_rows]
            scores = torch.stack([q @ attention.key(source_NSD[n, s])[k_rows] for s in range(S)])
            share = torch.softmax(scores / math.sqrt(K) if scaled else scores, 0)
            mixed.append(sum(share[s] * attention.value(source_NSD[n, s])[v_rows] for s in range(S)))
        expected_NTD[n, t] = attention.output(torch.cat(mixed))
    layout = AttentionLayout(padded_layout(T), padded_layout(S))
    for want_weights in (False, True):
        q, memory = attention.queries(x_NTD), attention.keys_values(source_NSD)
        close(attention(q, memory, layout, want_weights=want_weights).y_D, expected_NTD)
    q_itself, itself = attention.queries_keys_values(x_NTD)
    close(q_itself, q)
    close(itself.v_HE, attention.keys_values(x_NTD).v_HE)


@pytest.mark.parametrize("is_causal", [True, False])
def test_dropout_on_attention_weights_follows_its_formula_and_ends_with_training(is_causal: bool) -> None:
    attention = MultiHeadAttention(config(attention_dropout=0.25))
    draw(attention, 0.3)
    q_NTHK, memory = attention.queries_keys_values(torch.randn(N, T, D))
    layout = AttentionLayout(padded_layout(T), padded_layout(T), is_causal)
    whole = attention.eval()(q_NTHK, memory, layout)
    weights_NHTT = attention(q_NTHK, memory, layout, want_weights=True).weights_BHTS
    with dropout_seed(7):
        mask_NHTT = keep_mask(weights_NHTT.shape, 0.25)
    assert (mask_NHTT == 0).any()
    with dropout_seed(7):
        dropped = attention.train()(q_NTHK, memory, layout)
    heads_NHTE = (weights_NHTT * mask_NHTT) @ memory.v_HE.transpose(1, 2)
    close(dropped.y_D, attention.output(heads_NHTE.transpose(1, 2).flatten(2)))
    assert not torch.allclose(dropped.y_D, whole.y_D)


def test_rotary_is_a_rotation_of_complex_numbers() -> None:
    rotary, x_NTHK, layout = RotaryPositions(19, K), torch.randn(N, T, H, K), padded_layout(T, start=3)
    pairs = torch.complex(x_NTHK[..., : K // 2], x_NTHK[..., K // 2 :])
    angles_T1C = torch.tensor([[[(3 + t) / 10000 ** (2 * c / K) for c in range(K // 2)]] for t in range(T)])
    rotated = pairs * torch.exp(1j * angles_T1C)
    close(rotary(layout)(x_NTHK), torch.cat((rotated.real, rotated.imag), -1))
    assert not rotary.state_dict()
    attention, x_NTD = MultiHeadAttention(config()), torch.randn(N, T, D)
    draw(attention, 1.0)
    (q, memory), (rotated_q, rotated_memory) = (
        attention.queries_keys_values(x_NTD),
        attention.queries_keys_values(x_NTD, rotary(layout)),
    )
    close(rotated_q, rotary(layout)(q))
    close(rotated_memory.k_HK, rotary(layout)(memory.k_HK))
    close(rotated_memory.v_HE, memory.v_HE)


def test_rotary_scores_depend_on_the_difference_of_positions_only() -> None:
    rotary, q_K, k_K = RotaryPositions(19, K), torch.randn(K), torch.randn(K)

    def score(position_of_q: int, position_of_k: int) -> float:
        q_1K, k_1K = (
            rotary(padded_layout(1, position_of_q))(q_K[None]),
            rotary(padded_layout(1, position_of_k))(k_K[None]),
        )
        return float((q_1K * k_1K).sum())

    for shift in (1, 7):
        assert score(9, 4) == pytest.approx(score(9 + shift, 4 + shift), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


@pytest.mark.parametrize(
    ("offset", "bidirectional", "bucket"),
    [
        # 32 buckets up to 128. One direction: 16 exact ones, then 16 + floor(log(d / 16) / log(128 / 16) * 16).
        (0, False, 0), (3, False, 0), (-1, False, 1), (-15, False, 15), (-16, False, 16), (-20, False, 17),
        (-64, False, 26), (-128, False, 31), (-5000, False, 31),
        # Two directions: 16 each, 8 of them exact, then 8 + floor(log(d / 8) / log(128 / 8) * 8).
        (0, True, 0), (-1, True, 1), (1, True, 17), (-8, True, 8), (20, True, 26), (-127, True, 15), (5000, True, 31),
    ],
)  # fmt: skip
def test_buckets_of_relative_positions(offset: int, bidirectional: bool, bucket: int) -> None:
    assert relative_buckets(torch.tensor(offset), 32, 128, bidirectional) == bucket


@pytest.mark.parametrize(("buckets", "distance"), [(2, 2), (3, 128), (6, 2), (32, 4)])
def test_buckets_of_odd_sizes_are_in_the_table(buckets: int, distance: int) -> None:
    offsets = torch.arange(-50, 51)
    for bidirectional in (False, True):
        result = relative_buckets(offsets, buckets, distance, bidirectional)
        assert int(result.min()) >= 0 and int(result.max()) < buckets


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_relative_bias_depends_on_the_difference(bidirectional: bool) -> None:
    bias = RelativeBias(config(), bidirectional)
    found_1HTS = bias(T, 2 + T)
    assert found_1HTS.shape == (1, H, T, 2 + T)
    for h, t, s in itertools.product(range(H), range(T), range(2 + T)):
        bucket = int(relative_buckets(torch.tensor(s - (2 + t)), 6, 5, bidirectional))
        assert found_1HTS[0, h, t, s] == bias.weight[bucket, h]


def test_embedding_sums_tokens_positions_and_segments_under_a_norm() -> None:
    options = {"family": "encoder", "head": "masked_lm", "positions": "learned", "num_segments": 3}
    settings = config(**options, embedding_norm=True, scale_embeddings=False)
    embedding: Any = with_random_weights(PositionedEmbedding(TokenEmbedding(V, D), settings))
    tokens_NT, segments_NT = ids(N, T), torch.randint(3, (N, T))
    table_LD, norm = embedding.positions.weight, embedding.norm
    for segments in (segments_NT, None):
        kind = torch.zeros(N, T, dtype=torch.long) if segments is None else segments
        total = embedding.tokens.weight[tokens_NT] + table_LD[:T] + embedding.segments.weight[kind]
        close(embedding(tokens_NT, padded_layout(T), segments), centred(total, (2,), 1e-5) * norm.weight + norm.bias)
    without_positions = PositionedEmbedding(TokenEmbedding(V, D), config(positions="none")).eval()
    close(
        without_positions(tokens_NT, padded_layout(T, start=4)),
        without_positions.tokens.weight[tokens_NT] * math.sqrt(D),
    )
    with pytest.raises(ValueError, match="num_segments"):
        without_positions(tokens_NT, padded_layout(T), segments_NT)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_too_many_tokens_are_refused(positions: str) -> None:
    model = LanguageModel(config(family="decoder", positions=positions))
    with pytest.raises(DataError, match="max_positions=19 tokens per sequence, got 20"):
        model(ids(N, 20))
