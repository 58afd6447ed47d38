"""Properties for any weights: no influence of the future and of padding, cached = uncached, sizes of the paper."""

import pytest
import torch

from clearhead.config import PRESETS, ModelConfig, build
from clearhead.model.parameters import count_parameters
from clearhead.model.registry import build_model
from clearhead.model.transformer import Transformer
from tests.model.options import padded_layout

N, S, T, V = 3, 7, 5, 23


@pytest.fixture(params=["pre", "post"])
def model(request: pytest.FixtureRequest) -> Transformer:
    """A small network with random weights."""
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 22, "feed_forward_dim": 17, "num_heads": 11}
    return Transformer(ModelConfig.model_validate({**sizes, "norm_placement": request.param, "vocab_size": V})).eval()


def ids(rows: int, length: int) -> torch.Tensor:
    """Return random tokens that are not special."""
    return torch.randint(4, V, (rows, length))


def test_future_cannot_touch_the_past(model: Transformer) -> None:
    src, tgt = ids(N, S), ids(N, T)
    before = model(src, tgt)
    for position in range(1, T):
        changed = tgt.clone()
        changed[:, position:] = (changed[:, position:] - 3) % (V - 4) + 4
        torch.testing.assert_close(model(src, changed)[:, :position], before[:, :position], atol=1e-6, rtol=0)
        assert not torch.allclose(model(src, changed)[:, position], before[:, position], atol=1e-3)


def test_gradient_from_the_future_is_exactly_zero(model: Transformer) -> None:
    embedded = model.target_embedding(ids(N, T), padded_layout(T)).detach().requires_grad_()
    model.target_embedding.forward = lambda tokens, layout: embedded  # type: ignore[method-assign,assignment,misc]
    hidden = model(ids(N, S), ids(N, T))
    hidden[:, 2].sum().backward()
    assert embedded.grad is not None
    assert embedded.grad[:, 3:].abs().max() == 0
    assert embedded.grad[:, :3].abs().min() > 0 or embedded.grad[:, :3].abs().sum() > 0


def test_more_padding_changes_nothing(model: Transformer) -> None:
    src, tgt = ids(N, S), ids(N, T)
    padded_src = torch.cat((src, torch.zeros(N, 4, dtype=torch.long)), 1)
    padded_tgt = torch.cat((tgt, torch.zeros(N, 2, dtype=torch.long)), 1)
    torch.testing.assert_close(model(padded_src, padded_tgt)[:, :T], model(src, tgt), atol=2e-6, rtol=1e-5)


def test_cached_steps_equal_one_pass(model: Transformer) -> None:
    src, tgt = ids(N, S), ids(N, T)
    src[1, 4:] = 0
    expected = model.logits(model(src, torch.cat((torch.full((N, 1), 2), tgt), 1)))
    first, state = model.start(model.encode(src), 1)
    actual = []
    for tokens in (first, tgt[:, :1], tgt[:, 1:3], tgt[:, 3:]):  # one token, and several at once
        step = model.step(tokens, state)
        actual.append(step.logits_RTV)
        state = step.state
    torch.testing.assert_close(torch.cat(actual, 1), expected, atol=2e-5, rtol=1e-5)


def test_rows_share_their_sentence_and_move_with_select(model: Transformer) -> None:
    src, tgt, width = ids(N, S), ids(N * 2, T), 2
    first, state = model.start(model.encode(src), width)
    state = model.step(torch.cat((first, tgt), 1), state).state
    rows = torch.tensor([5, 4, 0, 0])  # the second sentence leaves, the beams of the first and third move
    with_start = torch.cat((first, tgt), 1)
    last = ids(4, 1)
    actual = model.step(last, model.reorder(state, rows)).logits_RTV
    sentences = rows // width
    expected = model.logits(model(src[sentences], torch.cat((with_start[rows], last), 1)))[:, -1:]
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-5)


def test_attention_rows_are_probabilities_and_change_nothing(model: Transformer) -> None:
    src, tgt = ids(N, S), ids(N, T)
    src[1, 4:] = 0
    _, state = model.start(model.encode(src), 1)
    baseline = model.step(tgt, state)
    traced = model.step(tgt, state, want_attention=True)
    torch.testing.assert_close(traced.logits_RTV, baseline.logits_RTV, atol=2e-5, rtol=1e-5)
    assert baseline.attention is None
    assert traced.attention is not None and len(traced.attention) == 3
    for layer in traced.attention:
        assert layer.self_RHTP.shape == (N, 11, T, T) and layer.cross_RHTS.shape == (N, 11, T, S)
        torch.testing.assert_close(layer.self_RHTP.sum(-1), torch.ones(N, 11, T))
        torch.testing.assert_close(layer.cross_RHTS.sum(-1), torch.ones(N, 11, T))
        assert layer.self_RHTP.triu(1).abs().max() == 0
        assert layer.cross_RHTS[1, :, :, 4:].abs().max() == 0


@pytest.mark.parametrize(
    ("preset", "low", "high"), [("paper-base", 63e6, 65e6), ("paper-big", 209e6, 215e6)], ids=["base", "big"]
)
def test_parameter_counts_of_the_paper(preset: str, low: float, high: float) -> None:
    with torch.device("meta"):
        model = build_model(build({"model": {"vocab_size": 37000}}, preset=preset).model)
    assert low <= count_parameters(model) <= high


@pytest.mark.parametrize("tied_embeddings", ["all", "target", "none"])
def test_tied_tables_are_one_tensor(tied_embeddings: str) -> None:
    model = build_model(build({"model": {"vocab_size": 31, "tied_embeddings": tied_embeddings}}, preset="tiny").model)
    tables = [model.source_embedding.tokens.weight, model.target_embedding.tokens.weight, model.output.weight]
    assert len({table.data_ptr() for table in tables}) == {"all": 1, "target": 2, "none": 3}[tied_embeddings]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_as_documented(preset: str) -> None:
    expected = {
        "tiny": (4, 128, 256, 4, "pre"),
        "small": (3, 256, 1024, 4, "pre"),
        "paper-base": (6, 512, 2048, 8, "post"),
        "paper-big": (6, 1024, 4096, 16, "post"),
        "bert-base": (12, 768, 3072, 12, "post"),
        "bert-large": (24, 1024, 4096, 16, "post"),
        "gpt2": (12, 768, 3072, 12, "pre"),
        "t5-small": (6, 512, 2048, 8, "pre"),
        "vit-tiny": (12, 192, 768, 3, "pre"),
    }[preset]
    model = build(preset=preset).model
    assert (
        model.num_encoder_layers,
        model.model_dim,
        model.feed_forward_dim,
        model.num_heads,
        model.norm_placement,
    ) == expected
    assert model.num_decoder_layers == model.num_encoder_layers
