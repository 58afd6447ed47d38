"""Which target pieces a source piece becomes: IBM Model 1 (Brown et al., 1993, section 4.1) over pairs of ids.

    p(t | s) is learned so that each target piece of a pair is explained by one of its source pieces, or by none.

E events (a source piece that may explain a target piece of the same pair), P different (source, target) pairs
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Side = Sequence[Sequence[int]]

ROUNDS = 5
_CHUNK = 2000  # pairs whose events are held at a time
_HELD = 1 << 23  # keys of several chunks that are held before they are joined


@dataclass(frozen=True)
class Lexicon:
    """p(target piece | source piece), for all that stood in one pair. The last source id stands for no piece."""

    sources_P: Ids
    targets_P: Ids
    probability_P: Probabilities

    def best(self, count: int, least: float) -> tuple[Ids, Ids]:
        """The pairs of each source piece and its `count` likeliest targets, those less likely than `least` left out."""
        order = np.lexsort((self.targets_P, -self.probability_P, self.sources_P))
        sources = self.sources_P[order]
        begins = np.searchsorted(sources, sources)  # where the targets of this source begin
        is_kept = (np.arange(len(order)) - begins < count) & (self.probability_P[order] >= least)
        return sources[is_kept], self.targets_P[order][is_kept]


def learn_lexicon(sources: Side, targets: Side, source_size: int, target_size: int, rounds: int = ROUNDS) -> Lexicon:
    """Expectation maximisation from equal probabilities; the result does not depend on the order of the pairs."""
    keys_P = _different(keys_E for keys_E, _ in _events(sources, targets, source_size, target_size))
    sources_P, targets_P = keys_P // target_size, keys_P % target_size
    probability_P = np.ones(len(keys_P))
    for _ in range(rounds):
        counts_P = np.zeros(len(keys_P))
        for keys_E, explained_E in _events(sources, targets, source_size, target_size):
            places_E = np.searchsorted(keys_P, keys_E)
            share_E = probability_P[places_E]
            share_E = share_E / np.bincount(explained_E, share_E)[explained_E]
            counts_P += np.bincount(places_E, share_E, minlength=len(keys_P))
        probability_P = counts_P / np.bincount(sources_P, counts_P, minlength=source_size + 1)[sources_P]
    return Lexicon(sources_P, targets_P, probability_P)


def _different(parts: Iterator[Ids]) -> Ids:
    """Each key once, in order; not many more are held than there are different ones."""
    pending, waiting = [np.zeros(0, dtype=np.int64)], 0
    for keys_E in parts:
        pending.append(np.unique(keys_E))
        waiting += len(pending[-1])
        if waiting > _HELD:
            pending, waiting = [np.unique(np.concatenate(pending))], 0
    return np.unique(np.concatenate(pending))


def _events(sources: Side, targets: Side, source_size: int, target_size: int) -> Iterator[tuple[Ids, Ids]]:
    """keys_E, source * target_size + target; and explained_E, which target piece of the chunk each would explain."""
    for first in range(0, len(sources), _CHUNK):
        keys, explained, count = [], [], 0
        for source, target in zip(sources[first : first + _CHUNK], targets[first : first + _CHUNK], strict=True):
            from_E = np.repeat(np.array([*source, source_size], dtype=np.int64), len(target))
            keys.append(from_E * target_size + np.tile(np.array(target, dtype=np.int64), len(source) + 1))
            explained.append(np.tile(np.arange(count, count + len(target)), len(source) + 1))
            count += len(target)
        yield np.concatenate(keys), np.concatenate(explained)
