"""axe-core over every panel, light and dark: no serious fault. It comes from npm, for tests only (`make test`)."""

import os
from pathlib import Path

import pytest

from tests.serving.conftest import Stage

pytestmark = pytest.mark.slow  # a browser, and a model trained for it

AXE = Path(os.environ.get("AXE", "node_modules/axe-core/axe.min.js"))
PANELS = ["attention", "steps", "tree", "whatif", "map", "positions", "lens", "compare"]
RUN = """const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations
        .filter((one) => ['serious', 'critical'].includes(one.impact))
        .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + node.failureSummary)])),
        (error) => done([String(error)]))"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("panel", PANELS)
def test_axe_finds_no_serious_fault(stage: Stage, panel: str, theme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not here: npm install --no-save axe-core")
    browser = stage.open(
        tab=panel, theme=theme, **({"other": "Because it was too old ."} if panel == "compare" else {})
    )
    browser.run(AXE.read_text(encoding="utf-8"))
    assert browser.run_async(RUN) == []
