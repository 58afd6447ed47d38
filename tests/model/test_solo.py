"""The steps of one sentence equal those of several, for every option, whichever rows go on."""

import random
from typing import Any

import pytest
import torch

from clearhead.config import TrainingConfig
from clearhead.errors import DataError
from clearhead.model import affine
from clearhead.model.level import levelled
from clearhead.model.solo import MOST_ROWS
from clearhead.model.transformer import Transformer
from clearhead.training.optimizer import build_optimizer
from tests.model.options import V, close, config, each_combination, ids, shaken, sources

EVEN = {"num_heads": 2, "key_dim": 0, "value_dim": 0, "model_dim": 24, "norm_groups": 4}  # heads of one width, even
MORE: list[dict[str, Any]] = [
    {"norm": "none"},
    {"residual": False, "norm_placement": "post"},
    {"scale_output": True, "output_bias": True, "tied_embeddings": "none"},
    {"scale_attention": False, "activation": "silu", "gated": True},
    {"key_dim": 5, "value_dim": 5},
]


def check(options: dict[str, Any], width: int) -> None:
    """Alone, and in company of another sentence."""
    model, draw = shaken(Transformer(config(**options))).double(), random.Random(width)
    with torch.inference_mode():
        src_1S = sources()[:1]
        first_R1, state = model.start(model.encode(src_1S), width)
        both = model.start(model.encode(src_1S.repeat(2, 1)), width)[1]
        assert state.alone is not None and both.alone is None
        tokens_R1, parents = first_R1, None
        for _ in range(6):
            if parents is not None:
                state = model.select(state, parents)
                both = model.select(both, torch.cat((parents, parents + width)))
            step, expected = model.step(tokens_R1, state), model.step(tokens_R1.repeat(2, 1), both)
            assert step.state.alone is not None
            close(step.logits_RTV, expected.logits_RTV[:width])
            state, both = step.state, expected.state
            tokens_R1 = torch.tensor(draw.choices(range(3, V), k=width))[:, None]
            parents = draw.choice([None, torch.tensor(draw.choices(range(width), k=width))])
        # Where attention is wanted the modules run, and go on from there.
        seen, unseen = model.step(tokens_R1, state, want_attention=True), model.step(tokens_R1, state)
        assert seen.attention is not None and seen.state.alone is None
        close(seen.logits_RTV, unseen.logits_RTV)
        close(model.step(tokens_R1, seen.state).logits_RTV, model.step(tokens_R1, unseen.state).logits_RTV)


@each_combination
@pytest.mark.parametrize("width", [1, 3])
def test_steps_of_one_sentence(options: dict[str, Any], width: int) -> None:
    check(options | EVEN, width)


@pytest.mark.parametrize("options", MORE, ids=lambda each: "-".join(map(str, each)))
@pytest.mark.parametrize("width", [1, 4])
def test_rare_options(options: dict[str, Any], width: int) -> None:
    check(EVEN | options, width)


def test_weights_that_change_are_seen() -> None:
    """The output table is laid out once; other numbers in it, or another table, are not overlooked."""
    model = shaken(Transformer(config(**EVEN))).double()

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            first_R1, state = model.start(model.encode(sources()[:1]), 1)
            assert state.alone is not None
            by_modules = model.step(first_R1, state, want_attention=True)
            return model.step(first_R1, state).logits_RTV[:, 0], by_modules.logits_RTV[:, 0]

    close(*both())
    with torch.no_grad():
        model.output.weight.add_(1.0)
    close(*both())
    model.output.weight = torch.nn.Parameter(model.output.weight.detach() * 2)
    close(*both())
    model.output.weight.data.mul_(3.0)  # without a new version, as fused optimisers change them
    close(*both())
    optimizer = build_optimizer(model, TrainingConfig())
    model.output.weight.grad = torch.ones_like(model.output.weight)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    close(*both())
    model.get_parameter("decoder.layers.0.attention.out.weight").data[12:, :12] = 0.0  # a block of a small matrix
    close(*both())
    model.get_parameter("encoder.layers.0.feed_forward.inner.weight").data[16] = 5.0  # a row
    close(*both())
    for name in ("feed_forward_residual.norm.weight", "cross_residual.norm.bias", "attention.in_bias", "cross.in_bias"):
        model.get_parameter(f"decoder.layers.1.{name}").data[3] += 1.0  # one number, folded into a matrix or not
        close(*both())
    model.float()
    assert [each.dtype for each in both()] == [torch.float32] * 2


def test_a_stream_without_mean() -> None:
    """Where only the usual norms read it: its matrices write none, and what comes out is what the flat stack gives."""
    model = shaken(Transformer(config(**EVEN, norm_placement="pre"))).double()
    with torch.no_grad():
        model.target_embedding.tokens.weight.add_(3.0)  # a mean of its own
    tokens_R1 = torch.tensor([[5]])
    with torch.inference_mode():
        memory = model.encode(sources()[:1])
        flat = memory.flat
        assert flat is not None
        level = flat.once(levelled)
        assert flat.once(levelled) is level is not flat
        close(level(tokens_R1, None, 0, (), memory.source)[0], flat(tokens_R1, None, 0, (), memory.source)[0])
        written = [layer.outer(torch.randn(4, layer.outer.weight_DN.shape[0]).double()) for layer in level.layers]
        for x in (level.embed(tokens_R1, 0), *written):
            close(x.mean(-1), torch.zeros(x.shape[:-1]).double())
        assert flat.embed(tokens_R1, 0).mean() > 1


@torch.inference_mode()
@pytest.mark.parametrize(
    "options", [{"norm_placement": "post"}, {"norm": "none"}, {"norm": "rms"}, {"residual": False}], ids=str
)
def test_streams_that_somebody_else_reads_keep_their_mean(options: dict[str, Any]) -> None:
    model = shaken(Transformer(config(**EVEN | options))).double()
    with torch.inference_mode():
        flat = model.encode(sources()[:1]).flat
    assert flat is not None and flat.once(levelled) is flat


@torch.inference_mode()
def test_a_norm_whose_changes_are_not_counted() -> None:
    """Made in inference mode, and put among others: it is computed, not folded."""
    with torch.inference_mode(False):
        model = shaken(Transformer(config(**EVEN, norm_placement="pre"))).double()
    norm = torch.nn.LayerNorm(model.config.model_dim).double()
    model.get_submodule("decoder.layers.0.attention_residual").register_module("norm", norm)
    first_R1, state = model.start(model.encode(sources()[:1]), 1)
    assert state.alone is not None and state.flat is not None and state.flat.once(levelled) is state.flat
    by_modules = model.step(first_R1, state, want_attention=True)
    close(model.step(first_R1, state).logits_RTV, by_modules.logits_RTV)


@pytest.mark.parametrize("width", [1, 4])
def test_products_of_many(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model so large that several rows are multiplied by torch."""
    monkeypatch.setattr(affine, "_FEW_PRODUCTS", 0)
    check(EVEN, width)


@torch.inference_mode()
def test_what_cannot_be_laid_out_is_left_to_others() -> None:
    model = shaken(Transformer(config(**EVEN, max_positions=60)))

    def is_alone(model: Transformer, src_NS: torch.Tensor, width: int = 2) -> bool:
        return model.start(model.encode(src_NS), width)[1].alone is not None

    assert is_alone(model, sources()[:1])
    assert not is_alone(model, sources()), "two sentences"
    assert not is_alone(model, sources()[1:]), "padding"
    assert not is_alone(model, ids(1, 60)), "a source so long that its scores are more work than its keys"
    assert not is_alone(model, sources()[:1], MOST_ROWS + 1)
    uneven = shaken(Transformer(config(**EVEN | {"value_dim": 5})))
    assert not is_alone(uneven, sources()[:1])
    model.decoder.layers[0].register_forward_hook(lambda *_: None)
    assert not is_alone(model, sources()[:1]), "somebody looks on"


def test_rows_become_more_and_room_grows() -> None:
    """One row becomes several, or too many for arrays; more tokens than there was room for; an earlier state again."""
    model = shaken(Transformer(config(**EVEN, max_positions=90))).double()
    tokens_1T, other_11 = ids(1, 70), torch.tensor([[7]])
    with torch.inference_mode():
        first_R1, before = model.start(model.encode(sources()[:1]), 1)
        after = model.step(first_R1, before).state
        expected_1TV = model.step(other_11, after).logits_RTV
        for width in (3, MOST_ROWS + 1):
            wide = model.widen(after, width)
            assert (wide.alone is not None) is (width == 3)
            logits_RTV = model.step(other_11.repeat(width, 1), wide).logits_RTV
            close(logits_RTV, expected_1TV.expand_as(logits_RTV))
        state, logits = before, []
        for place in range(70):
            step = model.step(tokens_1T[:, place : place + 1], state)
            model.step(other_11, state)  # another way on, which this one does not see
            logits.append(step.logits_RTV)
            state = step.state
        close(torch.cat(logits, 1), model.step(tokens_1T, before).logits_RTV)
        with pytest.raises(DataError, match="max_positions=90"):
            for _ in range(21):
                state = model.step(other_11, state).state
