"""docs/runtime.md lists every setting of the model and of decoding, and where each value runs."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.runtime import why_unsupported

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"
# A model in which every value of the other fields can be set.
BASE = {"family": "transformer", "model_dim": 16, "num_heads": 4, "tied_embeddings": "target"}


def table(section: str) -> dict[str, str]:
    """Return the rows of a table: field name -> second column."""
    lines = PAGE.read_text().split(f"| field of `{section}` |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {name: text for names, text in cells for name in re.findall(r"`(\w+)`", names)}


def fields_in_table(section: str) -> list[str]:
    lines = PAGE.read_text().split(f"| field of `{section}` |")[1].split("\n\n")[0].splitlines()[2:]
    return [name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])]


@pytest.mark.parametrize(
    ("section", "config"), [("model", ModelConfig), ("decoding", DecodingConfig), ("sampling", SamplingConfig)]
)
def test_every_field_is_listed_once(section: str, config: Any) -> None:
    assert sorted(fields_in_table(section)) == sorted(config.model_fields)


def values_of(field: str) -> list[Any]:
    """Return the values of a field with few of them."""
    annotation = ModelConfig.model_fields[field].annotation
    return [False, True] if annotation is bool else [*get_args(annotation)]


@pytest.mark.parametrize("field", [field for field in ModelConfig.model_fields if values_of(field)])
def test_values_run_where_the_table_says(field: str) -> None:
    """A cell is `yes`, `torch`, or lists values: `a, b; c, d: torch`."""
    cell = table("model")[field]
    for value in values_of(field):
        try:
            model = ModelConfig.model_validate({**BASE, field: value})
        except ValidationError:
            continue  # a value for other families
        in_torch = re.findall(r"[\w, ]+(?=(?: \([^)]*\))?: torch)", cell)
        words = re.findall(r"\w+", " ".join(in_torch))
        is_torch = str(value).lower() in words
        assert bool(why_unsupported(model)) == is_torch, (value, cell)
