"""Invariants of the Transformer with any combination of options."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model.language_model import LanguageModel
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer
from tests.model.options import (
    POSITIONS,
    D,
    H,
    K,
    N,
    S,
    T,
    V,
    close,
    config,
    each_combination,
    ids,
    language_model,
    sources,
    steps,
    text_encoder,
    transformer,
    with_random_weights,
)


@each_combination
@torch.inference_mode()
def test_cached_steps_equal_one_pass(options: dict[str, Any]) -> None:
    tgt_NT = ids(N, T)
    translator, src_NS = transformer(options), sources()
    first, state = translator.start(translator.encode(src_NS), 1)
    close(
        steps(translator, first, state, tgt_NT),
        translator.logits(translator(src_NS, torch.cat((first, tgt_NT), 1))),
    )
    generator, prompt_N3 = language_model(options), ids(N, 3)
    first, empty = generator.start(generator.encode(prompt_N3), 1)
    assert torch.equal(first, prompt_N3)
    close(steps(generator, first, empty, tgt_NT), generator.logits(generator(torch.cat((prompt_N3, tgt_NT), 1))))


@each_combination
@torch.inference_mode()
def test_the_future_cannot_touch_the_past(options: dict[str, Any]) -> None:
    translator, generator, src_NS, tgt_NT = transformer(options), language_model(options), sources(), ids(N, T)
    changed = tgt_NT.clone()
    changed[:, 2:] = (changed[:, 2:] - 3) % (V - 4) + 4
    models: list[Callable[[Tensor], Tensor]] = [generator, lambda tgt_NT: translator(src_NS, tgt_NT)]
    for run in models:
        close(run(changed)[:, :2], run(tgt_NT)[:, :2])
        # Without residual connections, changes by attention alone are small.
        assert not torch.allclose(run(changed)[:, 2], run(tgt_NT)[:, 2], atol=1e-6, rtol=0)


@each_combination
@torch.inference_mode()
def test_more_padding_changes_nothing(options: dict[str, Any]) -> None:
    src_NS, tgt_NT = sources(), ids(N, T)
    padded_src = torch.cat((src_NS, torch.zeros(N, 4, dtype=torch.long)), 1)
    padded_tgt = torch.cat((tgt_NT, torch.zeros(N, 2, dtype=torch.long)), 1)
    translator, generator = transformer(options), language_model(options)
    close(translator(padded_src, padded_tgt)[:, :T], translator(src_NS, tgt_NT))
    close(generator(padded_tgt)[:, :T], generator(tgt_NT))
    for pooling in ("first", "mean", "last"):
        encoder = text_encoder({**options, "pooling": pooling, "pooler": True})
        padded, baseline = encoder(padded_src), encoder(src_NS)
        close(padded.states_BSD[0, :S], baseline.states_BSD[0])
        close(padded.states_BSD[1, :4], baseline.states_BSD[1, :4])
        close(padded.pooled_BD, baseline.pooled_BD)


@each_combination
@torch.inference_mode()
def test_returning_weights_changes_nothing(options: dict[str, Any]) -> None:
    """The fused kernel equals the explicit weights, whose rows are probabilities."""
    src_NS, tgt_NT = sources(), ids(N, T)
    encoder = text_encoder(options)
    traced = encoder(src_NS, want_attention=True)
    close(traced.states_BSD, encoder(src_NS).states_BSD)
    assert not encoder(src_NS).attention and len(traced.attention) == 2
    recorded = [*traced.attention]
    models: list[Any] = [transformer(options), language_model(options)]
    for model in models:
        _, state = model.start(model.encode(tgt_NT if isinstance(model, LanguageModel) else src_NS), 1)
        state = model.step(tgt_NT[:, :2], state).state
        baseline, step = model.step(tgt_NT[:, 2:], state), model.step(tgt_NT[:, 2:], state, want_attention=True)
        close(step.logits_RTV, baseline.logits_RTV)
        assert baseline.attention is None and step.attention is not None and len(step.attention) == 2
        for layer in step.attention:
            assert (
                layer.self_RHTP.shape == (N, model.config.num_heads, T - 2, T)
                and layer.self_RHTP.triu(3).abs().max() == 0
            )
            recorded.append(layer.self_RHTP)
            recorded += [layer.cross_RHTS] if hasattr(layer, "cross_RHTS") else []
    assert len(recorded) == 2 + 2 * 2 + 2
    for weights in recorded:
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
        assert weights.min() >= 0
    for weights_NHXS in (*traced.attention, recorded[3]):
        assert weights_NHXS[1, :, :, 4:].abs().max() == 0  # padding


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_fused_kernel_equals_explicit_weights_in_single_precision(positions: str, scaled: bool) -> None:
    options = {"positions": positions, "scale_attention": scaled, "num_heads": 11, "key_dim": 0, "value_dim": 0}
    encoder, generator = text_encoder(options).float(), language_model(options).float()
    src_NS, tgt_NT = sources(), ids(N, T)
    close(encoder(src_NS, want_attention=True).states_BSD, encoder(src_NS).states_BSD)
    first, state = generator.start(generator.encode(tgt_NT), 1)
    close(generator.step(first, state, want_attention=True).logits_RTV, generator.logits(generator(tgt_NT)))


def test_pooler_is_a_layer_on_the_pooled_state() -> None:
    encoder = with_random_weights(
        TextEncoder(config(family="encoder", head="classification", pooling="first", pooler=True))
    )
    output = encoder(sources())
    assert encoder.width == D and encoder.pooler is not None
    first_ND = output.states_BSD[:, 0]
    close(output.pooled_BD, torch.tanh(first_ND @ encoder.pooler.weight.T + encoder.pooler.bias))


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_captioning_steps_equal_one_pass(positions: str) -> None:
    model = with_random_weights(
        Transformer(config(input="image", image_size=6, patch_size=2, image_channels=3, positions=positions))
    )
    images_NCYX, tgt_NT = torch.randn(N, 3, 6, 6), ids(N, T)
    images_NCYX[1] = 0  # black is not padding
    memory = model.encode(images_NCYX)
    assert memory.layout.allowed_B11S is None and memory.keys_values[0].k_HK.shape == (N, 9, H, K)
    first, state = model.start(memory, 1)
    expected = model.logits(model(images_NCYX, torch.cat((first, tgt_NT), 1)))
    close(steps(model, first, state, tgt_NT), expected)
    assert len({id(model.target_embedding.tokens.weight), id(model.output.weight)}) == 1


def test_scaled_output_divides_the_states() -> None:
    baseline, scaled = Transformer(config()).eval(), Transformer(config(scale_output=True)).eval()
    scaled.load_state_dict(baseline.state_dict())
    src_NS, tgt_NT = sources(), ids(N, T)
    close(scaled(src_NS, tgt_NT), baseline(src_NS, tgt_NT) / math.sqrt(D))
