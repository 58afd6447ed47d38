"""docs/runtime.md lists every setting of the model and of decoding."""

import re
from pathlib import Path

from clearhead.config import DecodingConfig, ModelConfig

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def fields_in_table(section: str) -> list[str]:
    """Return the field names in the first column of a table."""
    table = PAGE.read_text().split(f"| field of `{section}` |")[1].split("\n\n")[0]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_every_field_is_listed_once() -> None:
    assert sorted(fields_in_table("model")) == sorted(ModelConfig.model_fields)
    assert sorted(fields_in_table("decoding")) == sorted(DecodingConfig.model_fields)
