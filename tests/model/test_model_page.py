"""Names on docs/model.md exist in the package."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
NAMES = sorted({*re.findall(r"`([a-z_]+(?:\.[A-Za-z_0-9]+)+)(?:\(\))?`", PAGE)})
SETTINGS = ("model.",)


def resolve(name: str) -> object:
    """Return the object of a dotted name; raise AttributeError or ImportError if it does not exist."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        package = "clearhead" if words[0] == "kernels" else "clearhead.model"
        try:
            resolved: object = importlib.import_module(".".join((package, *words[:count])))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            resolved = getattr(resolved, word)
        return resolved
    raise AttributeError(name)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(SETTINGS) and not name.endswith(".py")])
def test_names_exist(name: str) -> None:
    assert resolve(name) is not None


def test_enough_names_are_found() -> None:
    assert len(NAMES) > 30
    with pytest.raises(AttributeError):
        resolve("attention.MultiHeadAttention.attend")


def test_settings_exist() -> None:
    from clearhead.config import ModelConfig

    settings = [name.removeprefix("model.").partition("=") for name in re.findall(r"`(model\.[a-z_=]+)`", PAGE)]
    assert settings and {name for name, _, _ in settings} <= {*ModelConfig.model_fields}
    for name, _, value in settings:
        if value:
            ModelConfig.model_validate({name: value})


def test_files_exist() -> None:
    root = Path(__file__).parents[2]
    files = re.findall(r"`([a-z_/]+\.py)`", PAGE)
    assert files and all((root / "src" / "clearhead" / "model" / file).exists() for file in files)
