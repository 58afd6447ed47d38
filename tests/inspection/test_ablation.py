"""Ablation, compared with weights that are set to zero, and head importance, compared with finite differences."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.data.readers.pairs import Pair
from clearhead.errors import ClearheadError
from clearhead.inspection.analyses.ablation import ablation_effect
from clearhead.inspection.analyses.head_importance import head_importance
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.sublayers import find_heads, find_sublayers
from tests.inspection.small_models import (
    IMAGE_MODELS,
    TEXT,
    TEXT_MODELS,
    WITHOUT_ATTENTION,
    small_model,
    trace_model,
)
from tests.trained_model import Trained


def scale_output(network: Any, head_ref: HeadRef, factor: float = 0.0) -> Any:
    """Return a copy of the network in which the output of a head or sub-layer is multiplied by `factor`.

    The factor is applied to the columns of the output projection, or to the last layer of the sub-layer.
    """
    copied = copy.deepcopy(network)
    module: Any = next(
        sublayer.module
        for sublayer in find_sublayers(copied)
        if (sublayer.name, sublayer.layer) == (head_ref.name, head_ref.layer)
    )
    with torch.no_grad():
        if head_ref.head is not None:
            module.output.weight[:, head_ref.head * module.value_dim : (head_ref.head + 1) * module.value_dim] *= factor
        else:
            last = module.output if hasattr(module, "output") else module.w2
            for parameter in last.parameters():
                parameter *= factor
    return copied


HEAD_REFS = ["encoder.2.1", "encoder.0", "encoder_feed_forward.1", "decoder.1.0", "cross.0.1", "cross.1", "decoder.0",
         "decoder_feed_forward.1"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "head_ref"),
    [("transformer", head_ref) for head_ref in HEAD_REFS]
    + [("d_k and d_v", "cross.1.1"), ("T5", "decoder.1.1"), ("decoder", "decoder.1.1"), ("patches", "encoder.1.0")]
    + [("encoder for tags", "encoder.2.1"), ("encoder for masks", "encoder.0"), ("captions", "cross.1.1")],
)
def test_ablation_is_weights_set_to_zero(name: str, head_ref: str, tmp_path: Path) -> None:
    model = small_model(name)
    before = trace_model(model, name, tmp_path).logits_TV
    ablated = model.with_ablated([head_ref])
    expected = trace_model(
        model.with_network(scale_output(model.network, HeadRef.parse(head_ref))), name, tmp_path
    ).logits_TV
    logits_TV = trace_model(ablated, name, tmp_path).logits_TV
    assert logits_TV.shape == expected.shape
    np.testing.assert_allclose(logits_TV, expected, atol=1e-5, rtol=0)
    assert before.shape != logits_TV.shape or np.abs(before - logits_TV).max() > 1e-4
    np.testing.assert_array_equal(trace_model(model, name, tmp_path).logits_TV, before)  # the model itself is unchanged


def test_joint_and_successive_ablation_are_equal() -> None:
    model = small_model("transformer")
    at_once = model.with_ablated(["cross.0.1", HeadRef("encoder", 1, 0), "cross.0.1"])
    in_turn = model.with_ablated(["cross.0.1"]).with_ablated(["encoder.1.0"])
    np.testing.assert_allclose(at_once.trace(TEXT).logits_TV, in_turn.trace(TEXT).logits_TV, atol=1e-6)


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_a_recurrent_model_without_its_attention(kind: str) -> None:
    model = small_model(f"lstm, {kind}")
    ablated, outputs = model.with_ablated(["cross.0.0"]), model.trace(TEXT).output_ids
    copied = copy.deepcopy(model.network)
    with torch.no_grad():
        copied.feed_forward.weight[:, :22] = 0.0  # the columns of the context
    expected = model.with_network(copied).trace(TEXT, tokens=outputs).logits_TV
    np.testing.assert_allclose(ablated.trace(TEXT, tokens=outputs).logits_TV, expected, atol=1e-5)


def test_mean_ablation_uses_the_mean_output_of_a_head() -> None:
    """The mean of weights times values, from traces, is added to the bias of the output projection."""
    model, head_ref = small_model("transformer"), HeadRef("encoder", 1, 1)
    texts = [TEXT, "Look at the big cow there!"]
    head_outputs = []
    for text in texts:
        attention = model.trace(text, arithmetic=True).layers("encoder")[1]
        assert attention.arithmetic is not None
        head_outputs.append(attention.weights_HTS[1] @ attention.arithmetic.v_HSE[1])
    mean_E = torch.from_numpy(np.concatenate(head_outputs).mean(0))
    copied = scale_output(model.network, head_ref)
    projection = model.network.encoder.layers[1].self_attention.output
    with torch.no_grad():
        copied.encoder.layers[1].self_attention.output.bias += projection.weight[:, 11:22] @ mean_E
    expected = model.with_network(copied).trace(TEXT).logits_TV
    logits_TV = model.with_ablated([head_ref], method="mean", texts=texts).trace(TEXT).logits_TV
    np.testing.assert_allclose(logits_TV, expected, atol=1e-5)
    assert np.abs(logits_TV - model.with_ablated([head_ref]).trace(TEXT).logits_TV).max() > 1e-4


def test_all_methods_work_and_the_effect_is_the_difference_of_scores(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    ablated = model.with_ablated(["cross.0", "cross.1"])  # independent of its source
    source = "The small dog sees the old cat."
    before = model.trace(source, target="Der kleine Hund sieht die alte Katze.")
    effect = ablation_effect(model, ablated, before, model.config.decoding)
    assert effect.after.target_text == ablated.translate(source).text != model.translate(source).text
    pair = Pair(source, before.target_text, 1)
    complete_score, ablated_score = (scored_model.score([pair])[0] for scored_model in (model, ablated))
    assert complete_score.tokens == tuple(position.text for position in before.outputs[:-1])
    assert (
        effect.log_prob_change == pytest.approx(ablated_score.log_prob - complete_score.log_prob, abs=1e-4)
        and effect.log_prob_change < -0.1
    )
    np.testing.assert_allclose(
        effect.token_log_prob_changes,
        np.subtract(ablated_score.token_log_probs, complete_score.token_log_probs),
        atol=1e-4,
    )
    report = ablated.evaluate([pair])
    assert report.perplexity is not None and report.perplexity > (model.evaluate([pair]).perplexity or 0)
    assert ablated.translate_n_best([source], 2, ablated.config.decoding)[0][1].text
    assert effect.to_json()["before"] == before.target_text


@pytest.mark.parametrize("name", [name for name in [*TEXT_MODELS, *IMAGE_MODELS] if name not in WITHOUT_ATTENTION])
def test_heads_of_every_family_can_be_ablated(name: str, tmp_path: Path) -> None:
    model = small_model(name)
    ablated = model.with_ablated([find_heads(model.network)[-1]])
    trace = trace_model(model, name, tmp_path)
    effect = ablation_effect(model, ablated, trace, model.config.decoding)
    assert (
        len(effect.token_log_prob_changes) == len(trace.output_ids)
        and max(map(abs, effect.token_log_prob_changes)) > 1e-6
    )


@pytest.mark.parametrize(
    ("head_ref", "match"),
    [
        ("cross.9.0", "expected a layer of cross from 0 to 1, got 9"),
        ("cross.0.2", "expected a head of cross layer 0 from 0 to 1, got 2"),
        ("decoder_feed_forward.0.0", "has no heads"),
        ("middle.0.0", "which has encoder, encoder_feed_forward"),
        ("cross", "such as cross.1.0"),
        ("cross.a", "such as cross.1.0"),
    ],
)
def test_missing_heads_are_rejected(head_ref: str, match: str) -> None:
    with pytest.raises(ClearheadError, match=match):
        small_model("transformer").with_ablated([head_ref])


def test_ablation_without_heads_or_texts_is_rejected() -> None:
    with pytest.raises(ClearheadError, match="got none"):
        small_model("transformer").with_ablated([])
    with pytest.raises(ClearheadError, match="got none"):
        small_model("transformer").with_ablated(["cross.0.0"], method="mean")
    with pytest.raises(ClearheadError, match="no attention at all"):
        small_model("gru without attention").with_ablated(["cross.0.0"])


def test_importance_is_the_derivative_by_a_gate() -> None:
    """Differences of losses, in double precision, when the columns of a head are scaled slightly up and down."""
    model, corpus = small_model("transformer"), [(TEXT, "The dog eats."), ("Look at the big cow there!", "The cow.")]
    importances = {
        importance.head_ref: importance.value for importance in head_importance(model, corpus, model.config.decoding)
    }
    assert len(importances) == (3 + 2 + 2) * 2 and list(importances.values()) == sorted(
        importances.values(), reverse=True
    )
    tokens = sum(len(model.trace(text, target).output_ids) for text, target in corpus)
    for head_ref in (HeadRef("encoder", 0, 1), HeadRef("cross", 1, 0), HeadRef("decoder", 0, 0)):
        slopes = []
        for text, target in corpus:
            ends = [
                -model.with_network(scale_output(model.network.double(), head_ref, factor)).trace(text, target)
                .log_prob for factor in (1 + 1e-6, 1 - 1e-6)
            ]  # fmt: skip
            slopes.append(abs(ends[0] - ends[1]) / 2e-6)
        model.network.float()
        assert importances[head_ref] == pytest.approx(sum(slopes) / tokens, rel=1e-3)


def test_importance_by_ablation_is_the_lost_log_probability() -> None:
    model, corpus = small_model("transformer"), [(TEXT, "The dog eats."), (TEXT, None)]
    importances = head_importance(model, corpus, model.config.decoding, "ablation")
    head_ref = importances[0].head_ref
    ablated = model.with_ablated([head_ref])
    traces = [model.trace(*pair) for pair in corpus]
    lost = sum(trace.log_prob - ablated.trace(TEXT, tokens=trace.output_ids).log_prob for trace in traces)
    assert importances[0].value == pytest.approx(lost / sum(len(trace.output_ids) for trace in traces), abs=1e-6)
    with pytest.raises(ClearheadError, match="got no corpus"):
        head_importance(model, [], model.config.decoding)
