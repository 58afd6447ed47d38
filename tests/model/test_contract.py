"""What every family promises, whatever is inside: one test a promise, one row a network.

R rows, S source length, T tokens, V vocabulary
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import bundle, kernels
from clearhead.bundle.writing import save as save_bundle
from clearhead.config import ModelConfig
from clearhead.inspection.recording import Recorder
from clearhead.inspection.sublayers import heads, stacks, sub_layers
from clearhead.model.parameters import restore, snapshot
from clearhead.model.registry import build_model

V, PAD, START, END = 23, 0, 2, 3
SMALL: dict[str, Any] = {
    "vocab_size": V, "model_dim": 22, "feed_forward_dim": 29, "num_heads": 2, "num_encoder_layers": 2,
    "num_decoder_layers": 2, "dropout": 0.1, "max_positions": 64,
}  # fmt: skip
T5 = {"positions": "relative", "norm": "rms", "bias": False, "scale_attention": False, "scale_embeddings": False,
      "scale_output": True}  # fmt: skip
WRITERS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer, post-norm": {"norm_placement": "post"},
    "transformer, rotary": {"positions": "rotary", "num_heads": 1},
    "transformer, none": {"positions": "none"},
    "transformer, batch norm": {"norm": "batch"},
    "transformer, group norm": {"norm": "group", "norm_groups": 2},
    "transformer, d_v": {"key_dim": 7, "value_dim": 5},
    "T5": {**T5},
    "T5, gated": {**T5, "gated": True, "activation": "gelu_tanh", "tied_embeddings": "none", "scale_output": False},
    "decoder": {"family": "decoder", "positions": "learned"},
    **{family: {"family": family, "attention": "none"} for family in ("rnn", "gru", "lstm")},
    **{
        f"lstm, {kind}": {"family": "lstm", "attention": kind, "bidirectional": kind == "dot"}
        for kind in ("dot", "scaled_dot", "general", "additive", "cosine")
    },
}
READERS: dict[str, dict[str, Any]] = {
    "encoder": {"family": "encoder"},
    "BERT": {"family": "encoder", "positions": "learned", "num_segments": 2, "embedding_norm": True, "pooler": True,
             "scale_embeddings": False, "norm_placement": "post", "pooling": "first", "activation": "gelu"},
    "lstm": {"family": "lstm", "pooling": "last"},
    "gru, both ways": {"family": "gru", "bidirectional": True, "pooling": "mean"},
    "rnn": {"family": "rnn", "pooling": "last"},
}  # fmt: skip


@pytest.fixture(autouse=True, params=["kernels", "plain torch"])
def kernels_or_plain_torch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs both ways."""
    with kernels.disabled() if request.param == "plain torch" else nullcontext():
        yield


def build(settings: dict[str, Any], **more: Any) -> Any:
    torch.manual_seed(5)
    return build_model(ModelConfig(**{**SMALL, **settings, **more})).eval()


def source(rows: int = 3, length: int = 7) -> Tensor:
    """Sentences of different lengths with their end, padded behind."""
    src_RS = torch.randint(4, V, (rows, length))
    for row in range(rows):
        src_RS[row, length - row - 1] = END
        src_RS[row, length - row :] = PAD
    return src_RS


def given(name: str) -> Tensor:
    """What a writer reads: a decoder-only model has prompts of one length."""
    return torch.randint(4, V, (3, 4)) if name == "decoder" else source()


def write(model: Any, src: Tensor, tokens_RT: Tensor, width: int = 1) -> Tensor:
    """logits_RTV after each of the tokens, one step at a time."""
    first_RT, state = model.start(model.encode(src), width)
    logits = []
    step = model.step(first_RT, state)
    for place in range(tokens_RT.shape[1]):
        logits.append(step.logits_RTV[:, -1])
        step = model.step(tokens_RT[:, place : place + 1], step.state)
    return torch.stack([*logits, step.logits_RTV[:, -1]], 1)


@pytest.mark.parametrize("name", WRITERS)
def test_step_by_step_equals_all_at_once(name: str) -> None:
    model, src = build(WRITERS[name]), given(name)
    tokens_RT = torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        stepped_RTV = write(model, src, tokens_RT)
        if name == "decoder":
            whole_RTV = model.logits(model(torch.cat((src, tokens_RT), 1)))[:, src.shape[1] - 1 :]
        else:
            whole_RTV = model.logits(model(src, torch.cat((torch.full((3, 1), START), tokens_RT), 1)))
    assert stepped_RTV.shape == (3, 6, V)
    torch.testing.assert_close(stepped_RTV, whole_RTV, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "decoder"])
def test_more_padding_changes_nothing(name: str) -> None:
    model, src = build(WRITERS[name]), source()
    padded = torch.nn.functional.pad(src, (0, 4), value=PAD)
    tokens_RT = torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        torch.testing.assert_close(model(src, tokens_RT), model(padded, tokens_RT), atol=1e-5, rtol=1e-5)
        alone = model(src[2:, :5], tokens_RT[2:])
        torch.testing.assert_close(model(src, tokens_RT)[2:], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", WRITERS)
def test_the_future_does_not_touch_the_past(name: str) -> None:
    model, src = build(WRITERS[name]), given(name)
    tokens_RT = torch.randint(4, V, (3, 6))
    changed_RT = tokens_RT.clone()
    changed_RT[:, 4:] = 4 + (changed_RT[:, 4:] - 3) % (V - 4)

    def run(tokens: Tensor) -> Any:
        return model(tokens) if name == "decoder" else model(src, tokens)

    with torch.inference_mode():
        before, after = run(tokens_RT), run(changed_RT)
    torch.testing.assert_close(before[:, :4], after[:, :4], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


@pytest.mark.parametrize("name", WRITERS)
def test_attention_of_a_trace_is_probability(name: str) -> None:
    model, src = build(WRITERS[name]), given(name)
    with torch.inference_mode():
        first_RT, state = model.start(model.encode(src), 1)
        step = model.step(torch.cat((first_RT, torch.randint(4, V, (3, 3))), 1), state, want_attention=True)
        plain = model.step(torch.cat((first_RT, torch.full((3, 3), 4)), 1), state)
    assert plain.attention is None
    layers = WRITERS[name].get("attention") == "none"
    assert bool(step.attention) is not layers
    for weights in step.attention:
        for kind in ("self_RHTP", "cross_RHTS"):
            if hasattr(weights, kind):
                rows = getattr(weights, kind)
                torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]), atol=1e-5, rtol=0)
                if kind == "cross_RHTS":
                    assert not rows[(src == PAD)[:, None, None].expand_as(rows)].any()


@pytest.mark.parametrize("name", WRITERS)
def test_rows_can_be_chosen_and_moved(name: str) -> None:
    model, src = build(WRITERS[name]), given(name)
    width = 2
    tokens_R1 = torch.randint(4, V, (3 * width, 1))
    rows_R = torch.tensor([1, 0, 5, 5])  # of the first and the last sentence; the one between has left
    with torch.inference_mode():
        first_RT, state = model.start(model.encode(src), width)
        state = model.step(tokens_R1, model.step(first_RT, state).state).state
        everything = model.step(tokens_R1, state).logits_RTV
        chosen = model.step(tokens_R1[rows_R], model.reorder(state, rows_R)).logits_RTV
    torch.testing.assert_close(chosen, everything[rows_R], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", WRITERS)
def test_one_row_a_sentence_can_become_several(name: str) -> None:
    """What all rows of a sentence have in common is read once."""
    model, src, width = build(WRITERS[name]), given(name), 3
    tokens_R1 = torch.randint(4, V, (3 * width, 1))
    with torch.inference_mode():
        memory = model.encode(src)
        (one_MT, narrow), (first_RT, wide) = model.start(memory, 1), model.start(memory, width)
        after_one, after_all = model.step(one_MT, narrow), model.step(first_RT, wide)
        repeated = model.reorder(after_one.state, torch.arange(3).repeat_interleave(width))
        widened = model.step(tokens_R1, repeated).logits_RTV
        expected = model.step(tokens_R1, after_all.state).logits_RTV
    first = after_one.logits_RTV.repeat_interleave(width, 0)
    torch.testing.assert_close(first, after_all.logits_RTV, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(widened, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "head"),
    [(settings, head) for settings in READERS.values() for head in ("classification", "token_classification")]
    + [(READERS["BERT"], "masked_lm"), (READERS["encoder"], "masked_lm")],
)
def test_readers_ignore_padding_and_company(settings: dict[str, Any], head: str) -> None:
    model, ids_BS = build(settings, head=head, num_labels=7), source()
    padded_BS = torch.nn.functional.pad(ids_BS, (0, 3), value=PAD)

    def run(ids: Tensor) -> Tensor:
        result: Tensor = model.logits(model(ids, ids == END) if head == "masked_lm" else model(ids))
        return result[:, :4] if head == "token_classification" else result

    with torch.inference_mode():
        whole = run(ids_BS)
        torch.testing.assert_close(whole, run(padded_BS), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(whole[2:], run(ids_BS[2:, :5]), atol=1e-5, rtol=1e-5)
        attention = model.backbone(ids_BS, want_attention=True).attention
    assert len(attention) == (2 if settings["family"] == "encoder" else 0)
    for weights_BHSS in attention:
        torch.testing.assert_close(weights_BHSS.sum(-1), torch.ones(3, 2, 7), atol=1e-5, rtol=0)


PICTURES: dict[str, dict[str, Any]] = {
    "patches": {"family": "vit", "positions": "learned", "pooling": "first", "image_size": 6, "patch_size": 2},
    "convolutional": {"family": "cnn", "image_size": 6, "norm_groups": 2},
    "mlp": {"family": "mlp", "image_size": 6},
}


@pytest.mark.parametrize("name", PICTURES)
def test_bodies_that_see_keep_the_contract(name: str) -> None:
    model = build(PICTURES[name], head="classification", num_labels=7)
    pictures_BCYX = torch.randn(5, 1, 6, 6)
    with torch.inference_mode():
        logits_BL = model.logits(model(pictures_BCYX))
        torch.testing.assert_close(logits_BL[3:4], model.logits(model(pictures_BCYX[3:4])), atol=1e-5, rtol=1e-5)
        read = model.backbone(pictures_BCYX, want_attention=True)
    assert logits_BL.shape == (5, 7) and read.states_BSD.shape[2] == model.backbone.width
    assert len(read.attention) == (2 if name == "patches" else 0)
    for weights_BHSS in read.attention:
        torch.testing.assert_close(weights_BHSS.sum(-1), torch.ones(5, 2, 10), atol=1e-5, rtol=0)


def test_a_transformer_that_sees_keeps_the_contract() -> None:
    model = build({"input": "image", "image_size": 6, "patch_size": 3})
    pictures_NCYX, tokens_RT = torch.randn(3, 1, 6, 6), torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        stepped_RTV = write(model, pictures_NCYX, tokens_RT)
        whole_RTV = model.logits(model(pictures_NCYX, torch.cat((torch.full((3, 1), START), tokens_RT), 1)))
    torch.testing.assert_close(stepped_RTV, whole_RTV, atol=1e-5, rtol=1e-5)


def check_probabilities(recorder: Recorder, settings: dict[str, Any]) -> None:
    """Rows sum to 1 over the places that are allowed, and nothing lies elsewhere."""
    assert bool(recorder.looked) is bool(heads(recorder.network))
    has_none = settings.get("attention") == "none" or settings.get("family") in ("cnn", "mlp")
    is_reader = "head" in settings and settings["family"] in ("rnn", "gru", "lstm")
    assert bool(recorder.looked) is not (has_none or is_reader)
    for one in recorder.looked:
        assert ((one.weights_BHTS > 0) == one.allowed_BHTS).all()
        torch.testing.assert_close(one.weights_BHTS.sum(-1), torch.ones(one.weights_BHTS.shape[:-1]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_can_be_traced(name: str) -> None:
    """By hooks, in a batch with padding: as probable as by the fast kernel, and as attentive as when asked."""
    model, src = build(WRITERS[name]), given(name)
    recorder = Recorder(model)
    tokens_RT = torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        steps = []
        hooked: Any = recorder.network
        for network, want in ((hooked, False), (model, False), (model, True)):
            first_RT, state = network.start(network.encode(src), 1)
            steps.append(network.step(torch.cat((first_RT, tokens_RT), 1), state, want_attention=want))
    check_probabilities(recorder, WRITERS[name])
    torch.testing.assert_close(steps[0].logits_RTV, steps[1].logits_RTV, atol=1e-5, rtol=1e-5)
    for kind, field in (("decoder", "self_RHTP"), ("cross", "cross_RHTS")):
        asked = [getattr(one, field) for one in steps[2].attention if hasattr(one, field)]
        seen = [one.weights_BHTS for one in recorder.looked if one.name == kind]
        assert len(seen) == len(asked)
        for one, other in zip(seen, asked, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    num_streams = len([one for one in sub_layers(model) if one.residual is not None]) + len(stacks(model))
    assert len(recorder.streamed) == num_streams


def test_a_transformer_that_sees_can_be_traced() -> None:
    settings = {"input": "image", "image_size": 6, "patch_size": 3}
    recorder = Recorder(build(settings))
    with torch.inference_mode():
        first_RT, state = recorder.network.start(recorder.network.encode(torch.randn(3, 1, 6, 6)), 1)  # type: ignore[operator]
        recorder.network.step(first_RT, state)  # type: ignore[operator]
    check_probabilities(recorder, settings)
    assert [one.name for one in recorder.looked] == ["encoder"] * 2 + ["decoder", "cross"] * 2
    assert [one.weights_BHTS.shape[2:] for one in recorder.looked[2:4]] == [(1, 1), (1, 4)]


@pytest.mark.parametrize("name", READERS | PICTURES)
def test_every_reader_can_be_traced(name: str) -> None:
    settings = {**(READERS | PICTURES)[name], "head": "classification", "num_labels": 7}
    model, inputs = build(settings), torch.randn(3, 1, 6, 6) if name in PICTURES else source()
    recorder = Recorder(model)
    with torch.inference_mode():
        torch.testing.assert_close(recorder.network(inputs), model(inputs), atol=1e-5, rtol=0)
        asked = model.backbone(inputs, want_attention=True).attention
    check_probabilities(recorder, settings)
    assert len(asked) == len(recorder.looked)
    for one, weights_BHSS in zip(recorder.looked, asked, strict=True):
        torch.testing.assert_close(one.weights_BHTS, weights_BHSS, atol=1e-5, rtol=0)


EMPTY: dict[str, Any] = {"config": {}, "tokenizer": "null", "weights_kind": "last", "data": {}, "training": {}}
ALL = [
    *WRITERS.values(),
    *({**settings, "head": "classification", "num_labels": 7} for settings in (READERS | PICTURES).values()),
]


@pytest.mark.parametrize("settings", ALL)
def test_saved_and_loaded_it_is_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    model = build(settings)
    save_bundle(tmp_path / "model", weights=snapshot(model), **EMPTY)
    other = build_model(ModelConfig(**{**SMALL, **settings})).eval()
    restore(other, bundle.load(tmp_path / "model").tensors())
    for (name, one), (_, two) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(one, two), name


def trained(model: Any, settings: dict[str, Any]) -> list[Tensor]:
    """Return the outputs of a batch with padding, and the gradients of all weights."""
    model.train()
    model.zero_grad()
    src_RS, tgt_RT = source(), source(length=5)[:, :4]
    if settings.get("head") == "classification":
        images_BCYX = torch.ones(3, 1, 6, 6) * torch.arange(3.0)[:, None, None, None]
        output = model.logits(model(images_BCYX if "image_size" in settings else src_RS))
    elif settings.get("family") == "decoder":
        output = model.logits(model(src_RS))[src_RS != PAD]
    else:
        output = model.logits(model(src_RS, tgt_RT))[tgt_RT != PAD]
    output.log_softmax(-1)[..., 3].sum().backward()
    # The bias of the keys changes no weight of attention: its gradient is rounding.
    named = [(name, each.grad) for name, each in model.named_parameters() if not name.endswith("key.bias")]
    return [output.detach(), *(each.clone() for _, each in named if each is not None)]


@pytest.mark.parametrize("settings", ALL)
def test_kernels_give_the_gradients_of_plain_torch(settings: dict[str, Any]) -> None:
    model = build(settings, dropout=0.0)
    torch.manual_seed(1)
    found = trained(model, settings)
    torch.manual_seed(1)
    with kernels.disabled():
        expected = trained(model, settings)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("settings", ALL)
def test_the_loss_falls_on_a_toy(settings: dict[str, Any]) -> None:
    """Copying for writers; which token comes first, for readers."""
    model = build(settings, dropout=0.0, model_dim=44).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    ids_BS = torch.randint(4, 11, (32, 5), generator=torch.Generator().manual_seed(3))
    pictures_BCYX = torch.nn.functional.one_hot(ids_BS[:, :1] - 4, 36).float().view(32, 1, 6, 6)
    losses = []
    for _ in range(60):
        if settings.get("head") == "classification":
            logits = model.logits(model(pictures_BCYX if "image_size" in settings else ids_BS))
            truth = ids_BS[:, 0] - 4
        elif settings.get("family") == "decoder":
            logits, truth = model.logits(model(ids_BS[:, :-1])), ids_BS[:, 1:]
        else:
            logits, truth = (
                model.logits(model(ids_BS, torch.cat((ids_BS[:, :1] * 0 + START, ids_BS[:, :-1]), 1))),
                ids_BS,
            )
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), truth.flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert min(losses[-5:]) < 0.6 * losses[0]
