"""A held-out part of a corpus, decided by what a sentence says and not by where it stands.

A source goes to the validation part when a hash of its text, read as a number from 0 to 1, is below a threshold. So
lines added to a corpus later move no earlier line, the order of lines does not matter, and a source with several
translations is on one side with all of them.

The cap on the size bends this as little as it can: while too many pairs are below it, the threshold is halved. The
part then holds between about half the cap and the cap. Adding lines may halve it once more, which returns some pairs
to training; but a pair that was trained on is never moved to validation while `share` stays, except in a corpus so
small that no hash is below the threshold, where the pair with the lowest hash is held out.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple

import numpy as np

from clearhead.data.records import DiskRecords, Fractions, Mask, R
from clearhead.errors import ConfigError, DataError

BLOCK = 1 << 20  # hashes that are compared at a time


class HeldOutSplit(NamedTuple, Generic[R]):
    """The two parts of a corpus; no source is in both."""

    train: Sequence[R]
    valid: Sequence[R]


def split_held_out(pairs: Sequence[R], share: float = 0.02, max_valid: int = 2000) -> HeldOutSplit[R]:
    """Hold out about `share` of the sources, but not more than `max_valid` pairs unless one source alone has more."""
    if isinstance(pairs, DiskRecords):
        is_valid_N = held_out_mask(pairs.hash_fractions(), share, max_valid)
        return HeldOutSplit(pairs.select(~is_valid_N), list(pairs.select(is_valid_N)))
    place_N = np.fromiter(
        (hash_fraction(pair.fields[0].encode()) for pair in pairs), dtype=np.float64, count=len(pairs)
    )
    is_valid_N = held_out_mask(place_N, share, max_valid)
    train = [pair for pair, is_valid in zip(pairs, is_valid_N, strict=True) if not is_valid]
    valid = [pair for pair, is_valid in zip(pairs, is_valid_N, strict=True) if is_valid]
    return HeldOutSplit(train, valid)


def find_overlap(train: Sequence[R], valid: Sequence[R]) -> list[R]:
    """Return the validation records whose input, their first part, is also the input of a training record."""
    if not isinstance(train, DiskRecords):
        inputs = {record.fields[0] for record in valid}
        shared = {text for record in train if (text := record.fields[0]) in inputs}
        return [record for record in valid if record.fields[0] in shared]
    hashes = [hash_fraction(record.fields[0].encode()) for record in valid]
    train_hashes, known = train.hash_fractions(), set[float]()
    for start in range(0, len(train_hashes), BLOCK):  # so that memory stays bounded
        known.update(np.intersect1d(train_hashes[start : start + BLOCK], hashes).tolist())
    return [record for record, each in zip(valid, hashes, strict=True) if each in known]


def held_out_mask(place_N: Fractions, share: float, max_valid: int) -> Mask:
    """Which pairs are held out, by where their sources fall."""
    if not 0 < share < 1:
        raise ConfigError(f"the share held out for validation must be between 0 and 1, got {share}; try 0.02")
    if max_valid < 1:
        raise ConfigError(f"the cap on validation pairs must be at least 1, got {max_valid}; try 2000")
    if not len(place_N):
        raise DataError("expected pairs to split into training and validation, got none; check the corpus")
    threshold = share
    while np.count_nonzero(place_N < threshold) > min(max_valid, len(place_N) - 1):
        threshold /= 2
    is_valid_N: Mask = (place_N < threshold) | (place_N == place_N.min())
    if is_valid_N.all():
        raise DataError(
            f"expected at least two different sources to hold one out for validation, all {len(place_N)} pairs have "
            f"the same; add data or give a validation file"
        )
    return is_valid_N


def hash_fraction(source: bytes) -> float:
    """Where a text falls between 0 and 1; the same on every machine and in every version."""
    return int.from_bytes(blake2b(source, digest_size=7).digest(), "big") / 2**56
