"""The flat form of a stack equals its modules, for every option; where somebody looks on, the modules run."""

import copy
import dataclasses
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from clearhead.model import affine
from clearhead.model.attention import KeysValues, attend
from clearhead.model.flat import Flat, Places, flatten
from clearhead.model.kept import Kept
from clearhead.model.transformer import Transformer
from tests.model.options import (
    D,
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
    {"residual": False},
    {"residual": False, "norm_placement": "post"},
    {"scale_output": True, "output_bias": True, "tied_embeddings": "none"},
    {"sinusoidal_layout": "fairseq", "final_norm": True, "norm_placement": "post"},
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
                close(step.logits_RTV[:, 0], whole[:, place], is_touchy=options.get("norm") == "group")
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


@pytest.mark.parametrize("options", [{}, {"norm_placement": "post"}, {"activation": "silu", "gated": True}], ids=str)
@pytest.mark.parametrize("build", [transformer, language_model])
def test_with_matrices_laid_out_for_their_kernel(
    build: Callable[[dict[str, Any]], Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which single precision has; also after an update in the middle of a training."""
    model = build(options).float()
    given, tgt_NT = (sources() if isinstance(model, Transformer) else ids(N, T)[:, :1]), ids(N, T)
    monkeypatch.setattr(affine, "_MANY_NUMBERS", 0)
    monkeypatch.setattr(affine, "_FEW_PRODUCTS", 0)

    def logits() -> Tensor:
        with torch.inference_mode():
            _, state = model.start(model.encode(given), 1)
            assert state.flat is not None
            logits_R1V: Tensor = model.step(tgt_NT[:, :1], state).logits_RTV
            assert state.flat.output._packed is not None or not affine._HAS_PACKED
            return logits_R1V

    for _ in range(2):
        whole = model.logits(model(given, tgt_NT) if isinstance(model, Transformer) else model(tgt_NT))
        torch.testing.assert_close(logits(), whole[:, :1].detach(), atol=1e-4, rtol=1e-4)
        whole.sum().backward()
        torch.optim.AdamW(model.parameters(), lr=0.05, fused=True).step()


@torch.inference_mode()
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_sources_with_much_padding_are_read_without_it(positions: str) -> None:
    model = transformer({"positions": positions})
    src_NS = torch.cat((sources(), torch.full((N, 9), model.config.pad_id)), 1)
    src_NS[0, :12] = ids(1, 12)
    read_NSD, allowed_N11S = model._read(src_NS)
    assert allowed_N11S is not None
    real_M = Places.of(src_NS, allowed_N11S).real_M
    assert real_M is not None and len(real_M) == int(allowed_N11S.sum())
    for row, length in enumerate(allowed_N11S.sum(-1).flatten().tolist()):
        close(read_NSD[row, :length], model._read(src_NS[row : row + 1, :length])[0][0])


def test_rows_come_in_few_numbers() -> None:
    """Each is a kernel more; and little more than there are is computed."""
    rounded = {rows: Places.of(torch.zeros(rows, 1), None).rows for rows in range(1, 2000)}
    assert all(rows <= more <= rows * 9 / 8 for rows, more in rounded.items())
    assert len({more for rows, more in rounded.items() if 256 <= rows < 1024}) == 17


@torch.inference_mode()
@pytest.mark.parametrize("rows", [16, 17, 33])
def test_rows_that_nobody_looks_at_change_nothing(rows: int) -> None:
    model, tgt_R1 = transformer({}), ids(rows, 1)
    src_NS = sources()[:1].repeat(rows, 1)
    together = model.step(tgt_R1, model.start(model.encode(src_NS), 1)[1])
    assert together.logits_RTV.shape[0] == rows and together.state.past[0].k_BHSK.shape[0] == rows
    seen: list[int] = []
    flat: Any = together.state.flat

    def output(x_MD: Tensor) -> Any:
        seen.append(len(x_MD))
        return flat.output(x_MD)

    watched = dataclasses.replace(flat, output=output)
    close(watched.logits(torch.ones(rows, 1, D).double()), flat.logits(torch.ones(rows, 1, D).double()))
    assert seen == [Places.of(tgt_R1, None).rows], "the output, too, is asked for few numbers of rows"
    for row in (0, rows - 1):
        alone = model.step(tgt_R1[row : row + 1], model.start(model.encode(src_NS[:1]), 1)[1])
        close(together.logits_RTV[row], alone.logits_RTV[0])


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
        for module in (model.decoder.layers[1].self_attention.output, model.target_embedding.positions):
            assert isinstance(module, torch.nn.Module)
            for hook in (module.register_forward_hook, module.register_forward_pre_hook):
                handle = hook(lambda *_: None)
                assert flatten(*parts, Kept()) is None
                handle.remove()
        assert flatten(*parts, Kept()) is not None
        parametrize.register_parametrization(model.decoder.layers[1].feed_forward.w1, "weight", torch.nn.Tanh())
        assert flatten(*parts, Kept()) is None  # weights that are computed


@torch.inference_mode()
@pytest.mark.parametrize("build", [transformer, language_model])
def test_a_moved_model_does_not_hold_on_to_its_old_numbers(build: Callable[[dict[str, Any]], Any]) -> None:
    model = build({})

    def start() -> Any:
        return model.start(model.encode(ids(1, 5)), 1)[1]

    old = weakref.ref(start().flat.layers[0].inner.weight_DN)
    model.float()
    assert old() is None and start().flat.table_VD.dtype == torch.float32


@pytest.mark.parametrize("build", [transformer, language_model])
def test_what_is_kept_goes_when_training_goes_on_and_is_not_saved(build: Callable[[dict[str, Any]], Any]) -> None:
    model = build({})

    def start() -> Any:
        with torch.inference_mode():
            return model.start(model.encode(ids(1, 5)), 1)[1].flat

    kept = start()
    assert start() is kept
    model.train().eval()
    assert start() is not kept
    again = pickle.loads(pickle.dumps(model))
    assert {name: each.tolist() for name, each in again.state_dict().items()} == {
        name: each.tolist() for name, each in model.state_dict().items()
    }


@torch.inference_mode()
@pytest.mark.parametrize("build", [transformer, language_model])
def test_logits_that_somebody_else_makes_are_asked_for(build: Callable[[dict[str, Any]], Any]) -> None:
    model, given = build({}), ids(1, 5)

    def logits() -> Any:
        first, state = model.start(model.encode(given), 1)
        return model.step(first[:, :1], state).logits_RTV

    plain, own = logits(), model.logits
    model.logits = lambda hidden: own(hidden) + 7.0
    close(logits(), plain + 7.0)
    del model.logits
    close(logits(), plain)


@torch.inference_mode()
def test_a_flat_stack_is_kept_while_it_is_of_the_same_numbers() -> None:
    """Numbers that change in their place are seen, and what is put in another's place."""
    with torch.inference_mode(False):
        model: Any = transformer({})
    kept, parts = Kept[Flat](), (model.target_embedding, model.decoder)
    layer, memories = model.decoder.layers[1], model.encode(sources()[:2])

    def states(flat: Flat) -> Tensor:
        ids_B1 = torch.tensor([[5], [6]])
        return flat(ids_B1, None, 0, (), memories.source, memories.allowed_N11S)[0]

    first = flatten(*parts, kept)
    assert first is not None and flatten(*parts, kept) is first
    for projection in (layer.feed_forward.w1, layer.self_attention.value, layer.cross_attention.query):
        before = states(first)
        projection.weight.mul_(2.0)
        new = flatten(*parts, kept)
        assert new is not None and new is not first and not torch.equal(states(new), before)
        first = new
    changes: list[Callable[[], object]] = [
        lambda: setattr(layer.feed_forward.w1.weight, "data", layer.feed_forward.w1.weight.data.clone()),
        lambda: setattr(layer.self_attention, "output", copy.deepcopy(layer.self_attention.output)),
        lambda: setattr(
            layer.cross_attention.output, "weight", torch.nn.Parameter(layer.cross_attention.output.weight.clone())
        ),
    ]
    for change in changes:
        old, again = flatten(*parts, kept), copy.deepcopy(kept)
        change()
        new = flatten(*parts, kept)
        assert new is not None and new is not old and flatten(*parts, again) is not old
        close(states(new), states(first))


@torch.inference_mode()
def test_changes_of_weights_made_for_inference_are_seen() -> None:
    """Changes of those are not counted, so that copies of them are made for each search."""
    model: Any = transformer({})
    kept, parts = Kept[Flat](), (model.source_embedding, model.encoder)
    before = flatten(*parts, kept)
    assert before is not None
    states_NSD = before(sources())[0]
    model.encoder.layers[0].self_attention.value.weight.mul_(2.0)
    after = flatten(*parts, kept)
    assert after is not None and not torch.equal(after(sources())[0], states_NSD)


@torch.inference_mode()
def test_a_hook_in_the_middle_of_search_is_seen_by_the_next_one() -> None:
    model: Any = transformer({})
    src_NS = sources()
    first, state = model.start(model.encode(src_NS), 1)
    plain = model.step(first, state).logits_RTV
    model.decoder.layers[0].self_attention.register_forward_hook(
        lambda _, __, given: given._replace(y_BTD=given.y_BTD * 0)
    )
    first, state = model.start(model.encode(src_NS), 1)  # hooks count from here on
    assert state.flat is None
    assert (model.step(first, state).logits_RTV - plain).abs().max() > 1e-3


@torch.inference_mode()
def test_what_stands_behind_a_past_is_nobody_elses() -> None:
    """Two ways on from one state, also after rows have moved: neither sees what the other writes behind it."""
    drawn = torch.Generator().manual_seed(1)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=drawn)

    def pair(rows: int, length: int) -> KeysValues:
        return KeysValues(some(rows, 2, length, 5), some(rows, 2, length, 3))

    past = expected = pair(3, 4)
    for turn in range(40):
        now, other = pair(len(past.k_BHSK), 1), pair(len(past.k_BHSK), 1)
        aside = past.followed(other)
        past, expected = past.followed(now), expected.extended(now)
        aside_again = aside.followed(other)
        if turn % 3 == 0:
            rows = torch.tensor([2, 0, 1, 1][: len(past.k_BHSK)])
            past, expected = past.rows(rows), expected.rows(rows)
        for found, wanted in ((past, expected), (aside_again.k_BHSK[:, :, -2:], torch.cat([other.k_BHSK] * 2, 2))):
            assert all(torch.equal(*each) for each in zip(found[:2], wanted[:2], strict=True))
    assert past.room is not None and past.k_BHSK.shape[2] == 44
    assert len(past.room.k_CBHK) <= 44 * 1.25 + 1, "no more room than pays"
    wide = past.widened(2)
    assert torch.equal(wide.followed(pair(6, 1)).k_BHSK[:, :, :-1], past.k_BHSK.repeat_interleave(2, 0))


@pytest.mark.parametrize("count", [1, N])
@pytest.mark.parametrize("build", [transformer, language_model])
def test_steps_may_leave_the_mode_that_they_began_in(build: Callable[[dict[str, Any]], Any], count: int) -> None:
    """Inference mode seals what is made in it; and with gradients the modules run."""
    model = build({"key_dim": 5, "value_dim": 5})
    given = sources()[:count] if isinstance(model, Transformer) else ids(count, T)[:, :1]
    with torch.inference_mode():
        first_RT, state = model.start(model.encode(given), 1)
        for _ in range(3):
            step = model.step(first_RT[:, :1], state)
            state = step.state
        expected = model.step(first_RT[:, :1], state).logits_RTV.clone()
    with torch.no_grad():
        close(model.step(first_RT[:, :1].clone(), state).logits_RTV, expected)
        _, state = model.start(model.encode(given), 1)
        model.step(first_RT[:, :1].clone(), state)
    logits_RTV = model.step(first_RT[:, :1].clone(), state).logits_RTV
    assert logits_RTV.requires_grad
    logits_RTV.sum().backward()


@torch.inference_mode()
def test_a_norm_without_gains() -> None:
    model = transformer({"key_dim": 5, "value_dim": 5})
    norm = torch.nn.LayerNorm(model.config.model_dim, elementwise_affine=False)
    model.get_submodule("decoder.layers.0.self_attention_residual").register_module("norm", norm)
    src_NS, tgt_NT = sources()[:1], ids(1, 3)
    expected_NTV = model.logits(model(src_NS, tgt_NT))
    _, state = model.start(model.encode(src_NS), 1)
    close(model.step(tgt_NT[:, :1], state).logits_RTV, expected_NTV[:, :1])


@torch.inference_mode()
@pytest.mark.parametrize("num_keys", [5, 13, 15, 16, 17])
@pytest.mark.parametrize("has_mask", [False, True])
def test_many_look_ups_over_few_keys(num_keys: int, has_mask: bool) -> None:
    """By two products and a softmax over whole registers: what fills them up has no weight."""
    q_BHTK, k_BHSK, v_BHSE = (torch.randn(64, 2, count, 32) for count in (4, num_keys, num_keys))
    mask = torch.rand(64, 1, 1, num_keys) < 0.7 if has_mask else None
    if mask is not None:
        mask[..., 0] = True
    expected = torch.nn.functional.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSE, attn_mask=mask)
    close(attend(q_BHTK, KeysValues(k_BHSK, v_BHSE), mask, is_causal=False), expected)
