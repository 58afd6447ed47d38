"""Contract of every family: one test per property, one row per network.

R rows, B batch, N sequences, S source length, T tokens, D model width, V vocabulary, L labels
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead import bundle, kernels
from clearhead.bundle.writer import save as save_bundle
from clearhead.config import ModelConfig
from clearhead.inspection.trace.activation_recorder import ActivationRecorder
from clearhead.inspection.trace.sublayers import find_heads, find_stacks, find_sublayers
from clearhead.model.parameters import restore, snapshot
from clearhead.model.registry import build_model
from tests.model.contract_networks import (
    ALL,
    CAPTIONING,
    ENCODER_HEADS,
    ENCODERS,
    END,
    GENERATORS,
    IMAGE_ENCODERS,
    PAD,
    SMALL,
    START,
    V,
    build,
    source,
)

# Evaluation runs the same code with kernels and without, except for additive attention; training does not.
MODES = ["inference", "training", "training in plain torch"]


def each_in_every_mode(networks: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (network, mode); batch norm in training depends on padding and on later tokens."""
    has_batch_norm = {name: settings.get("norm") == "batch" for name, settings in networks.items()}
    return [(name, mode) for name in networks for mode in MODES if mode == "inference" or not has_batch_norm[name]]


@contextmanager
def run_in(mode: str, model: Any) -> Iterator[None]:
    """Run the model in this mode inside the block; in training it has gradients."""
    model.train(mode != "inference")
    in_plain_torch = kernels.disabled() if mode == "training in plain torch" else nullcontext()
    with torch.inference_mode(mode == "inference"), in_plain_torch:
        yield


def input_of(name: str) -> Tensor:
    """Return the input of a generator: sources, or for a decoder-only model prompts of one length."""
    return torch.randint(4, V, (3, 4)) if name == "decoder" else source()


def decode(model: Any, src: Tensor, tokens_RT: Tensor, width: int = 1) -> Tensor:
    """Return logits_RTV after each of the tokens, computed one step at a time."""
    first_RT, state = model.start(model.encode(src), width)
    logits = []
    step = model.step(first_RT, state)
    for position in range(tokens_RT.shape[1]):
        logits.append(step.logits_RTV[:, -1])
        step = model.step(tokens_RT[:, position : position + 1], step.state)
    return torch.stack([*logits, step.logits_RTV[:, -1]], 1)


@pytest.mark.parametrize("name", GENERATORS)
def test_step_by_step_equals_all_at_once(name: str) -> None:
    model, src = build(GENERATORS[name]), input_of(name)
    tokens_RT = torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        stepped_RTV = decode(model, src, tokens_RT)
        if name == "decoder":
            whole_RTV = model.logits(model(torch.cat((src, tokens_RT), 1)))[:, src.shape[1] - 1 :]
        else:
            whole_RTV = model.logits(model(src, torch.cat((torch.full((3, 1), START), tokens_RT), 1)))
    assert stepped_RTV.shape == (3, 6, V)
    torch.testing.assert_close(stepped_RTV, whole_RTV, atol=1e-5, rtol=1e-5)


SEQ2SEQ = {name: settings for name, settings in GENERATORS.items() if name != "decoder"}


@pytest.mark.parametrize(("name", "mode"), each_in_every_mode(SEQ2SEQ))
def test_more_padding_changes_nothing(name: str, mode: str) -> None:
    model, src = build(SEQ2SEQ[name], dropout=0.0), source()
    padded = F.pad(src, (0, 4), value=PAD)
    tokens_RT = torch.randint(4, V, (3, 5))
    with run_in(mode, model):
        hidden_RTD = model(src, tokens_RT)
        torch.testing.assert_close(hidden_RTD, model(padded, tokens_RT), atol=1e-5, rtol=1e-5)
        alone = model(src[2:, :5], tokens_RT[2:])
        torch.testing.assert_close(hidden_RTD[2:], alone, atol=1e-5, rtol=1e-5)
    assert hidden_RTD.requires_grad is (mode != "inference")


@pytest.mark.parametrize(("name", "mode"), each_in_every_mode(GENERATORS))
def test_the_future_does_not_touch_the_past(name: str, mode: str) -> None:
    model, src = build(GENERATORS[name], dropout=0.0), input_of(name)
    tokens_RT = torch.randint(4, V, (3, 6))
    changed_RT = tokens_RT.clone()
    changed_RT[:, 4:] = 4 + (changed_RT[:, 4:] - 3) % (V - 4)

    def run(tokens: Tensor) -> Any:
        return model(tokens) if name == "decoder" else model(src, tokens)

    with run_in(mode, model):
        before, after = run(tokens_RT), run(changed_RT)
    torch.testing.assert_close(before[:, :4], after[:, :4], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


@pytest.mark.parametrize("name", GENERATORS)
def test_attention_weights_are_probabilities(name: str) -> None:
    model, src = build(GENERATORS[name]), input_of(name)
    with torch.inference_mode():
        first_RT, state = model.start(model.encode(src), 1)
        step = model.step(torch.cat((first_RT, torch.randint(4, V, (3, 3))), 1), state, want_attention=True)
        baseline = model.step(torch.cat((first_RT, torch.full((3, 3), 4)), 1), state)
    assert baseline.attention is None
    has_none = GENERATORS[name].get("attention") == "none"
    assert bool(step.attention) is not has_none
    for weights in step.attention:
        for kind in ("self_RHTP", "cross_RHTS"):
            if hasattr(weights, kind):
                rows = getattr(weights, kind)
                torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]), atol=1e-5, rtol=0)
                if kind == "cross_RHTS":
                    assert not rows[(src == PAD)[:, None, None].expand_as(rows)].any()


@pytest.mark.parametrize("name", GENERATORS)
def test_rows_can_be_selected_and_reordered(name: str) -> None:
    model, src = build(GENERATORS[name]), input_of(name)
    width = 2
    tokens_R1 = torch.randint(4, V, (3 * width, 1))
    rows_R = torch.tensor([1, 0, 5, 5])  # of the first and the last sentence; the second one is finished
    with torch.inference_mode():
        first_RT, state = model.start(model.encode(src), width)
        state = model.step(tokens_R1, model.step(first_RT, state).state).state
        everything = model.step(tokens_R1, state).logits_RTV
        chosen = model.step(tokens_R1[rows_R], model.reorder(state, rows_R)).logits_RTV
    torch.testing.assert_close(chosen, everything[rows_R], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", GENERATORS)
def test_one_row_per_sentence_can_become_several(name: str) -> None:
    """A prefix that all rows of a sentence share is decoded once."""
    model, src, width = build(GENERATORS[name]), input_of(name), 3
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


@pytest.mark.parametrize(("name", "mode"), each_in_every_mode(ENCODER_HEADS))
def test_encoders_ignore_padding_and_other_sequences(name: str, mode: str) -> None:
    settings = ENCODER_HEADS[name]
    model, ids_BS = build(settings, dropout=0.0), source()
    padded_BS = F.pad(ids_BS, (0, 3), value=PAD)

    def run(ids: Tensor) -> Tensor:
        result: Tensor = model.logits(model(ids, ids == END) if settings["head"] == "masked_lm" else model(ids))
        return result[:, :4] if settings["head"] == "token_classification" else result

    with run_in(mode, model):
        whole = run(ids_BS)
        torch.testing.assert_close(whole, run(padded_BS), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(whole[2:], run(ids_BS[2:, :5]), atol=1e-5, rtol=1e-5)
        attention = model.backbone(ids_BS, want_attention=True).attention
    assert whole.requires_grad is (mode != "inference")
    assert len(attention) == (2 if settings["family"] == "encoder" else 0)
    for weights_BHSS in attention:
        torch.testing.assert_close(weights_BHSS.sum(-1), torch.ones(3, 2, 7), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_image_encoders_keep_the_contract(name: str) -> None:
    model = build(IMAGE_ENCODERS[name], head="classification", num_labels=7)
    images_BCYX = torch.randn(5, 1, 6, 6)
    with torch.inference_mode():
        logits_BL = model.logits(model(images_BCYX))
        torch.testing.assert_close(logits_BL[3:4], model.logits(model(images_BCYX[3:4])), atol=1e-5, rtol=1e-5)
        output = model.backbone(images_BCYX, want_attention=True)
    assert logits_BL.shape == (5, 7) and output.states_BSD.shape[2] == model.backbone.width
    assert len(output.attention) == (2 if name == "patches" else 0)
    for weights_BHSS in output.attention:
        torch.testing.assert_close(weights_BHSS.sum(-1), torch.ones(5, 2, 10), atol=1e-5, rtol=0)


def test_captioning_step_by_step_equals_all_at_once() -> None:
    model = build(CAPTIONING)
    images_NCYX, tokens_RT = torch.randn(3, 1, 6, 6), torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        stepped_RTV = decode(model, images_NCYX, tokens_RT)
        whole_RTV = model.logits(model(images_NCYX, torch.cat((torch.full((3, 1), START), tokens_RT), 1)))
    torch.testing.assert_close(stepped_RTV, whole_RTV, atol=1e-5, rtol=1e-5)


def check_probabilities(recorder: ActivationRecorder, settings: dict[str, Any]) -> None:
    """Check that rows sum to 1 over the keys that are allowed, and are 0 at all others."""
    assert bool(recorder.attention) is bool(find_heads(recorder.network))
    has_none = settings.get("attention") == "none" or settings.get("family") in ("cnn", "mlp")
    is_recurrent_encoder = "head" in settings and settings["family"] in ("rnn", "gru", "lstm")
    assert bool(recorder.attention) is not (has_none or is_recurrent_encoder)
    for record in recorder.attention:
        assert ((record.weights_BHTS > 0) == record.allowed_BHTS).all()
        torch.testing.assert_close(
            record.weights_BHTS.sum(-1), torch.ones(record.weights_BHTS.shape[:-1]), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_can_be_recorded(name: str) -> None:
    """In a batch with padding: recording changes no logits, and the weights are those of `want_attention`."""
    model, src = build(GENERATORS[name]), input_of(name)
    recorder = ActivationRecorder(model)
    tokens_RT = torch.randint(4, V, (3, 5))
    with torch.inference_mode():
        steps = []
        hooked: Any = recorder.network
        for network, want in ((hooked, False), (model, False), (model, True)):
            first_RT, state = network.start(network.encode(src), 1)
            steps.append(network.step(torch.cat((first_RT, tokens_RT), 1), state, want_attention=want))
    check_probabilities(recorder, GENERATORS[name])
    torch.testing.assert_close(steps[0].logits_RTV, steps[1].logits_RTV, atol=1e-5, rtol=1e-5)
    for kind, field in (("decoder", "self_RHTP"), ("cross", "cross_RHTS")):
        returned_weights = [getattr(record, field) for record in steps[2].attention if hasattr(record, field)]
        recorded = [record.weights_BHTS for record in recorder.attention if record.name == kind]
        assert len(recorded) == len(returned_weights)
        for record, returned in zip(recorded, returned_weights, strict=True):
            torch.testing.assert_close(record, returned, atol=1e-5, rtol=0)
    num_streams = len([record for record in find_sublayers(model) if record.residual is not None]) + len(
        find_stacks(model)
    )
    assert len(recorder.residual_streams) == num_streams


def test_a_captioning_transformer_can_be_recorded() -> None:
    recorder = ActivationRecorder(build(CAPTIONING))
    with torch.inference_mode():
        first_RT, state = recorder.network.start(recorder.network.encode(torch.randn(3, 1, 6, 6)), 1)  # type: ignore[operator]
        recorder.network.step(first_RT, state)  # type: ignore[operator]
    check_probabilities(recorder, CAPTIONING)
    assert [record.name for record in recorder.attention] == ["encoder"] * 2 + ["decoder", "cross"] * 2
    assert [record.weights_BHTS.shape[2:] for record in recorder.attention[2:4]] == [(1, 1), (1, 4)]


@pytest.mark.parametrize("name", ENCODERS | IMAGE_ENCODERS)
def test_every_encoder_can_be_recorded(name: str) -> None:
    settings = {**(ENCODERS | IMAGE_ENCODERS)[name], "head": "classification", "num_labels": 7}
    model, inputs = build(settings), torch.randn(3, 1, 6, 6) if name in IMAGE_ENCODERS else source()
    recorder = ActivationRecorder(model)
    with torch.inference_mode():
        torch.testing.assert_close(recorder.network(inputs), model(inputs), atol=1e-5, rtol=0)
        returned_weights = model.backbone(inputs, want_attention=True).attention
    check_probabilities(recorder, settings)
    assert len(returned_weights) == len(recorder.attention)
    for record, weights_BHSS in zip(recorder.attention, returned_weights, strict=True):
        torch.testing.assert_close(record.weights_BHTS, weights_BHSS, atol=1e-5, rtol=0)


EMPTY: dict[str, Any] = {"config": {}, "tokenizer": "null", "weights_kind": "last", "data": {}, "training": {}}


@pytest.mark.parametrize("name", ALL)
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path: Path) -> None:
    model = build(ALL[name])
    save_bundle(tmp_path / "model", weights=snapshot(model), **EMPTY)
    other = build_model(ModelConfig(**{**SMALL, **ALL[name]})).eval()
    restore(other, bundle.load(tmp_path / "model").tensors())
    for (key, one), (_, two) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(one, two), key
