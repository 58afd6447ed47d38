"""Every panel in a real Chromium, with a model trained by the test, compared with the library."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.inspection.analyses.ablation import ablation_effect
from clearhead.inspection.analyses.logit_lens import logit_lens
from clearhead.inspection.analyses.position_ablation import ablate_positions, order_difference
from clearhead.inspection.trace.trace_input import text_input
from tests.serving.conftest import DONE, Stage
from tests.serving.pronoun_model import NOUNS, PRONOUNS, SENTENCE

SHOTS = Path("test-artefacts")


def test_a_forced_candidate_changes_the_output(stage: Stage) -> None:
    browser = stage.open(tab="steps")
    browser.click("#forward")
    browser.until("document.querySelector('#step-body h3').textContent.startsWith('Step 2')")
    tokens = browser.run(
        "return [...document.querySelectorAll('#candidates button')].map(node => Number(node.dataset.token))"
    )
    assert tokens == [candidate.token for candidate in stage.trace.candidates[1]]
    before = browser.text("#output")
    browser.screenshot(SHOTS / "steps.png")
    browser.click("#candidates button:not([disabled])")
    browser.until("document.querySelector('#output').textContent !== arguments[0]", before)
    forced = next(
        candidate for candidate in stage.trace.candidates[1] if candidate.token != stage.trace.outputs[1].token
    )
    after = browser.text("#output")
    words = [stage.model.tokenizer.decode([stage.trace.output_ids[0], forced.token])]
    assert after.startswith(words[0]) and after != before
    browser.click("#unforce")
    browser.until("document.querySelector('#output').textContent === arguments[0]", before)


def test_playing_ends_at_the_last_step(stage: Stage) -> None:
    browser = stage.open(tab="steps", step=str(len(stage.trace.outputs) - 3))
    browser.click("#play")
    browser.until(
        "document.querySelector('#step-body h3').textContent.startsWith(arguments[0])",
        f"Step {len(stage.trace.outputs)} of",
    )


def test_the_beam_tree_is_that_of_the_search(stage: Stage) -> None:
    browser = stage.open(tab="tree")
    outcomes = browser.run("return [...document.querySelectorAll('g.node')].map(node => node.dataset.outcome)")
    assert outcomes == [node.candidate.outcome for node in stage.trace.tree]
    browser.click("g.node[data-outcome='outside_beam']")
    browser.until("document.querySelector('#node')")
    assert "pruned: outside the beam" in browser.text("#node")
    browser.screenshot(SHOTS / "tree.png")
    number = int(browser.run("return new URLSearchParams(location.search).get('node')"))
    browser.click("#open-node")
    browser.until("document.querySelector('#grid') && window.clearhead.trace.tree.length === 0")
    path = stage.trace.path(number)
    assert browser.run("return window.clearhead.trace.output_ids") == list(path)
    pruned = stage.model.trace(SENTENCE, tokens=path)
    kind, layer, head = browser.run(
        "const q = new URLSearchParams(location.search); return ['kind', 'layer', 'head'].map(key => q.get(key) ?? '0')"
    )
    special = [position.is_special for position in pruned.key_positions(kind)]
    weights = pruned.weights(kind, int(layer), int(head))[:, [not is_special_key for is_special_key in special]]
    assert float(browser.text("#readout").split(": ")[-1]) == pytest.approx(weights.max(), abs=1e-6)


def test_ablation_shows_the_effect_of_the_library(stage: Stage) -> None:
    browser = stage.open(tab="whatif")
    for head_ref in ("cross.0.1", "encoder_feed_forward.0"):
        browser.click(f"#ablations button[data-head-ref='{head_ref}']")
        browser.until("document.querySelector('#change')")
        displayed = browser.run(
            "const node = document.querySelector('#change'); return [Number(node.dataset.change), node.dataset.after]"
        )
        expected = ablation_effect(
            stage.model, stage.model.with_ablated([head_ref]), stage.trace, stage.model.decoding()
        )
        assert (
            displayed[0] == pytest.approx(expected.log_prob_change, abs=1e-4)
            and displayed[1] == expected.after.target_text
        )
        browser.screenshot(SHOTS / "what-if.png")
        browser.open(f"{stage.url}/?tab=whatif&text={SENTENCE}")
        browser.until(DONE)


def pronoun_of(text: str) -> str:
    return next((word for word in text.split() if word in PRONOUNS.values()), "")


def test_clicks_alone_find_the_head_that_translates_a_pronoun(stage: Stage) -> None:
    """The panel What if ablates one head at a time; for some source, the pronoun changes without one of the heads."""
    browser = stage.open()
    for noun in NOUNS:
        browser.type("#source", SENTENCE.replace("animal", noun))
        browser.click("#run")
        browser.until("window.clearhead.trace.source_text === arguments[0]", SENTENCE.replace("animal", noun))
        browser.click("#tab-whatif")
        browser.click("#try-all")
        browser.until("document.querySelector('#effects')")
        head_refs = browser.data("#effects tr[data-head-ref]", "headRef")
        rows = list(zip(head_refs, browser.texts("#effects tr[data-head-ref] td:last-child"), strict=True))
        before = browser.text("#output")
        changing_heads = [
            head_ref
            for head_ref, after in rows
            if after != "unchanged" and pronoun_of(after) not in ("", pronoun_of(before))
        ]
        if changing_heads:
            break
        browser.click("#tab-attention")
    assert changing_heads, "ablating a head never changes the pronoun"
    browser.click(f"button[data-show='{changing_heads[0]}']")
    browser.until("document.querySelector('#change')")
    assert pronoun_of(browser.text("#effect .before")) != pronoun_of(browser.text("#effect .after"))
    assert pronoun_of(before) in [
        word.strip()
        for word in browser.run(
            "return [...document.querySelectorAll('#effect .removed')].map(node => node.textContent)"
        )
    ]
    expected = stage.model.with_ablated([changing_heads[0]]).translate(SENTENCE.replace("animal", noun)).text
    assert browser.run("return document.querySelector('#change').dataset.after") == expected
    browser.screenshot(SHOTS / "pronoun.png")


def test_an_edited_source_is_compared_with_the_original(stage: Stage) -> None:
    browser = stage.open(tab="whatif")
    browser.type("#edit", SENTENCE.replace("animal", "cat"))
    browser.click("#edit-run")
    browser.until("document.querySelector('#edit-change')")
    assert "cat" in browser.run("return [...document.querySelectorAll('#edited .added')].map(node => node.textContent)")
    expected = stage.model.translate(SENTENCE.replace("animal", "cat")).text
    assert browser.texts("#edited .after")[1].replace(" ", "") == expected.replace(" ", "")


def test_the_map_has_the_models_own_sizes(stage: Stage) -> None:
    browser = stage.open(tab="map")
    source_length, target_length, vocab_size = (
        len(stage.trace.source),
        len(stage.trace.inputs),
        stage.model.config.model.vocab_size,
    )
    shapes = browser.run(
        "return [...document.querySelectorAll('g.edge')].map(node => node.querySelector('text')?.textContent)"
    )
    source_edges = [*[f"{source_length} × 32"] * 2, f"{source_length} tokens", f"encoder output {source_length} × 32"]
    target_edges = [*[f"{target_length} × 32"] * 4, f"{target_length} tokens", f"{target_length} × {vocab_size}"]
    assert sorted(shapes) == sorted(source_edges + target_edges)
    formulas = {"source": f"E: {vocab_size} × 32", "encoder": f"weights: 2 × {source_length} × {source_length}",
                "target": f"x: {target_length} × 32", "decoder": f"weights: 2 × {target_length} × {target_length}",
                "cross": f"weights: 2 × {target_length} × {source_length}",
                "encoder_feed_forward": "W₁: 32 × 48", "decoder_feed_forward": "W₂: 48 × 32",
                "output": f"W_E: {vocab_size} × 32"}  # fmt: skip
    assert sorted(browser.data("g.block", "block")) == sorted(formulas)
    for block, formula in formulas.items():
        browser.click(f"g.block[data-block='{block}']")
        browser.until("document.querySelector('#formula')?.textContent.includes(arguments[0])", formula)
    browser.screenshot(SHOTS / "map.png")


@pytest.mark.parametrize(("block", "kind"), [("encoder", "encoder"), ("decoder_feed_forward", "decoder")])
def test_a_block_of_the_map_is_selected_in_all_panels(stage: Stage, block: str, kind: str) -> None:
    browser = stage.open(tab="map", kind="cross", layer="0", head="1")
    browser.click(f"g.block[data-block='{block}']")
    browser.until("document.querySelector(`g.block[aria-pressed=true]`).dataset.block === arguments[0]", block)
    browser.click("#tab-attention")
    browser.until(
        "document.querySelector('.thumb[aria-current=true]')?.dataset.headRef === arguments[0]", f"{kind}.0.1"
    )
    browser.click("#tab-whatif")
    browser.until(
        "document.querySelector('#ablations tr.selected button')?.dataset.headRef === arguments[0]", f"{block}.0"
    )
    browser.until(DONE)


def test_the_described_cache_has_the_size_of_the_decoders(stage: Stage) -> None:
    network, step = stage.model.network, 4
    with torch.inference_mode():
        memory = network.encode(text_input(stage.model, SENTENCE).src)
        first_RT, state = network.start(memory, 1)
        tokens_RT = torch.cat((first_RT, torch.tensor([stage.trace.output_ids[: step - 1]])), 1)
        past_caches = network.step(tokens_RT, state).state.caches
    sizes = [
        sum(tensor.numel() for keys_values in caches for tensor in keys_values)
        for caches in (past_caches, memory.keys_values)
    ]
    description = stage.open(tab="steps", step=str(step)).text("#cached")
    assert [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) numbers", description)] == sizes
    assert (
        f"of {step} decoder positions" in description
        and f"the {len(stage.trace.source)} source positions" in description
    )


def test_without_positions_the_page_shows_no_effect_of_word_order(stage: Stage) -> None:
    browser = stage.open(tab="positions")
    displayed = browser.run(
        "return [...document.querySelectorAll('#order [data-difference]')].map(node => Number(node.dataset.difference))"
    )
    trace_input = text_input(stage.model, SENTENCE)
    networks = (stage.model.network, ablate_positions(stage.model.network))
    assert displayed == pytest.approx([order_difference(network, trace_input.src) for network in networks], abs=1e-6)
    assert displayed[0] > 0.01 and displayed[1] < 1e-5
    browser.screenshot(SHOTS / "positions.png")


def test_positions_are_the_papers_sinusoids(stage: Stage) -> None:
    browser, width = stage.open(tab="positions"), stage.model.config.model.model_dim
    table = browser.run_async("""const done = arguments[arguments.length - 1];
        fetch(`/v1/trace/${window.clearhead.trace.id}/positions`).then((response) => response.json())
            .then((view) => done(view.table))""")
    angles = np.arange(len(table))[:, None] / 10000 ** (np.arange(width // 2) * 2 / width)
    expected = np.empty((len(table), width))
    expected[:, 0::2], expected[:, 1::2] = np.sin(angles), np.cos(angles)
    np.testing.assert_allclose(table, expected, atol=1e-5)
    image = browser.run("return document.querySelector('svg.heat image').getAttribute('href')")
    image_pixels = Image.open(io.BytesIO(base64.b64decode(image.split(",")[1]))).convert("RGB")
    assert image_pixels.size == (width, len(table))
    blue = [red < blue for red, _, blue in (image_pixels.getpixel((3, position)) for position in range(len(table)))]  # type: ignore[misc]
    clear = np.abs(expected[:, 3]) > 0.1
    assert (np.array(blue) == (expected[:, 3] > 0))[clear].all()
    browser.choose("#dimension", "7")
    browser.until("document.querySelector('#one-dimension h3').textContent.includes('Dimension 7')")
    for curve, values in ((0, expected[:, 7]), (1, mean_cosines(expected))):
        points = browser.run(
            "return document.querySelectorAll('svg.curve polyline')[arguments[0]].getAttribute('points')", curve
        )
        heights = np.array([float(point.split(",")[1]) for point in points.split()])
        assert np.corrcoef(heights, values)[0, 1] == pytest.approx(-1, abs=1e-6)  # up is a smaller y


def mean_cosines(table: np.ndarray) -> np.ndarray:
    """Return the mean cosine similarity of two positions for each distance between them."""
    normed = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = normed @ normed.T
    return np.array([np.diagonal(cosines, offset).mean() for offset in range(len(table))])


def test_the_lens_shows_the_predictions_of_the_library(stage: Stage) -> None:
    browser = stage.open(tab="lens", output="1")
    predictions = browser.run("""const rows = [...document.querySelectorAll('#lens-table tr')].slice(1);
        return rows.map(row => [...row.cells].slice(1).map(cell => cell.textContent))""")
    layers = logit_lens(stage.model, stage.trace)
    assert len(predictions) == len(layers)
    for row, layer in zip(predictions, reversed(layers), strict=True):
        assert [text[:6] for text in row] == [
            candidates[0].text.removeprefix("▁")[:6] for candidates in layer.candidates
        ]
    assert "not an explanation" in browser.text("#caution")
    assert (
        len(browser.run("return [...document.querySelectorAll('#attributed .token')].map(node => node.textContent)"))
        > 20
    )
    browser.screenshot(SHOTS / "lens.png")


def test_two_models_and_two_sentences_are_compared(stage: Stage) -> None:
    browser = stage.open(tab="compare", kind="cross", layer="0", head="1", target=stage.trace.target_text)
    browser.click("#compare-run")
    browser.until("document.querySelector('#largest')")
    forced = [model.trace(SENTENCE, target=stage.trace.target_text) for model in (stage.model, stage.second)]
    differences = forced[0].weights("cross", 0, 1) - forced[1].weights("cross", 0, 1)
    largest = float(browser.run("return document.querySelector('#largest').dataset.largest"))
    assert largest == pytest.approx(np.abs(differences).max(), abs=1e-6) and largest > 0
    assert f"{forced[1].log_prob:.3f}".replace("-", "−") in browser.text("#compared")
    browser.screenshot(SHOTS / "compare.png")
    browser.choose("#second-model", stage.model.folder.name)
    browser.click("#compare-run")
    browser.until("Number(document.querySelector('#largest')?.dataset.largest) === 0")
