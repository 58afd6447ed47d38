"""Check that the example in docs/inspection.md runs, and that the functions named in its text exist."""

import importlib
import re
from pathlib import Path

from tests.trained_model import Trained

PAGE = (Path(__file__).parents[2] / "docs" / "inspection.md").read_text(encoding="utf-8")


def test_the_example_runs(trained: Trained) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert '"runs/de"' in code
    names: dict[str, object] = {}
    exec(code.replace('"runs/de"', repr(str(trained.folder))), names)
    assert names["ablated"] is not names["model"]


def test_names_of_the_text_exist() -> None:
    pairs = re.findall(r"`(\w+)`\s+in\s+`(clearhead\.[\w.]+)`", PAGE)
    assert len(pairs) == 3
    for name, module in pairs:
        assert callable(getattr(importlib.import_module(module), name))
