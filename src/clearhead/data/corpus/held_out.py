"""Split into training and validation records by a hash of the input text, independent of the order of the records.

A record is held out if the hash of its input, as a number from 0 to 1, is below a threshold. Lines added later
therefore do not move earlier lines, and all translations of a source are on the same side.

If too many records are below the threshold, it is halved until at most `max_valid` are, so the validation part has
between half of `max_valid` and `max_valid` records. Added lines may halve it once more, which returns some records to
training, but a training record never moves to validation as long as `share` stays the same. The exception is a corpus
so small that no hash is below the threshold: then the record with the lowest hash is held out.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple

import numpy as np

from clearhead.data.records import DiskRecords, Fractions, Mask, R
from clearhead.errors import ConfigError, DataError

BLOCK = 1 << 20  # number of hashes compared at a time


class HeldOutSplit(NamedTuple, Generic[R]):
    """Training and validation records of a corpus, with no input in common."""

    train: Sequence[R]
    valid: Sequence[R]


def split_held_out(records: Sequence[R], share: float = 0.02, max_valid: int = 2000) -> HeldOutSplit[R]:
    """Hold out about `share` of the inputs, and at most `max_valid` records unless a single input has more."""
    if isinstance(records, DiskRecords):
        is_valid_N = held_out_mask(records.hash_fractions(), share, max_valid)
        return HeldOutSplit(records.select(~is_valid_N), list(records.select(is_valid_N)))
    fraction_N = np.fromiter((hash_fraction(record.fields[0].encode()) for record in records), np.float64, len(records))
    is_valid_N = held_out_mask(fraction_N, share, max_valid)
    train = [record for record, is_valid in zip(records, is_valid_N, strict=True) if not is_valid]
    valid = [record for record, is_valid in zip(records, is_valid_N, strict=True) if is_valid]
    return HeldOutSplit(train, valid)


def find_overlap(train: Sequence[R], valid: Sequence[R]) -> list[R]:
    """Return the validation records whose input, their first field, is also the input of a training record."""
    if not isinstance(train, DiskRecords):
        inputs = {record.fields[0] for record in valid}
        shared = {text for record in train if (text := record.fields[0]) in inputs}
        return [record for record in valid if record.fields[0] in shared]
    valid_hashes = [hash_fraction(record.fields[0].encode()) for record in valid]
    train_hashes, shared_hashes = train.hash_fractions(), set[float]()
    for start in range(0, len(train_hashes), BLOCK):  # so that memory stays bounded
        shared_hashes.update(np.intersect1d(train_hashes[start : start + BLOCK], valid_hashes).tolist())
    return [record for record, value in zip(valid, valid_hashes, strict=True) if value in shared_hashes]


def held_out_mask(fraction_N: Fractions, share: float, max_valid: int) -> Mask:
    """Return which records are held out, given the hash fractions of their inputs."""
    if not 0 < share < 1:
        raise ConfigError(f"expected a validation share between 0 and 1, got {share}; try 0.02")
    if max_valid < 1:
        raise ConfigError(
            f"expected at least 1 as the maximum number of validation examples, got {max_valid}; try 2000"
        )
    if not len(fraction_N):
        raise DataError("expected examples to split into training and validation, found none; check the corpus")
    threshold = share
    while np.count_nonzero(fraction_N < threshold) > min(max_valid, len(fraction_N) - 1):
        threshold /= 2
    is_valid_N: Mask = (fraction_N < threshold) | (fraction_N == fraction_N.min())
    if is_valid_N.all():
        raise DataError(
            f"expected at least two different inputs, to hold one out for validation; found {len(fraction_N)} examples "
            "with the same input; add data or give a validation file"
        )
    return is_valid_N


def hash_fraction(source: bytes) -> float:
    """Return a hash of a text as a number from 0 to 1, the same on every machine and in every version."""
    return int.from_bytes(blake2b(source, digest_size=7).digest(), "big") / 2**56
