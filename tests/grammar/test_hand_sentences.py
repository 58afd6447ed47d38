"""Hand-written sentence pairs, whose author read only docs/grammar.md: `translate` must return each of them."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from clearhead import grammar

FOLDER = Path(__file__).parent
RULES = FOLDER.parents[1] / "docs" / "grammar.md"


class Row(NamedTuple):
    """Line of the file."""

    rule: str
    english: str
    german: str


def read_rows() -> list[Row]:
    """Return all rows except comments and empty lines."""
    lines = (FOLDER / "hand_sentences.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line.strip() and not line.startswith("#"))
    return [Row(*row) for row in rows if row[0] != "rule"]


ROWS = read_rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}: {row.english}")
def test_translation_equals_the_hand_written_one(row: Row) -> None:
    assert grammar.translate(row.english).target == row.german


def test_there_are_at_least_two_hundred_sentences() -> None:
    assert len({row.english for row in ROWS}) >= 200


def test_every_documented_rule_has_a_sentence() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(documented) > 40
    assert documented <= {row.rule for row in ROWS}
