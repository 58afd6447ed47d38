"""docs/runtime.md lists every setting of the model and of decoding, and where each value runs."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import exact_tokens
from clearhead.decoding.requests import Constraints, Request
from clearhead.engines.native_engine import NativeEngine
from clearhead.runtime import why_unsupported
from tests.runtime.models import native, random_model

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


# A value of every field, as settings of decoding or as it arrives in a request.
SAMPLE: dict[str, Any] = {"method": "sample"}
USED: dict[str, dict[str, tuple[dict[str, Any], Request]]] = {
    "decoding": {
        **{
            name: ({name: value}, Request((5, 3)))
            for name, value in {
                "beam_size": 7, "length_penalty": 0.9, "length_penalty_form": "gnmt", "max_length": "9",
                "stopping_rule": "cannot_improve", "min_length": 3, "coverage_penalty": 0.3, "no_repeat_ngram_size": 2,
            }.items()
        },
        "beam_groups": ({"beam_groups": 2}, Request((5, 3))),
        "diversity_penalty": ({"beam_groups": 2, "diversity_penalty": 0.9}, Request((5, 3))),
        "prefix": ({}, Request((5, 3), constraints=Constraints((7,)))),
        "include": ({}, Request((5, 3), constraints=Constraints(include=LexicalConstraints(((7,),))))),
        "exclude": ({}, Request((5, 3), constraints=Constraints(exclude=(exact_tokens((7,)),)))),
    },
    "sampling": {
        "max_tokens": ({}, Request((5, 3), limit=9)),
        "stop": ({}, Request((5, 3), constraints=Constraints(is_stopped=lambda _: False))),
        "add_start_token": ({}, Request((2, 5, 3))),
        **{
            name: ({**SAMPLE, "sampling": {name: value}}, Request((5, 3)))
            for name, value in {"temperature": 0.9, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "seed": 5}.items()
        },
    },
}  # fmt: skip
IN_CORE, IN_PYTHON = "in the core", "in Python, over the core's steps"


@pytest.fixture(scope="module")
def engine() -> NativeEngine:
    return NativeEngine(native(random_model()))


@pytest.mark.parametrize(("section", "field"), [(section, field) for section in USED for field in table(section)])
def test_searches_run_where_the_table_says(section: str, field: str, engine: NativeEngine) -> None:
    cell = table(section)[field]
    if field == "method":
        assert cell == f"search: {IN_CORE}; sample: {IN_PYTHON}"
        for method, is_in_core in (("search", True), ("sample", False)):
            settings = DecodingConfig.model_validate({"method": method})
            assert engine.runs_in_core(Request((5, 3)), settings) == is_in_core
    elif field == "sampling":
        assert cell == "see below"
    else:
        options, request = USED[section][field]
        where = {IN_CORE: True, IN_PYTHON: False, "before the search": True}
        assert engine.runs_in_core(request, DecodingConfig.model_validate(options)) == where[cell]


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
