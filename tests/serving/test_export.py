"""What can be taken out of the page: any picture as SVG and PNG, the trace as JSON; as files, by clicks."""

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

# panel -> more of the address, and what can be saved there
PICTURES: dict[str, tuple[dict[str, str], list[str]]] = {
    "attention": ({"kind": "decoder"}, ["heads", "decoder.0.0", "arithmetic"]),
    "steps": ({"step": "3"}, ["step"]),
    "tree": ({}, ["beam-tree"]),
    "whatif": ({"try": "cross.0.1", "all": "1", "edit": "The dog ."}, ["what-if", "every-head", "edited-source"]),
    "map": ({}, ["architecture"]),
    "positions": ({}, ["positions", "positions-by-place", "order"]),
    "lens": ({}, ["lens-table", "entropy", "attributed"]),
    "compare": ({"second": "pronouns-2"}, ["comparison"]),
}


@pytest.fixture
def downloads(stage: Stage, tmp_path: Path) -> Iterator[Path]:
    """Where files go that the page gives out."""
    wanted = {"behavior": "allow", "downloadPath": str(tmp_path)}
    stage.browser.ask("POST", "/goog/cdp/execute", {"cmd": "Page.setDownloadBehavior", "params": wanted})
    yield tmp_path


def saved(browser: Browser, selector: str, path: Path) -> Path:
    """The file that a click gives: Chromium holds its name with an empty one until it renames the whole one to it."""
    browser.click(selector)
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"no {path.name}, only {[one.name for one in path.parent.iterdir()]}"
        time.sleep(0.02)
    return path


@pytest.mark.parametrize("panel", PICTURES)
def test_any_picture_can_be_saved(stage: Stage, downloads: Path, panel: str) -> None:
    state, names = PICTURES[panel]
    browser = stage.open(tab=panel, **state)
    assert [label.removeprefix("SVG: save ") for label in browser.run(
        "return [...document.querySelectorAll('#panel .saves button:first-child')].map(one => one.ariaLabel)"
    )] == names  # fmt: skip
    for name in names:
        drawing = saved(browser, f"button[aria-label='SVG: save {name}']", downloads / f"{name}.svg")
        root = ElementTree.fromstring(drawing.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg") and len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 1, name
        picture = Image.open(saved(browser, f"button[aria-label='PNG: save {name}']", downloads / f"{name}.png"))
        assert picture.width == pytest.approx(2 * float(root.attrib["width"]), abs=2)
        pixels = np.asarray(picture.convert("L"))
        assert pixels.min() < 110 and len(np.unique(pixels)) > 20, name


def test_a_saved_head_is_whole(stage: Stage, downloads: Path) -> None:
    """The words of its rows and columns and the weights themselves, though the page shows it in a box that scrolls."""
    stage.browser.size(400, 300)
    browser = stage.open(kind="cross", layer="0", head="0")
    drawing = saved(browser, "button[aria-label='SVG: save cross.0.0']", downloads / "cross.0.0.svg")
    root = ElementTree.fromstring(drawing.read_text(encoding="utf-8"))
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    for place in stage.trace.source:
        assert place.text.removeprefix("▁") in words
    inner = [one for one in root.iter("{http://www.w3.org/2000/svg}svg") if one is not root]
    assert {one.attrib["class"] for one in inner} == {"lines", "matrix"}
    boxes = [tuple(float(one.attrib[key]) for key in ("x", "y", "width", "height")) for one in inner]
    assert all(x + width <= float(root.attrib["width"]) for x, _, width, _ in boxes)
    assert max(y + height for _, y, _, height in boxes) <= float(root.attrib["height"])


def test_the_trace_can_be_saved(stage: Stage, downloads: Path) -> None:
    browser = stage.open()
    found = json.loads(saved(browser, "#save", downloads / "trace.json").read_text(encoding="utf-8"))
    assert found["source_text"] == stage.trace.source_text and found["target_text"] == stage.trace.target_text
    for record, one in zip(found["attention"], stage.trace.attention, strict=True):
        np.testing.assert_allclose(np.array(record["weights"]), one.weights_HTS, atol=1e-6)
    browser.until(DONE)
