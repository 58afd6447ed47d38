"""The decoder laid out for one sentence equals its steps, for every option, whichever rows go on."""

import random
from typing import Any

import pytest
import torch

from clearhead.config import TrainingConfig
from clearhead.model import affine
from clearhead.model.level import levelled
from clearhead.model.solo import Solo
from clearhead.model.transformer import Transformer
from clearhead.training.optimizer import build_optimizer
from tests.model.options import V, close, config, each_combination, ids, shaken, sources

EVEN = {"num_heads": 2, "key_dim": 0, "value_dim": 0, "model_dim": 24, "norm_groups": 4}  # heads of one width, even
MORE: list[dict[str, Any]] = [
    {"norm": "none"},
    {"skip": False, "norm_placement": "post"},
    {"scale_output": True, "output_bias": True, "embeddings": "separate"},
    {"scale_attention": False, "activation": "silu", "gated": True},
    {"key_dim": 5, "value_dim": 5},
]


def check(options: dict[str, Any], width: int) -> None:
    model, draw = shaken(Transformer(config(**options))).double(), random.Random(width)
    with torch.inference_mode():
        first_R1, state = model.start(model.encode(sources()[:1]), width)
        solo = model.alone(state, most=6)
        assert isinstance(solo, Solo)
        tokens, parents = first_R1[:, 0].tolist(), None
        for _ in range(6):
            if parents is not None:
                state = model.select(state, torch.tensor(parents))
            step = model.step(torch.tensor(tokens)[:, None], state)
            close(solo.step(tokens, parents), step.logits_RTV[:, 0])
            state = step.state
            tokens = draw.choices(range(3, V), k=width)
            parents = draw.choice([None, draw.choices(range(width), k=width)])


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
            solo = model.alone(state, most=2)
            assert solo is not None
            return solo.step(first_R1[:, 0].tolist(), None), model.step(first_R1, state).logits_RTV[:, 0]

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
    "options", [{"norm_placement": "post"}, {"norm": "none"}, {"norm": "rms"}, {"skip": False}], ids=str
)
def test_streams_that_somebody_else_reads_keep_their_mean(options: dict[str, Any]) -> None:
    model = shaken(Transformer(config(**EVEN | options))).double()
    with torch.inference_mode():
        flat = model.encode(sources()[:1]).flat
    assert flat is not None and flat.once(levelled) is flat


@pytest.mark.parametrize("width", [1, 4])
def test_products_of_many(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model so large that several rows are multiplied by torch."""
    monkeypatch.setattr(affine, "_FEW_PRODUCTS", 0)
    check(EVEN, width)


@torch.inference_mode()
def test_what_cannot_be_laid_out_is_left_to_others() -> None:
    model = shaken(Transformer(config(**EVEN, max_positions=60)))

    def alone(model: Transformer, src_NS: torch.Tensor) -> Solo | None:
        return model.alone(model.start(model.encode(src_NS), 2)[1], 5)

    assert alone(model, sources()[:1]) is not None
    assert alone(model, sources()) is None, "two sentences"
    assert alone(model, sources()[1:]) is None, "padding"
    assert alone(model, ids(1, 60)) is None, "a source so long that its scores are more work than its keys"
    assert model.alone(model.start(model.encode(sources()[:1]), 2)[1], 61) is None, "more places than there are"
    uneven = shaken(Transformer(config(**EVEN | {"value_dim": 5})))
    assert alone(uneven, sources()[:1]) is None
    model.decoder.layers[0].register_forward_hook(lambda *_: None)
    assert alone(model, sources()[:1]) is None, "somebody looks on"
