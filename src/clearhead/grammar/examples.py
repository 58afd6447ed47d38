"""What the grammar hands out: an example with its gold alignment, and the pronoun in it.

Which split an example belongs to, decided by a hash of its content alone: disjoint for any seed and size.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b

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


SPLITS = ("train", "valid", "test", "test_unseen", "test_pronoun")
# One combination in so many is held out of every split but test_unseen.
HELD_OUT_ONE_IN = 20


def stable_hash(text: str) -> int:
    """64 bits that are the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


@cache
def is_held_out(first: str, second: str) -> bool:
    """Whether two stems meet only in test_unseen."""
    return stable_hash(f"{first}|{second}") % HELD_OUT_ONE_IN == 0


def has_held_out(combinations: Iterable[tuple[str, str]]) -> bool:
    """Whether a sentence with these combinations is for test_unseen only."""
    return any(is_held_out(first, second) for first, second in combinations)


def assign_split(combinations: Iterable[tuple[str, str]], has_pronoun: bool, digest: int) -> str:
    """Return the split of an example, given its word combinations and the hash of its English sentence."""
    if has_held_out(combinations):
        return "test_unseen"
    bucket = digest % 100
    if bucket < 5:
        return "valid"
    if bucket < 10:
        return "test"
    if bucket < 20 and has_pronoun:
        return "test_pronoun"
    return "train"
