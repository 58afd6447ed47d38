"""What the grammar hands out: an example with its gold alignment, and the pronoun in it."""

import re
from dataclasses import asdict, dataclass

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Pronoun:
    """One pronoun "it" with its gold antecedent; all indices count the words of `split_words`."""

    index: int
    antecedent: int
    distance: int
    target_index: int
    target_antecedent: int


@dataclass(frozen=True, slots=True)
class Example:
    """One sentence pair; `alignment` holds (source word, target word) index pairs."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    pronoun: Pronoun | None
    stems: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """All fields as plain lists, strings and numbers."""
        return {
            "source": self.source,
            "target": self.target,
            "alignment": [list(pair) for pair in self.alignment],
            "pronoun": asdict(self.pronoun) if self.pronoun else None,
            "stems": list(self.stems),
        }


def split_words(text: str) -> list[str]:
    """Words and punctuation marks, each on its own; the words that alignments and pronouns count."""
    return _WORD.findall(text)
