"""Initial weights, and the parameter counts of the models of the papers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.config import build
from clearhead.model.language_model import LanguageModel
from clearhead.model.parameters import count_parameters
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer
from tests.model.options import N, S, T, config, ids


def deviation(weights: Tensor) -> float:
    return float(weights.detach().std())


def test_initial_weights_have_the_spread_of_their_scheme() -> None:
    sizes = {
        "model_dim": 128,
        "feed_forward_dim": 256,
        "num_heads": 4,
        "key_dim": 32,
        "value_dim": 64,
        "vocab_size": 401,
    }
    narrow = LanguageModel(config(**sizes, family="decoder", positions="learned", scale_embeddings=False))
    layer: Any = narrow.decoder.layers[0]
    assert narrow.embedding.positions is not None
    for weights in (
        narrow.output.weight, narrow.embedding.positions.weight, layer.self_attention.query.weight,
        layer.self_attention.output.weight, layer.feed_forward.w2.weight,
    ):  # fmt: skip
        assert deviation(weights) == pytest.approx(0.02, rel=0.1)
    assert layer.feed_forward.w1.bias.abs().max() == 0

    t5 = {"positions": "relative", "scale_attention": False, "scale_embeddings": False, "scale_output": True}
    layer = Transformer(config(**sizes, **t5)).encoder.layers[0]
    attention = layer.self_attention
    for weights, expected in (
        (attention.query.weight, (128 * 32) ** -0.5), (attention.key.weight, 128**-0.5),
        (attention.value.weight, 128**-0.5), (attention.output.weight, (4 * 64) ** -0.5),
        (layer.feed_forward.w1.weight, 128**-0.5), (layer.feed_forward.w2.weight, 256**-0.5),
    ):  # fmt: skip
        assert deviation(weights) == pytest.approx(expected, rel=0.1)

    layer = Transformer(config(**sizes)).encoder.layers[0]
    attention = layer.self_attention
    for part, rows in zip((attention.query, attention.key, attention.value), (128, 128, 256), strict=True):
        assert float(part.weight.detach().abs().max()) == pytest.approx(math.sqrt(6 / (128 + rows)), rel=0.01)
        assert part.bias.abs().max() == 0


@pytest.mark.parametrize("scaled", [True, False], ids=["tied and scaled", "separate"])
def test_t5_starts_with_logits_of_variance_one(scaled: bool) -> None:
    options = {"positions": "relative", "scale_attention": False, "scale_embeddings": False, "norm": "rms"}
    embeddings = "all" if scaled else "none"
    model = Transformer(
        config(**options, scale_output=scaled, tied_embeddings=embeddings, model_dim=128, vocab_size=401)
    )
    logits = model.eval().logits(model(ids(N, S), ids(N, T)))
    assert 0.5 < deviation(logits) < 2


@pytest.mark.parametrize(
    ("preset", "network", "vocab_size", "millions"),
    [
        ("bert-base", TextEncoder, 30522, (109, 111)),
        ("bert-large", TextEncoder, 30522, (334, 341)),
        ("gpt2", LanguageModel, 50257, (124, 125)),
        ("t5-small", Transformer, 32128, (60, 61)),
    ],
)
def test_parameter_counts_of_the_papers(
    preset: str, network: type[nn.Module], vocab_size: int, millions: tuple[int, int]
) -> None:
    with torch.device("meta"):
        model = network(build({"model": {"vocab_size": vocab_size}}, preset=preset).model)
    assert millions[0] * 1e6 <= count_parameters(model) <= millions[1] * 1e6
