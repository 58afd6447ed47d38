"""The flat form of a stack equals its modules, for every option; where somebody looks on, the modules run."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model.flat import Flat, Kept, flatten
from clearhead.model.transformer import Transformer
from tests.model.options import (
    H,
    N,
    T,
    close,
    config,
    each_combination,
    ids,
    language_model,
    shaken,
    sources,
    transformer,
)

MORE: list[dict[str, Any]] = [
    {"norm": "sample"},
    {"norm": "none"},
    {"skip": False},
    {"skip": False, "norm_placement": "post"},
    {"scale_output": True, "output_bias": True, "embeddings": "separate"},
    {"sinusoids": "fairseq", "last_norm": True, "norm_placement": "post"},
    {"activation": "silu", "gated": True},
    {"value_dim": 0, "key_dim": 0, "num_heads": 11},
]


def check(options: dict[str, Any]) -> None:
    """Steps of one token, which are flat, against one pass with gradients, which is not."""
    src_NS, tgt_NT = sources(), ids(N, T)
    models: list[Any] = [transformer(options), language_model(options)]
    for model in models:
        is_prompted = not isinstance(model, Transformer)
        whole = model.logits(model(tgt_NT) if is_prompted else model(src_NS, tgt_NT)).detach()
        with torch.inference_mode():
            _, state = model.start(model.encode(tgt_NT[:, :1] if is_prompted else src_NS), 1)
            assert state.flat is not None
            for place in range(T):
                step = model.step(tgt_NT[:, place : place + 1], state)
                close(step.logits_RTV[:, 0], whole[:, place])
                state = step.state
            assert state.flat is not None and len(state.past) == 2


@each_combination
def test_flat_equals_the_modules(options: dict[str, Any]) -> None:
    check(options)


@pytest.mark.parametrize("options", MORE, ids=lambda each: "-".join(map(str, each)))
def test_rare_options_are_flat_too(options: dict[str, Any]) -> None:
    if {"scale_output", "output_bias"} & {*options}:
        model = shaken(Transformer(config(**options)))
        src_NS, tgt_NT = sources(), ids(N, T)
        whole = model.logits(model(src_NS, tgt_NT)).detach()
        with torch.inference_mode():
            _, state = model.start(model.encode(src_NS), 1)
            close(model.step(tgt_NT[:, :1], state).logits_RTV, whole[:, :1])
        return
    check(options)


@torch.inference_mode()
def test_rows_of_a_sentence_share_its_source() -> None:
    """Three rows of each sentence, flat, against each row with a source of its own."""
    model, src_NS, tgt_R1 = transformer({}), sources(), ids(3 * N, 1)
    _, shared = model.start(model.encode(src_NS), 3)
    _, apart = model.start(model.encode(src_NS.repeat_interleave(3, 0)), 1)
    close(model.step(tgt_R1, shared).logits_RTV, model.step(tgt_R1, apart).logits_RTV)


@torch.inference_mode()
def test_many_rows_equal_few() -> None:
    """Many small look-ups take other kernels than few."""
    model = transformer({})
    src_NS, tgt_N1 = sources()[:1].repeat(61, 1), ids(61, 1)
    _, state = model.start(model.encode(src_NS), 1)
    states = [model.start(model.encode(src_NS[:1]), 1)[1] for _ in range(2)]
    assert 61 * H >= 128
    for place in range(12):
        step = model.step(tgt_N1, state)
        for row in range(2):
            alone = model.step(tgt_N1[row : row + 1], states[row])
            close(step.logits_RTV[row], alone.logits_RTV[0])
            states[row] = alone.state
        state, tgt_N1 = step.state, (tgt_N1 + place) % 19 + 4


def test_the_modules_run_where_somebody_looks_on() -> None:
    model: Any = transformer({})
    parts = model.target_embedding, model.decoder
    assert flatten(*parts, Kept()) is None  # gradients
    with torch.inference_mode():
        assert flatten(*parts, Kept()) is not None
        for part in parts:
            part.train()
        assert flatten(*parts, Kept()) is None  # dropout
        for part in parts:
            part.eval()
        for module in (model.decoder.layers[1].attention.out, model.target_embedding.positions):
            assert isinstance(module, torch.nn.Module)
            for hook in (module.register_forward_hook, module.register_forward_pre_hook):
                handle = hook(lambda *_: None)
                assert flatten(*parts, Kept()) is None
                handle.remove()
        assert flatten(*parts, Kept()) is not None


@torch.inference_mode()
def test_a_flat_stack_is_kept_while_it_is_of_the_same_numbers() -> None:
    """Numbers that change in their place are seen as they are; what is put in another's place is laid out anew."""
    model: Any = transformer({})
    kept, parts = Kept(), (model.target_embedding, model.decoder)
    layer, memories = model.decoder.layers[1], model.encode(sources()[:2])

    def states(flat: Flat) -> Tensor:
        ids_B1 = torch.tensor([[5], [6]])
        return flat(ids_B1, None, 0, (), memories.source, memories.allowed_N11S)[0]

    first = flatten(*parts, kept)
    assert first is not None and flatten(*parts, kept) is first
    before = states(first)
    layer.feed_forward.inner.weight.mul_(2.0)
    assert flatten(*parts, kept) is first and not torch.equal(states(first), before)
    changes: list[Callable[[], object]] = [
        lambda: setattr(layer.feed_forward.inner.weight, "data", layer.feed_forward.inner.weight.data.clone()),
        lambda: setattr(layer.attention, "out", copy.deepcopy(layer.attention.out)),
        lambda: setattr(layer.cross.out, "weight", torch.nn.Parameter(layer.cross.out.weight.clone())),
    ]
    for change in changes:
        old, again = flatten(*parts, kept), copy.deepcopy(kept)
        change()
        new = flatten(*parts, kept)
        assert new is not None and new is not old and flatten(*parts, again) is not old
        assert torch.equal(states(new), states(first))


@torch.inference_mode()
def test_a_hook_in_the_middle_of_search_is_seen_by_the_next_one() -> None:
    model: Any = transformer({})
    src_NS = sources()
    first, state = model.start(model.encode(src_NS), 1)
    plain = model.step(first, state).logits_RTV
    model.decoder.layers[0].attention.register_forward_hook(lambda _, __, given: given._replace(y_BTD=given.y_BTD * 0))
    first, state = model.start(model.encode(src_NS), 1)  # hooks count from here on
    assert state.flat is None
    assert (model.step(first, state).logits_RTV - plain).abs().max() > 1e-3
