"""The page in Chromium: first screen, input, keyboard, tour and narrow screens."""

from pathlib import Path

import pytest

from tests.serving.browser import need_browser
from tests.serving.conftest import DONE, Stage

SHOTS = Path("test-artefacts")
PANELS = ["attention", "steps", "tree", "whatif", "map", "positions", "lens", "compare"]


def test_first_screen_shows_a_translation_with_its_attention(stage: Stage) -> None:
    browser = stage.browser
    browser.open(stage.url)
    browser.until(DONE)
    example = browser.run("return document.getElementById('source').value")
    assert example and browser.text("#output") == stage.model.trace(example).target_text
    for selector in ("svg.lines", "svg.matrix", ".thumb canvas"):
        box = browser.run("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        assert box["top"] < 800 and box["width"] > 20 and box["left"] + 20 < 1280, selector
    assert int(browser.data("svg.lines g.all", "lines")[0]) > 5
    assert not browser.run("return document.documentElement.scrollWidth > innerWidth")
    browser.screenshot(SHOTS / "first-screen.png")


HOSTILE = ["<script>window.broken = 1</script>", "<img src=x onerror=window.broken=1>", "🙂 dog", "הכלב הזקן עייף"]


@pytest.mark.parametrize("text", HOSTILE)
def test_html_in_texts_is_not_interpreted(stage: Stage, text: str) -> None:
    browser = stage.open()
    browser.run("const field = document.querySelector('#source'); field.value = arguments[0]", text)
    browser.click("#run")
    browser.until("window.clearhead.trace.source_text === arguments[0]", text)
    assert browser.run("return window.broken ?? null") is None
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0


def test_bad_input_is_reported_on_the_page(stage: Stage) -> None:
    browser = stage.open()
    for text, message in (("", "empty"), ("word " * 3000, "tokens"), ("word " * 10_000, "characters"), (" ", "empty")):
        browser.run("const field = document.querySelector('#source'); field.value = arguments[0]", text)
        browser.click("#run")
        browser.until("document.getElementById('problem').textContent.includes(arguments[0])", message)
    stage.browser.console()  # the browser logs every response with an error status


def test_the_page_can_be_used_by_keyboard(stage: Stage) -> None:
    browser = stage.open(kind="encoder", row="2", column="2")
    browser.keys("svg.matrix", "\ue014\ue015")  # right, down
    browser.until("location.search.includes('row=3') && location.search.includes('column=3')")
    browser.keys("#tab-attention", "\ue014")
    browser.until("document.querySelector('#panel [data-panel=steps]')")
    assert browser.run("return document.activeElement.id") == "tab-steps"


def test_the_tour_visits_every_panel(stage: Stage) -> None:
    browser = stage.open()
    browser.click("#tour")
    tabs = browser.run("return [...document.querySelectorAll('#tabs button')].map(node => node.textContent)")
    for title in tabs[1:]:
        browser.click("#tour-next")
        browser.until("document.querySelector('#tour-box h2').textContent === arguments[0]", title)
    browser.click("#tour-done")
    assert not browser.run("return document.querySelector('#tour-box').open")
    browser.until(DONE)


def test_narrow_screens_have_no_sideways_scroll(stage: Stage) -> None:
    stage.browser.size(400, 800)
    for panel in PANELS:
        browser = stage.open(tab=panel, second_model="pronouns-2")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), panel
        browser.screenshot(SHOTS / f"narrow-{panel}.png")


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_a_browser_tests_are_skipped_and_in_ci_they_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install chromium chromium-driver"):
        need_browser()
