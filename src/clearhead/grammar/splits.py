"""Which split an example belongs to, decided by a hash of its content alone: disjoint for any seed and size."""

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b

from clearhead.grammar.realization import Realised

SPLITS = ("train", "valid", "test", "test_unseen", "test_pronoun")
# One combination in so many is held out of every split but test_unseen.
HELD_OUT = 20


def stable_hash(text: str) -> int:
    """64 bits that are the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


@cache
def is_held_out(first: str, second: str) -> bool:
    """Whether two stems meet only in test_unseen."""
    return stable_hash(f"{first}|{second}") % HELD_OUT == 0


def has_held_out(combinations: Iterable[tuple[str, str]]) -> bool:
    """Whether a sentence with these combinations is for test_unseen only."""
    return any(is_held_out(first, second) for first, second in combinations)


def split_of(realised: Realised, digest: int) -> str:
    """The split of an example whose English sentence has this hash."""
    if has_held_out(realised.combinations):
        return "test_unseen"
    bucket = digest % 100
    if bucket < 5:
        return "valid"
    if bucket < 10:
        return "test"
    if bucket < 20 and realised.has_pronoun():
        return "test_pronoun"
    return "train"
