"""Every panel in a real Chromium, drawn from a model trained here, and compared with the library."""

import json
import re
from pathlib import Path

import pytest

from clearhead.inspection.ablation import effect
from clearhead.inspection.lens import logit_lens
from clearhead.inspection.places_off import order_difference, without_positions
from clearhead.inspection.tracing import given_text
from tests.serving.conftest import DONE, Stage
from tests.serving.pronouns import NOUNS, PRONOUNS, SENTENCE

SHOTS = Path("test-artefacts")


def test_every_head_and_value_is_the_traces(stage: Stage) -> None:
    browser = stage.open()
    parts = browser.data(".thumb", "part")
    assert parts == [f"{one.kind}.{one.layer}.{head}" for one in stage.trace.attention for head in range(2)]
    for part in parts:
        kind, layer, head = part.split(".")
        browser.click(f".thumb[data-part='{part}']")
        browser.until(
            "document.querySelector('#head-title').textContent.includes(arguments[0])", f"head {int(head) + 1}"
        )
        browser.until(f"location.search.includes('kind={kind}') || {json.dumps(kind)} === 'cross'")
        drawn = browser.until(
            "document.querySelector('svg.matrix').getAttribute('aria-label').includes(arguments[0]) && "
            "document.querySelector('#readout').textContent",
            {"encoder": "Encoder self", "decoder": "Masked", "cross": "Encoder-decoder"}[kind],
        )
        weights = stage.trace.weights(kind, int(layer), int(head))  # type: ignore[arg-type]
        special = [place.is_special for place in stage.trace.columns(kind)]  # type: ignore[arg-type]
        assert float(drawn.split(": ")[-1]) == pytest.approx(weights[:, [not one for one in special]].max(), abs=1e-6)


def test_hovering_tells_the_exact_value_and_masked_cells_are_masked(stage: Stage) -> None:
    browser = stage.open(kind="decoder", layer="0", head="1", view="matrix")
    hover = """const area = document.querySelector('svg.matrix .area'), box = area.getBoundingClientRect();
        const [t, s, rows, columns] = arguments;
        area.dispatchEvent(new PointerEvent('pointermove', {bubbles: true,
            clientX: box.left + (s + .5) * box.width / columns, clientY: box.top + (t + .5) * box.height / rows}));
        return document.querySelector('#readout').textContent"""
    weights = stage.trace.weights("decoder", 0, 1)
    rows, columns = weights.shape
    for t, s in ((3, 1), (5, 5), (7, 2)):
        assert float(browser.run(hover, t, s, rows, columns).split(": ")[-1]) == pytest.approx(weights[t, s], abs=1e-6)
    assert "masked" in browser.run(hover, 1, 4, rows, columns)


def test_hidden_special_tokens_renormalise_and_say_so(stage: Stage) -> None:
    browser = stage.open(kind="cross", layer="0", head="0", view="matrix")
    browser.click("#hide")
    browser.until("document.querySelector('#grid .note')")
    assert "renormalised" in browser.text("#grid .note")
    browser.until("document.querySelector('#readout').textContent.includes('renormalised')")
    weights = stage.trace.weights("cross", 0, 0)
    keep = [number for number, place in enumerate(stage.trace.source) if not place.is_special]
    picked = weights[:, keep] / weights[:, keep].sum(1, keepdims=True)
    value = float(re.findall(r": ([0-9.]+) ", browser.text("#readout"))[0])
    row, column = divmod(int(weights[:, keep].argmax()), len(keep))
    assert value == pytest.approx(picked[row, column], abs=1e-5)


def test_arithmetic_is_checked_against_the_tensor(stage: Stage) -> None:
    for kind, layer, head, row, column in (("encoder", 0, 1, 2, 3), ("decoder", 0, 0, 4, 2), ("cross", 0, 1, 1, 8)):
        state = {"kind": kind, "layer": str(layer), "head": str(head), "row": str(row), "column": str(column)}
        browser = stage.open(**state)
        browser.until("document.querySelector('#check.ok')")
        computed, told = browser.run(
            "const one = document.querySelector('#check'); return [one.dataset.computed, one.dataset.model]"
        )
        weight = float(stage.trace.weights(kind, layer, head)[row, column])  # type: ignore[arg-type]
        assert float(told) == pytest.approx(weight, abs=1e-7)
        assert float(computed) == pytest.approx(weight, abs=1e-5)
    browser.run("document.querySelector('#arithmetic').scrollIntoView()")
    browser.screenshot(SHOTS / "arithmetic.png")


def test_sorting_by_what_a_head_is_good_for(stage: Stage) -> None:
    browser = stage.open(sort="effect")
    first = browser.run("return document.querySelector('.thumb').dataset.part")
    changes = {
        f"{one.kind}.{one.layer}.{head}": effect(
            stage.model,
            stage.model.with_heads_off([f"{one.kind}.{one.layer}.{head}"]),
            stage.trace,
            stage.model.decoding(),
        ).change
        for one in stage.trace.attention
        for head in range(2)
    }
    assert first == min(changes, key=changes.__getitem__)


def test_a_forced_candidate_changes_the_output(stage: Stage) -> None:
    browser = stage.open(tab="steps")
    browser.click("#forward")
    browser.until("document.querySelector('#step-body h3').textContent.startsWith('Step 2')")
    told = browser.run(
        "return [...document.querySelectorAll('#candidates button')].map(one => Number(one.dataset.token))"
    )
    assert told == [option.token for option in stage.trace.candidates[1]]
    before = browser.text("#output")
    browser.screenshot(SHOTS / "steps.png")
    browser.click("#candidates button:not([disabled])")
    browser.until("document.querySelector('#output').textContent !== arguments[0]", before)
    forced = next(option for option in stage.trace.candidates[1] if option.token != stage.trace.outputs[1].token)
    after = browser.text("#output")
    words = [stage.model.tokenizer.decode([stage.trace.output_ids[0], forced.token])]
    assert after.startswith(words[0]) and after != before
    browser.click("#unforce")
    browser.until("document.querySelector('#output').textContent === arguments[0]", before)


def test_playing_goes_to_the_end(stage: Stage) -> None:
    browser = stage.open(tab="steps", step=str(len(stage.trace.outputs) - 3))
    browser.click("#play")
    browser.until(
        "document.querySelector('#step-body h3').textContent.startsWith(arguments[0])",
        f"Step {len(stage.trace.outputs)} of",
    )


def test_the_beam_tree_is_what_search_did(stage: Stage) -> None:
    browser = stage.open(tab="tree")
    fates = browser.run("return [...document.querySelectorAll('g.node')].map(one => one.dataset.fate)")
    assert fates == [node.candidate.fate for node in stage.trace.tree]
    browser.click("g.node[data-fate='outside_beam']")
    browser.until("document.querySelector('#node')")
    assert "enough others are better" in browser.text("#node")
    browser.screenshot(SHOTS / "tree.png")
    number = int(browser.run("return new URLSearchParams(location.search).get('node')"))
    browser.click("#open-node")
    browser.until("document.querySelector('#grid') && window.clearhead.trace.tree.length === 0")
    path = stage.trace.path(number)
    assert browser.run("return window.clearhead.trace.output_ids") == list(path)
    pruned = stage.model.trace(SENTENCE, tokens=path)
    kind, layer, head = browser.run(
        "const q = new URLSearchParams(location.search); return ['kind', 'layer', 'head'].map(one => q.get(one) ?? '0')"
    )
    special = [place.is_special for place in pruned.columns(kind)]
    weights = pruned.weights(kind, int(layer), int(head))[:, [not one for one in special]]
    assert float(browser.text("#readout").split(": ")[-1]) == pytest.approx(weights.max(), abs=1e-6)


def test_a_head_off_is_the_librarys_ablation(stage: Stage) -> None:
    browser = stage.open(tab="whatif")
    for part in ("cross.0.1", "encoder_feed_forward.0"):
        browser.click(
            "#switches button[data-part='cross.0.1']"
            if part == "cross.0.1"
            else f"#switches button[data-part='{part}']"
        )
        browser.until("document.querySelector('#change')")
        told = browser.run(
            "const one = document.querySelector('#change'); return [Number(one.dataset.change), one.dataset.after]"
        )
        truth = effect(stage.model, stage.model.with_heads_off([part]), stage.trace, stage.model.decoding())
        assert told[0] == pytest.approx(truth.change, abs=1e-4) and told[1] == truth.after.target_text
        browser.screenshot(SHOTS / "what-if.png")
        browser.open(f"{stage.url}/?tab=whatif&text={SENTENCE}")
        browser.until(DONE)


def pronoun_of(text: str) -> str:
    return next((word for word in text.split() if word in PRONOUNS.values()), "")


def test_clicks_alone_find_the_head_behind_a_pronoun(stage: Stage) -> None:
    """Nobody says which head it is: the page tries all of them, and shows the one without which the pronoun changes."""
    browser = stage.open()
    for noun in NOUNS:
        browser.type("#source", SENTENCE.replace("animal", noun))
        browser.click("#run")
        browser.until("window.clearhead.trace.source_text === arguments[0]", SENTENCE.replace("animal", noun))
        browser.click("#tab-whatif")
        browser.click("#try-all")
        browser.until("document.querySelector('#effects')")
        parts = browser.data("#effects tr[data-part]", "part")
        rows = list(zip(parts, browser.texts("#effects tr[data-part] td:last-child"), strict=True))
        before = browser.text("#output")
        found = [
            part for part, after in rows if after != "the same" and pronoun_of(after) not in ("", pronoun_of(before))
        ]
        if found:
            break
        browser.click("#tab-attention")
    assert found, "no head is behind the pronoun of any noun"
    browser.click(f"button[data-show='{found[0]}']")
    browser.until("document.querySelector('#change')")
    assert pronoun_of(browser.text("#effect .before")) != pronoun_of(browser.text("#effect .after"))
    assert pronoun_of(before) in [
        one.strip()
        for one in browser.run("return [...document.querySelectorAll('#effect .gone')].map(one => one.textContent)")
    ]
    truth = stage.model.with_heads_off([found[0]]).translate(SENTENCE.replace("animal", noun)).text
    assert browser.run("return document.querySelector('#change').dataset.after") == truth
    browser.screenshot(SHOTS / "pronoun.png")


def test_an_edited_source_stands_beside_the_old_one(stage: Stage) -> None:
    browser = stage.open(tab="whatif")
    browser.type("#edit", SENTENCE.replace("animal", "cat"))
    browser.click("#edit-run")
    browser.until("document.querySelector('#edit-change')")
    assert "cat" in browser.run("return [...document.querySelectorAll('#edited .new')].map(one => one.textContent)")
    truth = stage.model.translate(SENTENCE.replace("animal", "cat")).text
    assert browser.texts("#edited .after")[1].replace(" ", "") == truth.replace(" ", "")


def test_the_map_has_the_models_own_sizes(stage: Stage) -> None:
    browser = stage.open(tab="map")
    browser.click("g.part[data-part='encoder']")
    browser.until("document.querySelector('#formula')?.textContent.includes('√16')")
    assert f"{len(stage.trace.source)} × 32" in browser.text("svg.map")
    assert browser.run("return new URLSearchParams(location.search).get('kind')") == "encoder"
    browser.click("g.part[data-part='decoder_feed_forward']")
    browser.until("document.querySelector('#formula').textContent.includes('32 × 48')")
    browser.screenshot(SHOTS / "map.png")


def test_word_order_vanishes_without_positions(stage: Stage) -> None:
    browser = stage.open(tab="positions")
    told = browser.run(
        "return [...document.querySelectorAll('#order [data-difference]')].map(one => Number(one.dataset.difference))"
    )
    given = given_text(stage.model, SENTENCE)
    networks = (stage.model.network, without_positions(stage.model.network))
    assert told == pytest.approx([order_difference(one, given.src) for one in networks], abs=1e-6)
    assert told[0] > 0.01 and told[1] < 1e-5
    browser.screenshot(SHOTS / "positions.png")


def test_the_lens_and_attribution_are_the_librarys(stage: Stage) -> None:
    browser = stage.open(tab="lens", output="1")
    shown = browser.run("""const rows = [...document.querySelectorAll('#lens-table tr')].slice(1);
        return rows.map(row => [...row.cells].slice(1).map(cell => cell.textContent))""")
    layers = logit_lens(stage.model, stage.trace)
    assert len(shown) == len(layers)
    for row, layer in zip(shown, reversed(layers), strict=True):
        assert [one[:6] for one in row] == [options[0].text.removeprefix("▁")[:6] for options in layer.candidates]
    assert "by itself" in browser.text("#caution")
    assert (
        len(browser.run("return [...document.querySelectorAll('#attributed .token')].map(one => one.textContent)")) > 20
    )
    browser.screenshot(SHOTS / "lens.png")


def test_two_models_and_two_sentences_side_by_side(stage: Stage) -> None:
    browser = stage.open(tab="compare", kind="cross", target=stage.trace.target_text)
    browser.click("#compare-run")
    browser.until("document.querySelector('#largest')")
    assert float(browser.run("return document.querySelector('#largest').dataset.largest")) > 0
    browser.screenshot(SHOTS / "compare.png")
    browser.run("document.querySelector('#second').value = arguments[0]", stage.model.folder.name)
    browser.click("#compare-run")
    browser.until("Number(document.querySelector('#largest')?.dataset.largest) === 0")
