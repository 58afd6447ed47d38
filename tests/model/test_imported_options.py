"""Options that only imported models use (positions, norms, biases and tables), compared with their source."""

import pytest
import torch
import transformers.models.m2m_100.modeling_m2m_100 as m2m
import transformers.models.marian.modeling_marian as marian
from torch.nn import functional as F

from clearhead.config import ModelConfig, parse
from clearhead.errors import ConfigError
from clearhead.model.embedding import PositionedEmbedding
from clearhead.model.loss import cross_entropy
from clearhead.model.normalization import build_norm
from clearhead.model.positions import sinusoids
from clearhead.model.transformer import Transformer
from tests.interop.annotated import LayerNorm

SIZES = {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 22, "feed_forward_dim": 17, "num_heads": 11}


@pytest.mark.parametrize("width", [22, 6, 2])
def test_concatenated_sinusoids_equal_marian(width: int) -> None:
    reference = marian.MarianSinusoidalPositionalEmbedding(29, width)
    expected = reference.create_weight()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(sinusoids(29, width, "concatenated"), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [22, 7, 4])
def test_fairseq_positions_start_at_2(width: int) -> None:
    reference = m2m.M2M100SinusoidalPositionalEmbedding.get_embedding(31, width, padding_idx=1)
    torch.testing.assert_close(sinusoids(29, width, "fairseq"), reference[2:], atol=1e-5, rtol=0)


def test_sample_norm_is_the_annotated_transformers() -> None:
    model = build_norm(ModelConfig.model_validate({**SIZES, "norm": "sample", "norm_epsilon": 1e-3}))
    reference = LayerNorm(22, 1e-3)
    x_BTD = torch.randn(3, 5, 22) * 0.01  # small, so that epsilon counts
    torch.testing.assert_close(model(x_BTD), reference(x_BTD))
    assert not torch.allclose(torch.nn.LayerNorm(22, 1e-3)(x_BTD), reference(x_BTD), atol=1e-3)


def test_the_bias_on_logits_counts_in_the_loss() -> None:
    hidden_NTD = torch.randn(3, 5, 7, requires_grad=True)
    weight_VD, bias_V = torch.randn(11, 7, requires_grad=True), torch.randn(11, requires_grad=True)
    targets_NT = torch.randint(1, 11, (3, 5))
    targets_NT[1, 3:] = 0
    loss = cross_entropy(hidden_NTD, weight_VD, targets_NT, 0, 0.1, bias_V)
    real = targets_NT != 0
    logits = F.linear(hidden_NTD, weight_VD, bias_V)[real]
    expected = F.cross_entropy(logits, targets_NT[real], label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss.smoothed, expected)
    model = torch.autograd.grad(loss.smoothed, (hidden_NTD, weight_VD, bias_V))
    for actual, is_selected in zip(model, torch.autograd.grad(expected, (hidden_NTD, weight_VD, bias_V)), strict=True):
        torch.testing.assert_close(actual, is_selected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("tied_embeddings", "rows"), [("all", {23}), ("input", {23}), ("target", {19, 23}), ("none", {19, 23})]
)
def test_tables(tied_embeddings: str, rows: set[int]) -> None:
    source = 19 if 19 in rows else 0
    settings = {
        **SIZES,
        "tied_embeddings": tied_embeddings,
        "vocab_size": 23,
        "source_vocab_size": source,
        "output_bias": True,
    }
    network = Transformer(ModelConfig.model_validate(settings)).eval()
    source_embedding, target_embedding = network.source_embedding, network.target_embedding
    assert isinstance(source_embedding, PositionedEmbedding)
    tables = {each.weight for each in (source_embedding.tokens, target_embedding.tokens, network.output)}
    assert len(tables) == {"all": 1, "input": 2, "target": 2, "none": 3}[tied_embeddings]
    assert {len(table) for table in tables} == rows
    src_NS, tgt_NT = torch.randint(4, source or 23, (3, 5)), torch.randint(4, 23, (3, 7))
    before = network.logits(network(src_NS, tgt_NT))
    with torch.no_grad():
        network.output.bias.add_(torch.arange(23.0))  # type: ignore[union-attr]
    torch.testing.assert_close(network.logits(network(src_NS, tgt_NT)), before + torch.arange(23.0))


def test_two_vocabularies_need_two_tables() -> None:
    with pytest.raises(ConfigError, match="needs separate source embeddings"):
        parse({"model": {**SIZES, "source_vocab_size": 19, "tied_embeddings": "all"}})


@pytest.mark.parametrize(("placement", "last"), [("pre", None), ("pre", False), ("post", None), ("post", True)])
def test_the_last_norm_can_be_set(placement: str, last: bool | None) -> None:
    config = ModelConfig.model_validate({**SIZES, "norm_placement": placement, "final_norm": last, "vocab_size": 23})
    has_norm = isinstance(Transformer(config).encoder.norm, torch.nn.LayerNorm)
    assert has_norm == (placement == "pre" if last is None else last)
