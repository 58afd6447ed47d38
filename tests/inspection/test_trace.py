"""Traces of every family and every hypothesis, compared with the results of the fast kernels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.api import Model
from clearhead.data.readers.pairs import Pair
from clearhead.errors import ClearheadError
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.trace_input import image_input, text_input
from clearhead.inspection.trace.trace_types import Trace
from tests.inspection.small_models import (
    GENERATORS,
    IMAGE_MODELS,
    TEXT,
    TEXT_MODELS,
    WITHOUT_ATTENTION,
    small_model,
    text_for,
    tokenizer,
    trace_model,
    write_image,
)
from tests.model.options import padded_layout


def traced(name: str, folder: Path, **options: Any) -> Trace:
    """Trace a small model on its input."""
    return trace_model(small_model(name), name, folder, **options)


@pytest.mark.parametrize("name", TEXT_MODELS | IMAGE_MODELS)
def test_rows_are_probabilities_over_allowed_keys(name: str, tmp_path: Path) -> None:
    trace = traced(name, tmp_path)
    assert bool(trace.attention) is (name not in WITHOUT_ATTENTION)
    for attention in trace.attention:
        assert attention.weights_HTS.shape[1:] == (
            len(trace.query_positions(attention.kind)),
            len(trace.key_positions(attention.kind)),
        )
        np.testing.assert_allclose(attention.weights_HTS.sum(-1), 1, atol=1e-5)
        assert (attention.weights_HTS[:, ~attention.allowed_TS] == 0).all() and (
            attention.weights_HTS[:, attention.allowed_TS] > 0
        ).all()
        positions = np.arange(len(attention.allowed_TS))
        expected_TS = (
            positions[:, None] >= positions if attention.kind == "decoder" else np.ones_like(attention.allowed_TS)
        )
        np.testing.assert_array_equal(attention.allowed_TS, expected_TS)


@pytest.mark.parametrize("name", GENERATORS)
def test_every_hypothesis_has_the_numbers_of_the_fast_kernel(name: str, tmp_path: Path) -> None:
    """Log-probabilities equal those of the search, which decodes step by step with a KV cache and in a batch."""
    model = small_model(name)
    first = traced(name, tmp_path, beam_size=3)
    assert len(first.hypotheses) >= 3 and first.hypothesis_index == 0
    for number, hypothesis in enumerate(first.hypotheses):
        trace = traced(name, tmp_path, beam_size=3, hypothesis=number)
        assert trace.hypotheses == first.hypotheses and trace.hypothesis_index == number
        np.testing.assert_allclose(
            trace.token_log_probs[trace.prompt_length :], hypothesis.token_log_probs, atol=1e-5, rtol=0
        )
        assert trace.log_prob == pytest.approx(hypothesis.log_prob, abs=1e-4)
        with torch.inference_mode():
            check_against_kernels(model, trace, tmp_path)


def check_against_kernels(model: Model, trace: Trace, folder: Path) -> None:
    """Compare a trace with a forced step of the fast kernel, and with a step that returns the attention weights."""
    is_image = model.config.model.reads_images
    trace_input = image_input(model, write_image(folder)) if is_image else text_input(model, trace.source_text)
    network = model.network
    tokens_RT = torch.tensor([[position.token for position in trace.inputs]])
    first_RT, state = network.start(network.encode(trace_input.src), 1)
    assert tokens_RT[:, : first_RT.shape[1]].equal(first_RT)
    fast, with_weights = network.step(tokens_RT, state), network.step(tokens_RT, state, want_attention=True)
    np.testing.assert_allclose(trace.logits_TV, fast.logits_RTV[0].numpy(), atol=1e-5, rtol=0)
    for kind, field in (("decoder", "self_RHTP"), ("cross", "cross_RHTS")):
        expected = [getattr(layer, field)[0].numpy() for layer in with_weights.attention if hasattr(layer, field)]
        traced_weights = [attention.weights_HTS for attention in trace.attention if attention.kind == kind]
        assert len(traced_weights) == len(expected)
        for weights_HTS, expected_HTS in zip(traced_weights, expected, strict=True):
            np.testing.assert_allclose(weights_HTS, expected_HTS, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name in TEXT_MODELS | IMAGE_MODELS if name not in GENERATORS])
def test_models_without_a_decoder_have_the_attention_of_their_backbone(name: str, tmp_path: Path) -> None:
    model, trace = small_model(name), traced(name, tmp_path)
    trace_input = (
        image_input(model, write_image(tmp_path)) if name in IMAGE_MODELS else text_input(model, trace.source_text)
    )
    with torch.inference_mode():
        attention = model.network.backbone(trace_input.src, want_attention=True).attention
        expected = model.network.logits(model.network(trace_input.src))[0].view(trace.logits_TV.shape)
    np.testing.assert_allclose(trace.logits_TV, expected.numpy(), atol=1e-5, rtol=0)
    assert len(trace.attention) == len(attention)
    for traced_attention, weights_BHSS in zip(trace.attention, attention, strict=True):
        assert traced_attention.kind == "encoder"
        np.testing.assert_allclose(traced_attention.weights_HTS, weights_BHSS[0].numpy(), atol=1e-5, rtol=0)
    for candidates, log_prob in zip(trace.candidates, trace.token_log_probs, strict=True):
        assert candidates[0].log_prob == pytest.approx(log_prob) and len(candidates) > 1


def test_encoder_attention_of_a_translator() -> None:
    model, trace = small_model("transformer"), small_model("transformer").trace(TEXT)
    src_NS = torch.tensor([[position.token for position in trace.source]])
    layout = padded_layout(src_NS.shape[1])
    with torch.inference_mode():
        _, weights = model.network.encoder(model.network.source_embedding(src_NS, layout), layout, want_weights=True)
    assert len(weights) == 3
    for attention, weights_BHSS in zip(trace.layers("encoder"), weights, strict=True):
        np.testing.assert_allclose(attention.weights_HTS, weights_BHSS[0].numpy(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [*TEXT_MODELS, *IMAGE_MODELS])
def test_weights_follow_from_queries_and_keys(name: str, tmp_path: Path) -> None:
    trace = traced(name, tmp_path, arithmetic=True)
    for attention in trace.attention:
        arithmetic = attention.arithmetic
        assert arithmetic is not None
        if arithmetic.scale is None:
            continue
        scores_HTS = np.einsum("htk,hsk->hts", arithmetic.q_HTK, arithmetic.k_HSK) * arithmetic.scale
        scores_HTS += 0 if arithmetic.bias_HTS is None else arithmetic.bias_HTS
        powers_HTS = np.exp(np.where(attention.allowed_TS, scores_HTS, -np.inf))
        np.testing.assert_allclose(attention.weights_HTS, powers_HTS / powers_HTS.sum(-1, keepdims=True), atol=1e-5)


def test_residual_streams_end_in_the_logits() -> None:
    """In a pre-norm model, final norm and output projection of the last residual stream give the logits."""
    model, trace = small_model("transformer"), small_model("transformer").trace(TEXT)
    names = [
        (stream.name, stream.layer)
        for stream in trace.residual_streams
        if stream.name.startswith("decoder") or stream.name == "cross"
    ]
    assert names == [("decoder", -1)] + [(name, layer) for layer in (0, 1) for name in
                                         ("decoder", "cross", "decoder_feed_forward")]  # fmt: skip
    assert sum(stream.name.startswith("encoder") for stream in trace.residual_streams) == 1 + 2 * 3
    last_TD = torch.from_numpy(trace.residual_streams[-1].states_TD)
    with torch.inference_mode():
        logits_TV = model.network.logits(model.network.decoder.norm(last_TD))
    np.testing.assert_allclose(trace.logits_TV, logits_TV.numpy(), atol=1e-5, rtol=0)


def test_tracing_leaves_no_hook_and_copies_no_weight() -> None:
    network = small_model("transformer").network
    small_model("transformer").trace(TEXT)
    for module in network.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    for weight, shared_weight in zip(network.parameters(), share_weights(network).parameters(), strict=True):
        assert weight is shared_weight


def test_the_tree_contains_every_hypothesis() -> None:
    model = small_model("transformer")
    trace = model.trace(TEXT, beam_size=3)
    outcomes = {node.candidate.outcome for node in trace.tree}
    assert outcomes & {"finished", "length"} and "outside_beam" in outcomes and "kept" in outcomes
    paths = {trace.path(node.candidate.node): node for node in trace.tree
             if node.candidate.outcome in ("finished", "length")}  # fmt: skip
    for hypothesis in trace.hypotheses:
        end = (model.tokenizer.eos_id,) * (hypothesis.finish_reason == "end")
        assert paths[hypothesis.tokens + end].candidate.total == pytest.approx(hypothesis.log_prob)
    pruned = next(
        node for node in trace.tree if node.candidate.outcome == "outside_beam" and node.candidate.position == 2
    )
    opened = model.trace(TEXT, tokens=trace.path(pruned.candidate.node))
    assert opened.log_prob == pytest.approx(pruned.candidate.total, abs=1e-5)
    assert opened.outputs[-1].text == pruned.text and not opened.tree


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_offsets_point_into_the_texts(name: str) -> None:
    trace = small_model(name).trace(text_for(name))
    for positions, text in ((trace.source, trace.source_text), (trace.inputs, trace.target_text)):
        covered_texts = [
            (position, text[position.start : position.end]) for position in positions if position.start is not None
        ]
        assert [position for position, _ in covered_texts] == [
            position for position in positions if not position.is_special
        ]
        for position, covered_text in covered_texts:
            if position.text in ("<mask>",):
                assert covered_text == "[MASK]"
            elif "<0x" not in position.text:
                assert covered_text == position.text.replace("▁", "").strip(), position


def test_a_forced_target_is_followed_by_the_end_token() -> None:
    model = small_model("transformer")
    trace = model.trace(TEXT, target="The dog eats.")
    assert trace.target_text == "The dog eats." and trace.outputs[-1].text == "</s>"
    text, positions = trace.target_text, trace.outputs[:-1]
    assert [text[position.start : position.end] for position in positions] == [
        position.text.lstrip("▁") for position in positions
    ]
    assert [position.start for position in positions][:2] == [0, 4] and trace.outputs[-1].start is None
    assert [position.word for position in trace.outputs] == [*tokenizer("translate").word_indices(trace.output_ids)]
    assert [position.text for position in model.trace(TEXT, target="").outputs] == ["</s>"]
    assert [position.text for position in trace.inputs] == ["<s>", *(position.text for position in trace.outputs[:-1])]
    expected = model.score([Pair(TEXT, "The dog eats.", 1)])[0]
    np.testing.assert_allclose(trace.token_log_probs, expected.token_log_probs, atol=1e-5)


def test_a_prompt_is_part_of_the_outputs() -> None:
    trace = small_model("decoder").trace("The old dog", target=" eats")
    assert trace.source == () and trace.target_text.startswith("The old dog")
    assert trace.prompt_length == len(trace.inputs) - len(trace.outputs[trace.prompt_length :])
    assert trace.kinds == ("decoder",)


def test_images_have_a_patch_grid(tmp_path: Path) -> None:
    patches = traced("patches", tmp_path)
    assert patches.grid is not None and (patches.grid.rows, patches.grid.has_class_token) == (3, True)
    assert [position.text for position in patches.source[:5]] == ["class", "0,0", "0,1", "0,2", "1,0"]
    captions = traced("captions", tmp_path)
    assert captions.grid is not None and not captions.grid.has_class_token and len(captions.source) == 9
    assert traced("convolutional", tmp_path).grid is None


@pytest.mark.parametrize("name", TEXT_MODELS | IMAGE_MODELS)
def test_json_contains_the_selected_attention(name: str, tmp_path: Path) -> None:
    trace = traced(name, tmp_path, arithmetic=True)
    record = json.loads(json.dumps(trace.to_json(residual_streams=True, logits=True), allow_nan=False))
    assert len(record["attention"]) == len(trace.attention) and len(record["residual_streams"]) == len(
        trace.residual_streams
    )
    if name == "transformer":
        selected = trace.to_json(["cross"], layers=[1], heads=[1])["attention"]
        assert [(record["kind"], record["layer"], record["heads"]) for record in selected] == [("cross", 1, [1])]
        np.testing.assert_allclose(selected[0]["weights"][0], trace.weights("cross", 1, 1), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("transformer", {"text": " "}, "expected a text"),
        ("transformer", {"text": "dog " * 10_000}, "tokens, the model accepts 63"),
        ("transformer", {"text": TEXT, "target": "dog " * 100}, "the model accepts 64"),
        ("transformer", {"text": TEXT, "hypothesis": 9}, "hypotheses of the search, counted from 0; got 9"),
        ("transformer", {"text": TEXT, "tokens": [10**6]}, "expected one or more tokens"),
        ("encoder for labels", {"text": TEXT, "target": "no label"}, "one of the labels animal"),
        ("encoder for tags", {"text": TEXT, "target": "O"}, "accepts no target"),
        ("patches", {"text": TEXT}, "reads images"),
    ],
)
def test_invalid_inputs_are_rejected(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ClearheadError, match=message):
        small_model(name).trace(**arguments)


@pytest.mark.parametrize("kind_layer_head", [("encode", 0, 0), ("cross", 2, 0), ("cross", 0, 2), ("cross", -1, 0)])
def test_missing_heads_are_rejected(kind_layer_head: tuple[Any, int, int]) -> None:
    trace = small_model("transformer").trace(TEXT, target="dog")
    with pytest.raises(
        ClearheadError, match=r"expected a (kind of attention that|layer of cross from|head of cross layer 0 from)"
    ):
        trace.weights(*kind_layer_head)
    with pytest.raises(ClearheadError, match=r"expected a head that .*, got 7"):
        trace.to_json(heads=[7])


@pytest.mark.parametrize("text", ["🙂 dog", "שלום עולם", "<script>alert(1)</script>", "e\u0301 dog"])
def test_texts_of_any_script_are_traced(text: str) -> None:
    trace = small_model("transformer").trace(text)
    covered = {
        at for position in trace.source if position.start is not None for at in range(position.start, position.end or 0)
    }
    assert {at for at, char in enumerate(text) if not char.isspace()} <= covered
