"""docs/scale.md: its figures are those of the formulas, and its commands name existing recipes."""

import re
from pathlib import Path

import pytest
from benchmarks.scale import STEPS, TOKENS, estimate, parameters_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_the_table_contains_the_estimates() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| paper-") and " x " in line]
    assert rows == [str(row) for row in estimate()]


@pytest.mark.parametrize("preset", STEPS)
def test_parameters_and_operations_are_correct(preset: str) -> None:
    parameters = parameters_of(preset)
    work = 6 * parameters * TOKENS * STEPS[preset]
    assert f"| {preset} | {parameters:,} | {STEPS[preset]:,} | {work:.2e} |" in TEXT


def test_recipes_have_the_steps_of_the_paper() -> None:
    import tomllib

    for name, preset in (("base", "paper-base"), ("big", "paper-big")):
        path = f"recipes/wmt14-ende-{name}.toml"
        settings = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))
        assert settings["preset"] == preset and settings["training"]["steps"] == STEPS[preset]
        assert path in TEXT
    assert re.search(r"^torchrun --nproc-per-node 8 .*-m clearhead train", TEXT, re.M)
