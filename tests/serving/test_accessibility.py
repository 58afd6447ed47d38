"""axe-core finds no serious fault in any panel, light or dark. It is installed by npm, for tests only."""

import os
import shutil
from pathlib import Path

import pytest

from tests.serving.browser import miss
from tests.serving.conftest import Stage

AXE = Path(os.environ.get("AXE", "node_modules/axe-core/axe.min.js"))
PANELS = ["attention", "steps", "tree", "whatif", "map", "positions", "lens", "compare"]
RUN = """const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations
        .filter((one) => ['serious', 'critical'].includes(one.impact))
        .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + node.failureSummary)])),
        (error) => done([String(error)]))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script; requested first, so that no browser is started without it."""
    if not AXE.exists():
        is_forgotten = shutil.which("npm") is not None and not AXE.parents[1].joinpath(".unreachable").exists()
        miss("axe-core is not here: `make browser` fetches it with npm", is_failure=is_forgotten)
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("panel", PANELS)
def test_axe_finds_no_serious_fault(axe: str, stage: Stage, panel: str, theme: str) -> None:
    browser = stage.open(
        tab=panel, theme=theme, **({"second_text": "Because it was too old ."} if panel == "compare" else {})
    )
    browser.run(axe)
    assert browser.run_async(RUN) == []
