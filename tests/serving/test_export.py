"""Export from the page: every drawing as SVG and PNG, and the trace as JSON."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.serving.browser import PATIENCE, Browser
from tests.serving.conftest import DONE, Stage

# panel -> further state of the address, and the names of the drawings that can be saved
DRAWINGS: dict[str, tuple[dict[str, str], list[str]]] = {
    "attention": ({"kind": "decoder"}, ["heads", "decoder.0.0", "arithmetic"]),
    "steps": ({"step": "3"}, ["step"]),
    "tree": ({}, ["beam-tree"]),
    "whatif": (
        {"whatif": "cross.0.1", "all_heads": "1", "edited_text": "The dog ."},
        ["what-if", "every-head", "edited-source"],
    ),
    "map": ({}, ["architecture"]),
    "positions": ({}, ["positions", "position-curves", "order"]),
    "lens": ({}, ["lens-table", "entropy", "attributed"]),
    "compare": ({"second_model": "pronouns-2"}, ["comparison"]),
}


@pytest.fixture
def downloads(stage: Stage, tmp_path: Path) -> Iterator[Path]:
    """Return the folder to which the browser downloads files."""
    parameters = {"behavior": "allow", "downloadPath": str(tmp_path)}
    stage.browser.ask("POST", "/goog/cdp/execute", {"cmd": "Page.setDownloadBehavior", "params": parameters})
    yield tmp_path


def saved(browser: Browser, selector: str, path: Path) -> Path:
    """Return the file that a click downloads: Chromium creates it empty and replaces it by the complete file."""
    browser.click(selector)
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"no {path.name}, only {[file.name for file in path.parent.iterdir()]}"
        time.sleep(0.02)
    return path


@pytest.mark.parametrize("panel", DRAWINGS)
def test_every_drawing_can_be_saved(stage: Stage, downloads: Path, panel: str) -> None:
    state, names = DRAWINGS[panel]
    browser = stage.open(tab=panel, **state)
    assert [label.removeprefix("SVG: save ") for label in browser.run(
        "return [...document.querySelectorAll('#panel .saves button:first-child')].map(node => node.ariaLabel)"
    )] == names  # fmt: skip
    for name in names:
        drawing = saved(browser, f"button[aria-label='SVG: save {name}']", downloads / f"{name}.svg")
        root = ElementTree.fromstring(drawing.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg") and len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 1, name
        image = Image.open(saved(browser, f"button[aria-label='PNG: save {name}']", downloads / f"{name}.png"))
        assert image.width == pytest.approx(2 * float(root.attrib["width"]), abs=2)
        pixels = np.asarray(image.convert("L"))
        assert pixels.min() < 110 and len(np.unique(pixels)) > 20, name


def test_a_saved_head_is_complete(stage: Stage, downloads: Path) -> None:
    """Labels and weights are complete although the page shows them in a box that scrolls."""
    stage.browser.size(400, 300)
    browser = stage.open(kind="cross", layer="0", head="0")
    drawing = saved(browser, "button[aria-label='SVG: save cross.0.0']", downloads / "cross.0.0.svg")
    root = ElementTree.fromstring(drawing.read_text(encoding="utf-8"))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for position in stage.trace.source:
        assert position.text.removeprefix("▁") in words
    inner = [element for element in root.iter("{http://www.w3.org/2000/svg}svg") if element is not root]
    assert {element.attrib["class"] for element in inner} == {"lines", "matrix"}
    boxes = [tuple(float(element.attrib[key]) for key in ("x", "y", "width", "height")) for element in inner]
    assert all(x + width <= float(root.attrib["width"]) for x, _, width, _ in boxes)
    assert max(y + height for _, y, _, height in boxes) <= float(root.attrib["height"])


def test_the_trace_can_be_saved(stage: Stage, downloads: Path) -> None:
    browser = stage.open()
    saved_trace = json.loads(saved(browser, "#save", downloads / "trace.json").read_text(encoding="utf-8"))
    assert (
        saved_trace["source_text"] == stage.trace.source_text and saved_trace["target_text"] == stage.trace.target_text
    )
    for record, attention in zip(saved_trace["attention"], stage.trace.attention, strict=True):
        np.testing.assert_allclose(np.array(record["weights"]), attention.weights_HTS, atol=1e-6)
    browser.until(DONE)
