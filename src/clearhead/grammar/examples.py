"""Examples with gold alignment and pronoun, and their splits.

The split is computed from a hash of the content, so splits are disjoint for any seed and number of pairs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

from clearhead.json_format import JsonResult

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Pronoun:
    """One pronoun "it" with its gold antecedent; all indices refer to the words returned by `split_words`."""

    index: int
    antecedent: int
    distance: int
    target_index: int
    target_antecedent: int


@dataclass(frozen=True, slots=True)
class Example(JsonResult):
    """One sentence pair; `alignment` contains (source word, target word) index pairs."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    pronoun: Pronoun | None
    stems: tuple[str, ...]


def split_words(text: str) -> list[str]:
    """Return words and punctuation marks as separate items; alignments and pronouns use their indices."""
    return _WORD.findall(text)


SPLITS = ("train", "valid", "test", "test_unseen", "test_pronoun")
HELD_OUT_ONE_IN = 20  # one combination of two stems in 20 occurs only in test_unseen


def stable_hash(text: str) -> int:
    """Return a 64-bit hash that is the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


@cache
def is_held_out(first: str, second: str) -> bool:
    """Return whether the combination of two stems occurs only in test_unseen."""
    return stable_hash(f"{first}|{second}") % HELD_OUT_ONE_IN == 0


def has_held_out(combinations: Iterable[tuple[str, str]]) -> bool:
    """Return whether a sentence with these combinations belongs to test_unseen."""
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
