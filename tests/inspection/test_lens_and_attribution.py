"""The logit lens, compared with networks with fewer layers, and attribution, compared with finite differences."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.inspection.analyses.attribution import gradient_times_input, leave_one_out
from clearhead.inspection.analyses.logit_lens import logit_lens
from clearhead.inspection.trace.forced_pass import output_log_probs
from clearhead.inspection.trace.sublayers import find_stacks
from clearhead.inspection.trace.trace_input import read_input
from clearhead.model.embedding import TokenEmbedding
from tests.inspection.small_models import (
    IMAGE_MODELS,
    TEXT,
    TEXT_MODELS,
    WITHOUT_ATTENTION,
    small_model,
    text_for,
    trace_model,
)

HAS_LAYERS = [
    name for name in [*TEXT_MODELS, *IMAGE_MODELS] if name not in WITHOUT_ATTENTION and not name.startswith("lstm")
]


@pytest.mark.parametrize("name", HAS_LAYERS)
def test_the_lens_equals_a_network_with_fewer_layers(name: str, tmp_path: Path) -> None:
    model = small_model(name)
    trace = trace_model(model, name, tmp_path)
    lenses = logit_lens(model, trace)
    stack = find_stacks(model.network)[-1]
    assert [lens.layer for lens in lenses] == list(range(-1, len(stack.layers)))
    np.testing.assert_allclose(lenses[-1].token_log_probs, trace.token_log_probs, atol=1e-5)
    assert [candidates[0].token for candidates in lenses[-1].candidates] == [
        candidates[0].token for candidates in trace.candidates
    ]
    short = copy.deepcopy(model.network)
    find_stacks(short)[-1].layers = nn.ModuleList(list(find_stacks(short)[-1].layers)[:1])
    expected = trace_model(model.with_network(short), name, tmp_path, tokens=trace.output_ids)
    np.testing.assert_allclose(lenses[1].token_log_probs, expected.token_log_probs, atol=1e-5)
    assert lenses[1].candidates[0][0].log_prob == pytest.approx(expected.candidates[0][0].log_prob, abs=1e-5)


def test_a_network_without_layers_has_no_lens() -> None:
    model = small_model("lstm, dot")
    with pytest.raises(ClearheadError, match="needs a stack"):
        logit_lens(model, model.trace(TEXT))


@pytest.mark.parametrize("name", ["transformer", "T5", "decoder", "encoder for labels", "encoder for tags",
                                  "lstm, additive", "gru without attention"])  # fmt: skip
def test_gradient_times_input_is_the_slope_towards_zero(name: str) -> None:
    """The reference is a finite difference in double precision, of an embedding scaled slightly up and down."""
    model = small_model(name)
    trace = model.trace(text_for(name))
    attribution = gradient_times_input(model, trace)
    trace_input = read_input(model, text_for(name))
    tables = [attribution.source_TS, attribution.inputs_TI]
    assert [table is None for table in tables] == [not trace.source, not trace.inputs]
    calls = [table for table in tables if table is not None]
    double = copy.deepcopy(model.network).double()
    for call_index, table_TS in enumerate(calls):
        position = 3
        scaled = [scaled_at(double, call_index, position, factor) for factor in (1 + 1e-6, 1 - 1e-6)]
        ends = [output_log_probs(network, trace_input.src, trace.output_ids).detach().numpy() for network in scaled]
        slope_T = (ends[0] - ends[1]) / 2e-6
        assert np.abs(slope_T).max() > 1e-4
        np.testing.assert_allclose(table_TS[trace.prompt_length :, position], slope_T, atol=2e-5)
        if call_index == len(calls) - 1 and trace.inputs:  # later positions have no effect
            assert not table_TS[0, 1:].any() and table_TS[0, 0]


def scaled_at(network: Any, call_index: int, position: int, factor: float) -> Any:
    """Return the network with one embedding scaled: of the source in call 0, of the decoder inputs in call 1."""
    copied, calls = copy.deepcopy(network), []

    def scale(_: nn.Module, args: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) - 1 == call_index:
            embedded = embedded.clone()
            embedded[:, position] *= factor
        return embedded

    for module in copied.modules():
        if isinstance(module, TokenEmbedding):
            module.register_forward_hook(scale)
    return copied


def test_gradients_of_images_have_one_value_per_patch(tmp_path: Path) -> None:
    for name, source, inputs in (("patches", 10, None), ("captions", 9, "some")):
        trace = trace_model(small_model(name), name, tmp_path)
        attribution = gradient_times_input(small_model(name), trace)
        assert attribution.source_TS is not None and attribution.source_TS.shape == (len(trace.outputs), source)
        assert np.isfinite(attribution.source_TS).all() and attribution.source_TS[:, 1:].any()
        assert (attribution.inputs_TI is None) is (inputs is None)
        assert name != "patches" or not attribution.source_TS[:, 0].any()
    with pytest.raises(ClearheadError, match="needs embeddings"):
        gradient_times_input(
            small_model("convolutional"), trace_model(small_model("convolutional"), "convolutional", tmp_path)
        )


@pytest.mark.parametrize("name", ["transformer", "lstm, additive", "gru without attention", "encoder for labels",
                                  "decoder"])  # fmt: skip
def test_leaving_out_a_word_removes_it_from_the_text(name: str) -> None:
    model = small_model(name)
    trace = model.trace(TEXT)
    result = leave_one_out(model, trace)
    assert result.texts == ("The", "old", "dog", "eats", "the", "grass", "in", "the", "house", ".")
    assert result.losses_UT.shape == (10, len(trace.output_ids))
    shorter = model.trace(TEXT.replace(" dog", ""), tokens=trace.output_ids)
    expected = np.array(trace.token_log_probs[trace.prompt_length :]) - shorter.token_log_probs[shorter.prompt_length :]
    np.testing.assert_allclose(result.losses_UT[2], expected, atol=1e-5)
    assert np.abs(expected).max() > 1e-5


def test_leaving_out_with_one_output_per_position() -> None:
    model = small_model("encoder for tags")
    trace = model.trace(TEXT)
    result = leave_one_out(model, trace)
    removed = [number for number, position in enumerate(trace.source) if position.word == 2]
    remaining = [number for number in range(len(trace.source)) if number not in removed]
    assert not result.losses_UT[2, removed].any() and result.losses_UT[2, remaining].all()
    shorter = model.trace(TEXT.replace(" dog", ""), tokens=[trace.output_ids[number] for number in remaining])
    expected = np.array(trace.token_log_probs)[remaining] - shorter.token_log_probs
    np.testing.assert_allclose(result.losses_UT[2, remaining], expected, atol=1e-5)


def test_leaving_out_a_patch_makes_it_grey(tmp_path: Path) -> None:
    model = small_model("patches")
    trace = trace_model(model, "patches", tmp_path)
    result = leave_one_out(model, trace)
    assert result.texts[5] == "1,2" and result.units[5] == (6,) and result.losses_UT.shape == (9, 1)
    src = read_input(model, trace.source_text).src.clone()
    src[0, 0, 2:4, 4:6] = 0
    with torch.inference_mode():
        expected = model.network.logits(model.network(src)).double().log_softmax(-1)[0, trace.output_ids[0]]
    assert result.losses_UT[5, 0] == pytest.approx(trace.log_prob - float(expected), abs=1e-6)
    with pytest.raises(ClearheadError, match="needs words or patches"):
        leave_one_out(
            small_model("convolutional"), trace_model(small_model("convolutional"), "convolutional", tmp_path)
        )
