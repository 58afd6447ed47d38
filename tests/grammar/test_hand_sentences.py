"""Hand-written sentence pairs, by an author who read only docs/grammar.md: the grammar must agree with each."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from clearhead import grammar

FOLDER = Path(__file__).parent
RULES = FOLDER.parents[1] / "docs" / "grammar.md"


class Row(NamedTuple):
    """One line of the file."""

    rule: str
    english: str
    german: str


def read_rows() -> list[Row]:
    """All rows but comments and empty lines."""
    lines = (FOLDER / "hand_sentences.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line.strip() and not line.startswith("#"))
    return [Row(*row) for row in rows if row[0] != "rule"]


ROWS = read_rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}: {row.english}")
def test_the_grammar_agrees_with_the_author(row: Row) -> None:
    assert grammar.translate(row.english).target == row.german


def test_there_are_at_least_two_hundred_sentences() -> None:
    assert len({row.english for row in ROWS}) >= 200


def test_every_documented_rule_has_a_sentence() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(documented) > 40
    assert documented <= {row.rule for row in ROWS}
