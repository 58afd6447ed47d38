"""The page for every family of models: it draws the panels that apply and has no others."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest
import torch

from clearhead.inspection.trace.trace_input import text_input
from clearhead.serving.app import make_app
from tests.inspection.small_models import small_model, text_for
from tests.serving.browser import Browser
from tests.serving.conftest import DONE, Stage, serving_here

ALL = ["Attention", "Steps", "Beam tree", "What if", "Architecture", "Positions", "Lens & attribution", "Compare"]
READS = ["Answer", "Attention", "What if", "Architecture", "Positions", "Lens & attribution", "Compare"]
PANELS = {
    "T5": ALL,
    "decoder": ALL,
    "encoder for labels": READS,
    "encoder for tags": READS,
    "encoder for masks": READS,
    "lstm, dot": [name for name in ALL if name != "Positions"],
    "lstm, additive": [name for name in ALL if name != "Positions"],
    "gru without attention": ["Steps", "Beam tree", "Lens & attribution", "Compare"],
    "recurrent reader": ["Answer", "Lens & attribution", "Compare"],
    "patches": [name for name in READS if name != "Compare"],
    "captions": [name for name in ALL if name != "Compare"],
    "convolutional": ["Answer", "Lens & attribution"],
}


@pytest.fixture
def browser(stage: Stage) -> Iterator[Browser]:
    """Return the shared browser, for pages of separate servers; afterwards check its console and hosts."""
    yield stage.browser
    assert stage.browser.console() == []
    assert all(host.startswith("127.0.0.1:") for host in stage.browser.hosts())


@pytest.mark.parametrize("name", PANELS)
def test_panels_of_a_family(name: str, browser: Browser) -> None:
    model = small_model(name)
    with serving_here(make_app({"one": model})) as url:
        browser.open(url if model.config.model.reads_images else f"{url}/?text={text_for(name).replace('<', '%3C')}")
        browser.until(DONE)
        assert browser.texts("#tabs button") == PANELS[name]
        for title, panel in zip(browser.texts("#tabs button"), browser.data("#tabs button", "panel"), strict=True):
            browser.click(f"#tab-{panel}")
            browser.until("document.querySelector('#panel > [data-panel]')?.dataset.panel === arguments[0]", panel)
            panel_text = browser.text("#panel")
            assert panel_text.strip() and not re.search(r"undefined|NaN|\[object", panel_text), title
            unmarked = (
                "return [...document.querySelectorAll('g.edge')].filter((node) => !/\\d/.test(node.textContent)).length"
            )
            assert browser.run(unmarked) == 0, title
            assert browser.text("#problem") == ""
        browser.open("about:blank")
        # the browser logs responses with status 400, such as a missing lens; other messages would be errors of scripts
        messages = [line for line in browser.console() if "status of 400" not in line]
        assert messages == []


@contextmanager
def opened(browser: Browser, name: str, **state: str) -> Iterator[None]:
    """Open the page for a model of this family, with this state in its address."""
    with serving_here(make_app({"one": small_model(name)})) as url:
        browser.open(f"{url}/?{urlencode({'text': text_for(name), **state})}")
        browser.until(DONE)
        yield
        browser.open("about:blank")


@pytest.mark.parametrize("name", ["lstm, additive", "gru without attention"])
def test_the_described_state_has_the_size_of_the_recurrent_decoders(name: str, browser: Browser) -> None:
    network = small_model(name).network
    with torch.inference_mode():
        _, state = network.start(network.encode(text_input(small_model(name), text_for(name)).src), 1)
    num_state_numbers = sum(tensor.numel() for layer in state.layers for tensor in layer)
    with opened(browser, name, tab="steps"):
        description = browser.text("#cached")
    assert f"{num_state_numbers} numbers" in description
    assert ("attends to them" in description) == (state.source is not None)


def test_the_map_of_a_recurrent_model(browser: Browser) -> None:
    with opened(browser, "lstm, additive", tab="map", block="cross"):
        blocks = ["source", "encoder_recurrent", "target", "decoder_recurrent", "cross", "merge", "output"]
        assert browser.data("g.block", "block") == blocks
        assert "v · tanh(A h + B s), A, B: 22 × 22" in browser.text("#formula")
        browser.click("g.block[data-block='decoder_recurrent']")
        browser.until("document.querySelector('#formula').textContent.includes('W: 22 × 88')")


def test_masks_are_filled_in_the_text(browser: Browser) -> None:
    name = "encoder for masks"
    trace = small_model(name).trace(text_for(name))
    mask_position = next(number for number, position in enumerate(trace.source) if position.text == "<mask>")
    with opened(browser, name, tab="answer"):
        assert (
            browser.text("#output") == f"The old {trace.outputs[mask_position].text.removeprefix('▁')} eats the grass."
        )
        assert browser.text("#panel h3") == "Candidates for <mask>"
    with opened(browser, name, text="The old dog."):
        assert "no mask" in browser.text("#output")


def test_only_classifiers_have_a_field_for_labels(browser: Browser) -> None:
    for name, count in (("encoder for tags", 0), ("encoder for labels", 1)):
        with opened(browser, name):
            assert len(browser.texts("label:has(#target)")) == count
