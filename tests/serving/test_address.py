"""The state of the page in its address: a link opens the same view, and missing selections are reported."""

from pathlib import Path

import pytest

from clearhead.inspection.analyses.position_ablation import ablate_positions
from clearhead.serving.app import make_app
from tests.inspection.small_models import small_model
from tests.serving.browser import Browser
from tests.serving.conftest import DONE, Stage, serving_here
from tests.serving.pronoun_model import SENTENCE

# The visible state: texts, fields, pressed buttons and drawings, without the numbers of hatch patterns. Texts are read
# by textContent: innerText skips elements without a layout, such as the arithmetic while it is scrolled out of view.
SHOWN = """[document.getElementById('output').textContent, document.getElementById('panel').textContent,
    [...document.querySelectorAll('main input, main select, main textarea')].map((field) => field.type === 'checkbox' ?
        field.checked : field.value),
    [...document.querySelectorAll('main [aria-pressed=true], main [aria-current=true], main [aria-selected=true]')]
        .map((node) => node.getAttribute('aria-label') ?? node.textContent),
    [...document.querySelectorAll('#panel svg')].map((node) => node.outerHTML.replaceAll(/hatch-\\d+/g, 'hatch')),
    document.documentElement.dataset.theme]"""


def same_after_reload(browser: Browser) -> None:
    browser.until(DONE)
    before, address = browser.run(f"return {SHOWN}"), browser.run("return location.href")
    browser.open(address)
    browser.until(DONE)
    assert browser.run(f"return {SHOWN}") == before
    assert browser.run("return document.getElementById('notice').hidden")


def test_every_choice_is_in_the_address(stage: Stage) -> None:
    browser = stage.open()
    browser.type("#beam_size", "3")
    browser.click("#run")
    browser.until("window.clearhead.trace.settings.beam_size === 3")
    browser.until(DONE)
    browser.click("#theme")
    browser.click(".thumb[data-head-ref='decoder.0.1']")
    browser.choose("#sort", "distance")
    browser.until("document.querySelector('.thumbs.flat')")
    browser.click("#hide")
    browser.until("document.querySelector('#grid .note')")
    browser.click("svg.matrix .area")
    browser.until("location.search.includes('row=') && location.search.includes('column=')")
    same_after_reload(browser)
    browser.click("#tab-steps")
    browser.click("#forward")
    browser.until("document.querySelector('#step-body h3').textContent.startsWith('Step 2')")
    same_after_reload(browser)
    browser.click("#tab-tree")
    browser.click("g.node[data-outcome='outside_beam']")
    browser.until("document.querySelector('#node')")
    same_after_reload(browser)
    browser.click("#tab-map")
    browser.click("g.block[data-block='encoder_feed_forward']")
    browser.until("document.querySelector('#formula')?.textContent.includes('W₂')")
    same_after_reload(browser)
    browser.click("#tab-positions")
    browser.choose("#dimension", "5")
    browser.until("document.querySelector('#one-dimension h3').textContent.includes('Dimension 5')")
    same_after_reload(browser)
    browser.click("#tab-lens")
    browser.choose("#output-choice", "3")
    browser.until("location.search.includes('output=3')")
    same_after_reload(browser)


def test_ablations_and_edits_are_in_the_address(stage: Stage) -> None:
    browser = stage.open(tab="whatif")
    browser.click("#ablations button[data-head-ref='cross.0.0']")
    browser.until("document.querySelector('#change')")
    browser.click("#try-all")
    browser.until("document.querySelector('#effects')")
    browser.type("#edit", SENTENCE.replace("animal", "cat"))
    browser.click("#edit-run")
    browser.until("document.querySelector('#edit-change')")
    same_after_reload(browser)
    browser.click("#tab-compare")
    browser.type("#second-text", SENTENCE.replace("tired", "old"))
    browser.click("#compare-run")
    browser.until("document.querySelector('#largest')")
    same_after_reload(browser)
    browser.click("#tab-positions")
    browser.click("#no-positions")
    browser.until("window.clearhead.trace.positions === false")
    browser.until(DONE)
    expected = stage.model.with_network(ablate_positions(stage.model.network)).trace(SENTENCE)
    assert browser.text("#output") == expected.target_text
    assert browser.run("return window.clearhead.trace.log_prob") == pytest.approx(expected.log_prob, abs=1e-3)
    assert expected.log_prob != pytest.approx(stage.trace.log_prob, abs=0.01)
    assert "without positions" in browser.text("#result")
    same_after_reload(browser)
    browser.click("#result .chip button")
    browser.until("document.querySelector('#output').textContent === arguments[0]", stage.trace.target_text)


def test_the_back_button_restores_the_page(stage: Stage) -> None:
    browser = stage.open(tab="whatif", whatif="cross.0.1")
    browser.until("document.querySelector('#change')")
    browser.type("#source", SENTENCE.replace("animal", "cow"))
    browser.click("#run")
    browser.until("document.querySelector('#output').textContent.includes('Kuh')")
    browser.run("history.back()")
    browser.until("document.querySelector('#output').textContent === arguments[0]", stage.trace.target_text)
    assert browser.run("return document.querySelector('#source').value") == SENTENCE
    browser.until(DONE)


MISSING = {
    "layer": ({"kind": "encoder", "layer": "9", "head": "0"}, "no head encoder.9.0"),
    "head": ({"kind": "cross", "layer": "0", "head": "7"}, "no head cross.0.7"),
    "kind": ({"kind": "sideways"}, "no head sideways.0.0"),
    "cell": ({"kind": "cross", "row": "99", "column": "0"}, "no cell 99, 0"),
    "model": ({"model": "nobody"}, "no model nobody"),
    "panel": ({"tab": "nowhere"}, "no panel nowhere"),
    "step": ({"tab": "steps", "step": "77"}, "no step 77"),
    "node": ({"tab": "tree", "node": "9999"}, "no node 9999"),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_selections_are_reported(stage: Stage, name: str) -> None:
    state, sentence = MISSING[name]
    browser = stage.open(**state)
    browser.until("!document.getElementById('notice').hidden")
    assert sentence in browser.text("#notice")
    assert browser.text("#panel").strip() and browser.text("#output") == stage.trace.target_text


REFUSED = {
    "a head to ablate": ({"ablated": "cross.9.0"}, "expected a layer of cross from 0 to 0, got 9"),
    "a beam": ({"beam_size": "many"}, "beam_size"),
    "a hypothesis": ({"hypothesis": "9"}, "hypothesis: expected 0 to 3, got 9"),
    "a target": ({"target": "Weil 🙂 ."}, "not in the vocabulary"),
    "tokens": ({"tokens": "999999"}, "999999"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rejections_of_the_server_are_shown_with_a_link_to_start_over(stage: Stage, name: str) -> None:
    state, sentence = REFUSED[name]
    browser = stage.browser
    browser.open(f"{stage.url}/?{'&'.join(f'{key}={value}' for key, value in state.items())}&text={SENTENCE}")
    browser.until("!document.getElementById('problem').hidden && !document.body.hasAttribute('aria-busy')")
    assert sentence in browser.text("#problem")
    browser.console()  # the browser logs every response with an error status
    browser.click("#problem a")
    browser.until(DONE)


def test_an_image_is_in_the_address(stage: Stage, tmp_path: Path) -> None:
    browser = stage.browser
    with serving_here(make_app({"one": small_model("patches")})) as url:
        browser.open(url)
        browser.until(DONE)
        assert "image=" in browser.run("return location.search")
        assert browser.run("return document.querySelector('#bar img').naturalWidth") == 6
        same_after_reload(browser)
        browser.open("about:blank")
