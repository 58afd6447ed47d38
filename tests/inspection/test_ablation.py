"""Parts switched off: the same as weights set to zero, and every verb goes on working."""

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
from clearhead.inspection.trace.sublayers import heads, sub_layers
from tests.inspection.small import PICTURES, TEXT, TEXTS, WITHOUT, picture, small, text_for
from tests.trained_model import Trained


def without(network: Any, part: HeadRef, by: float = 0.0) -> Any:
    """A copy whose weights say what a hook should do: the part's columns of the output projection times `by`."""
    copied = copy.deepcopy(network)
    module: Any = next(one.module for one in sub_layers(copied) if (one.name, one.layer) == (part.name, part.layer))
    with torch.no_grad():
        if part.head is not None:
            module.output.weight[:, part.head * module.value_dim : (part.head + 1) * module.value_dim] *= by
        else:
            last = module.output if hasattr(module, "output") else module.w2
            for parameter in last.parameters():
                parameter *= by
    return copied


def logits(model: Any, folder: Path, name: str) -> Any:
    if model.config.model.reads_images:
        return model.trace_image(picture(folder)).logits_TV
    return model.trace(text_for(name)).logits_TV


PARTS = ["encoder.2.1", "encoder.0", "encoder_feed_forward.1", "decoder.1.0", "cross.0.1", "cross.1", "decoder.0",
         "decoder_feed_forward.1"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "part"),
    [("transformer", part) for part in PARTS]
    + [("d_k and d_v", "cross.1.1"), ("T5", "decoder.1.1"), ("decoder", "decoder.1.1"), ("patches", "encoder.1.0")]
    + [("encoder for tags", "encoder.2.1"), ("encoder for masks", "encoder.0"), ("captions", "cross.1.1")],
)
def test_off_is_weights_set_to_zero(name: str, part: str, tmp_path: Path) -> None:
    model = small(name)
    before = logits(model, tmp_path, name)
    off = model.with_ablated([part])
    expected = logits(model.with_network(without(model.network, HeadRef.parse(part))), tmp_path, name)
    found = logits(off, tmp_path, name)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert before.shape != found.shape or np.abs(before - found).max() > 1e-4
    np.testing.assert_array_equal(logits(model, tmp_path, name), before)  # the model itself is as it was


def test_several_parts_and_one_after_the_other_are_the_same() -> None:
    model = small("transformer")
    at_once = model.with_ablated(["cross.0.1", HeadRef("encoder", 1, 0), "cross.0.1"])
    in_turn = model.with_ablated(["cross.0.1"]).with_ablated(["encoder.1.0"])
    np.testing.assert_allclose(at_once.trace(TEXT).logits_TV, in_turn.trace(TEXT).logits_TV, atol=1e-6)


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_a_recurrent_model_without_its_attention(kind: str) -> None:
    model = small(f"lstm, {kind}")
    off, outputs = model.with_ablated(["cross.0.0"]), model.trace(TEXT).output_ids
    copied = copy.deepcopy(model.network)
    with torch.no_grad():
        copied.feed_forward.weight[:, :22] = 0.0  # the columns of the context
    expected = model.with_network(copied).trace(TEXT, tokens=outputs).logits_TV
    np.testing.assert_allclose(off.trace(TEXT, tokens=outputs).logits_TV, expected, atol=1e-5)


def test_the_mean_of_a_head_is_what_it_gives_in_the_mean() -> None:
    """Weights times values, from the trace's own arithmetic, put into the bias of the output projection."""
    model, part = small("transformer"), HeadRef("encoder", 1, 1)
    texts = [TEXT, "Look at the big cow there!"]
    mixed = []
    for text in texts:
        one = model.trace(text, arithmetic=True).layers("encoder")[1]
        assert one.arithmetic is not None
        mixed.append(one.weights_HTS[1] @ one.arithmetic.v_HSE[1])
    mean_E = torch.from_numpy(np.concatenate(mixed).mean(0))
    copied = without(model.network, part)
    out, whole = copied.encoder.layers[1].self_attention.output, model.network.encoder.layers[1].self_attention.output
    with torch.no_grad():
        out.bias += whole.weight[:, 11:22] @ mean_E
    expected = model.with_network(copied).trace(TEXT).logits_TV
    found = model.with_ablated([part], by="mean", over=texts).trace(TEXT).logits_TV
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - model.with_ablated([part]).trace(TEXT).logits_TV).max() > 1e-4


def test_every_verb_works_and_the_effect_is_the_difference_of_scores(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    off = model.with_ablated(["cross.0", "cross.1"])  # blind to its source
    source = "The small dog sees the old cat."
    before = model.trace(source, target="Der kleine Hund sieht die alte Katze.")
    found = ablation_effect(model, off, before, model.config.decoding)
    assert found.after.target_text == off.translate(source).text != model.translate(source).text
    pair = Pair(source, before.target_text, 1)
    whole, less = (each.score([pair])[0] for each in (model, off))
    assert whole.tokens == tuple(place.text for place in before.outputs[:-1])
    assert found.change == pytest.approx(less.log_prob - whole.log_prob, abs=1e-4) and found.change < -0.1
    np.testing.assert_allclose(found.token_changes, np.subtract(less.token_log_probs, whole.token_log_probs), atol=1e-4)
    report = off.evaluate([pair])
    assert report.perplexity is not None and report.perplexity > (model.evaluate([pair]).perplexity or 0)
    assert off.translate_n_best([source], 2, off.config.decoding)[0][1].text
    assert found.to_json()["before"] == before.target_text


@pytest.mark.parametrize("name", [name for name in [*TEXTS, *PICTURES] if name not in WITHOUT])
def test_any_head_of_any_family_can_be_off(name: str, tmp_path: Path) -> None:
    model = small(name)
    all_parts = heads(model.network)
    off = model.with_ablated([all_parts[-1]])
    given = model.trace_image(picture(tmp_path)) if name in PICTURES else model.trace(text_for(name))
    found = ablation_effect(model, off, given, model.config.decoding)
    assert len(found.token_changes) == len(given.output_ids) and max(map(abs, found.token_changes)) > 1e-6


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ("cross.9.0", "2 layers, counted from 0; there is no layer 9"),
        ("cross.0.2", "2 heads, counted from 0; there is no head 2"),
        ("decoder_feed_forward.0.0", "has no heads"),
        ("middle.0.0", "which has encoder, encoder_feed_forward"),
        ("cross", "such as cross.1.0"),
        ("cross.a", "such as cross.1.0"),
    ],
)
def test_what_is_not_there_cannot_be_off(part: str, match: str) -> None:
    with pytest.raises(ClearheadError, match=match):
        small("transformer").with_ablated([part])


def test_nothing_off_and_no_texts_are_refused() -> None:
    with pytest.raises(ClearheadError, match="got none"):
        small("transformer").with_ablated([])
    with pytest.raises(ClearheadError, match="got none"):
        small("transformer").with_ablated(["cross.0.0"], by="mean")
    with pytest.raises(ClearheadError, match="no attention at all"):
        small("gru without attention").with_ablated(["cross.0.0"])


def test_importance_is_the_derivative_by_a_gate() -> None:
    """Differences of losses, in double precision, when the columns of a head are made a little larger and smaller."""
    model, corpus = small("transformer"), [(TEXT, "The dog eats."), ("Look at the big cow there!", "The cow.")]
    found = {one.part: one.value for one in head_importance(model, corpus, model.config.decoding)}
    assert len(found) == (3 + 2 + 2) * 2 and list(found.values()) == sorted(found.values(), reverse=True)
    tokens = sum(len(model.trace(text, target).output_ids) for text, target in corpus)
    for part in (HeadRef("encoder", 0, 1), HeadRef("cross", 1, 0), HeadRef("decoder", 0, 0)):
        slopes = []
        for text, target in corpus:
            ends = [
                -model.with_network(without(model.network.double(), part, by)).trace(text, target)
                .log_prob for by in (1 + 1e-6, 1 - 1e-6)
            ]  # fmt: skip
            slopes.append(abs(ends[0] - ends[1]) / 2e-6)
        model.network.float()
        assert found[part] == pytest.approx(sum(slopes) / tokens, rel=1e-3)


def test_importance_by_ablation_is_what_is_lost() -> None:
    model, corpus = small("transformer"), [(TEXT, "The dog eats."), (TEXT, None)]
    found = head_importance(model, corpus, model.config.decoding, "ablation")
    part = found[0].part
    off = model.with_ablated([part])
    traces = [model.trace(*pair) for pair in corpus]
    lost = sum(trace.log_prob - off.trace(TEXT, tokens=trace.output_ids).log_prob for trace in traces)
    assert found[0].value == pytest.approx(lost / sum(len(trace.output_ids) for trace in traces), abs=1e-6)
    with pytest.raises(ClearheadError, match="there is no corpus"):
        head_importance(model, [], model.config.decoding)
