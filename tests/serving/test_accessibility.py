"""Accessibility of every panel in both themes, checked by axe-core, which npm installs for the tests."""

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
        .filter((violation) => ['serious', 'critical'].includes(violation.impact))
        .map((violation) => [violation.id, violation.nodes.slice(0, 3)
            .map((node) => node.html.slice(0, 160) + node.failureSummary)])),
        (error) => done([String(error)]))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script of axe-core; tests request it before `stage`, so that no browser starts if it is missing."""
    if not AXE.exists():
        is_forgotten = shutil.which("npm") is not None and not AXE.parents[1].joinpath(".unreachable").exists()
        miss("axe-core is missing: install it with `make browser`, which needs npm", is_failure=is_forgotten)
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("panel", PANELS)
def test_axe_finds_no_serious_fault(axe: str, stage: Stage, panel: str, theme: str) -> None:
    browser = stage.open(
        tab=panel, theme=theme, **({"second_text": "Because it was too old ."} if panel == "compare" else {})
    )
    browser.run(axe)
    assert browser.run_async(RUN) == []
