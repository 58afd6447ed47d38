"""Every family in the page: the panels that make sense for it are drawn, the others are absent, not broken."""

from collections.abc import Iterator

import pytest

from clearhead.serving.app import make_app
from tests.inspection.small import small, text_for
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
    """The shared browser, whose console must be clean at the end; these pages come from a server of their own."""
    yield stage.browser
    assert stage.browser.console() == []
    assert all(host.startswith("127.0.0.1:") for host in stage.browser.hosts())


@pytest.mark.parametrize("name", PANELS)
def test_panels_of_a_family(name: str, browser: Browser) -> None:
    model = small(name)
    with serving_here(make_app({"one": model})) as url:
        browser.open(url if model.config.model.reads_pictures else f"{url}/?text={text_for(name).replace('<', '%3C')}")
        browser.until(DONE)
        assert browser.texts("#tabs button") == PANELS[name]
        for title, panel in zip(browser.texts("#tabs button"), browser.data("#tabs button", "panel"), strict=True):
            browser.click(f"#tab-{panel}")
            browser.until("document.querySelector('#panel > [data-panel]')?.dataset.panel === arguments[0]", panel)
            assert browser.text("#panel").strip(), title
            assert browser.text("#problem") == ""
        browser.open("about:blank")
        # a browser notes an answer such as "this network has no such stack" as an error; ours would come from scripts
        noted = [line for line in browser.console() if "status of 400" not in line]
        assert noted == []
