"""What must hold whichever options of the Transformer are combined."""

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
    shaken,
    sources,
    steps,
    text_reader,
    transformer,
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
    writer, prompt_N3 = language_model(options), ids(N, 3)
    first, empty = writer.start(writer.encode(prompt_N3), 1)
    assert torch.equal(first, prompt_N3)
    close(steps(writer, first, empty, tgt_NT), writer.logits(writer(torch.cat((prompt_N3, tgt_NT), 1))))


@each_combination
@torch.inference_mode()
def test_the_future_cannot_touch_the_past(options: dict[str, Any]) -> None:
    translator, writer, src_NS, tgt_NT = transformer(options), language_model(options), sources(), ids(N, T)
    changed = tgt_NT.clone()
    changed[:, 2:] = (changed[:, 2:] - 3) % (V - 4) + 4
    readers: list[Callable[[Tensor], Tensor]] = [writer, lambda tgt_NT: translator(src_NS, tgt_NT)]
    for read in readers:
        close(read(changed)[:, :2], read(tgt_NT)[:, :2])
        assert not torch.allclose(read(changed)[:, 2], read(tgt_NT)[:, 2], atol=1e-3)


@each_combination
@torch.inference_mode()
def test_more_padding_changes_nothing(options: dict[str, Any]) -> None:
    src_NS, tgt_NT = sources(), ids(N, T)
    padded_src = torch.cat((src_NS, torch.zeros(N, 4, dtype=torch.long)), 1)
    padded_tgt = torch.cat((tgt_NT, torch.zeros(N, 2, dtype=torch.long)), 1)
    translator, writer = transformer(options), language_model(options)
    close(translator(padded_src, padded_tgt)[:, :T], translator(src_NS, tgt_NT))
    close(writer(padded_tgt)[:, :T], writer(tgt_NT))
    for pooling in ("first", "mean", "last"):
        reader = text_reader({**options, "pooling": pooling, "pooler": True})
        padded, plain = reader(padded_src), reader(src_NS)
        close(padded.states_BSD[0, :S], plain.states_BSD[0])
        close(padded.states_BSD[1, :4], plain.states_BSD[1, :4])
        close(padded.pooled_BD, plain.pooled_BD)


@each_combination
@torch.inference_mode()
def test_asking_for_weights_changes_nothing(options: dict[str, Any]) -> None:
    """The fused kernel equals the explicit weights, whose rows are probabilities."""
    src_NS, tgt_NT = sources(), ids(N, T)
    reader = text_reader(options)
    traced = reader(src_NS, want_attention=True)
    close(traced.states_BSD, reader(src_NS).states_BSD)
    assert not reader(src_NS).attention and len(traced.attention) == 2
    seen = [*traced.attention]
    models: list[Any] = [transformer(options), language_model(options)]
    for model in models:
        _, state = model.start(model.encode(tgt_NT if isinstance(model, LanguageModel) else src_NS), 1)
        state = model.step(tgt_NT[:, :2], state).state
        plain, step = model.step(tgt_NT[:, 2:], state), model.step(tgt_NT[:, 2:], state, want_attention=True)
        close(step.logits_RTV, plain.logits_RTV)
        assert plain.attention is None and step.attention is not None and len(step.attention) == 2
        for layer in step.attention:
            assert (
                layer.self_RHTP.shape == (N, model.config.num_heads, T - 2, T)
                and layer.self_RHTP.triu(3).abs().max() == 0
            )
            seen.append(layer.self_RHTP)
            seen += [layer.cross_RHTS] if hasattr(layer, "cross_RHTS") else []
    assert len(seen) == 2 + 2 * 2 + 2
    for weights in seen:
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
        assert weights.min() >= 0
    for weights_NHXS in (*traced.attention, seen[3]):
        assert weights_NHXS[1, :, :, 4:].abs().max() == 0  # padding


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_fused_kernel_equals_explicit_weights_in_single_precision(positions: str, scaled: bool) -> None:
    options = {"positions": positions, "scale_attention": scaled, "num_heads": 11, "key_dim": 0, "value_dim": 0}
    reader, writer = text_reader(options).float(), language_model(options).float()
    src_NS, tgt_NT = sources(), ids(N, T)
    close(reader(src_NS, want_attention=True).states_BSD, reader(src_NS).states_BSD)
    first, state = writer.start(writer.encode(tgt_NT), 1)
    close(writer.step(first, state, want_attention=True).logits_RTV, writer.logits(writer(tgt_NT)))


def test_pooler_is_a_layer_on_the_pooled_state() -> None:
    reader = shaken(TextEncoder(config(family="encoder", head="classification", pooling="first", pooler=True)))
    read = reader(sources())
    assert reader.width == D and reader.pooler is not None
    first_ND = read.states_BSD[:, 0]
    close(read.pooled_BD, torch.tanh(first_ND @ reader.pooler.weight.T + reader.pooler.bias))


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_a_transformer_writes_about_pictures(positions: str) -> None:
    model = shaken(
        Transformer(config(input="image", image_size=6, patch_size=2, image_channels=3, positions=positions))
    )
    pictures_NCYX, tgt_NT = torch.randn(N, 3, 6, 6), ids(N, T)
    pictures_NCYX[1] = 0  # black is no padding
    memory = model.encode(pictures_NCYX)
    assert memory.layout.allowed_B11S is None and memory.keys_values[0].k_HK.shape == (N, 9, H, K)
    first, state = model.start(memory, 1)
    expected = model.logits(model(pictures_NCYX, torch.cat((first, tgt_NT), 1)))
    close(steps(model, first, state, tgt_NT), expected)
    assert len({id(model.target_embedding.tokens.weight), id(model.output.weight)}) == 1


def test_scaled_output_divides_the_states() -> None:
    plain, scaled = Transformer(config()).eval(), Transformer(config(scale_output=True)).eval()
    scaled.load_state_dict(plain.state_dict())
    src_NS, tgt_NT = sources(), ids(N, T)
    close(scaled(src_NS, tgt_NT), plain(src_NS, tgt_NT) / math.sqrt(D))
