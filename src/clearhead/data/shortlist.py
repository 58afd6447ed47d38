"""Vocabulary shortlists: the few target pieces that a sentence is likely to need, by the pieces of its source.

A shortlist is a file beside a model, made once from pairs such as those it was trained on. Knows ids, nothing of text.

V source vocabulary, L pieces of all lists, F pieces that every sentence gets

Which target pieces a source piece becomes: IBM Model 1 (Brown et al., 1993, section 4.1) over pairs of ids.

    p(t | s) is learned so that each target piece of a pair is explained by one of its source pieces, or by none.

E events (a source piece that may explain a target piece of the same pair), P different (source, target) pairs
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from clearhead.errors import DataError
from clearhead.files import write_atomically

Ids = NDArray[np.int64]
Probabilities = NDArray[np.float64]
TokenSequences = Sequence[Sequence[int]]

ITERATIONS = 5
_CHUNK_PAIRS = 2000  # pairs whose events are held at a time
_MAX_PENDING_KEYS = 1 << 23  # keys of several chunks that are held before they are joined


@dataclass(frozen=True)
class TranslationTable:
    """p(target piece | source piece), for all that stood in one pair. The last source id stands for no piece."""

    sources_P: Ids
    targets_P: Ids
    probability_P: Probabilities

    def top_targets(self, count: int, least: float) -> tuple[Ids, Ids]:
        """The pairs of each source piece and its `count` likeliest targets, those less likely than `least` left out."""
        order = np.lexsort((self.targets_P, -self.probability_P, self.sources_P))
        sources = self.sources_P[order]
        begins = np.searchsorted(sources, sources)  # where the targets of this source begin
        is_kept = (np.arange(len(order)) - begins < count) & (self.probability_P[order] >= least)
        return sources[is_kept], self.targets_P[order][is_kept]


def train_ibm_model1(
    sources: TokenSequences, targets: TokenSequences, source_size: int, target_size: int, rounds: int = ITERATIONS
) -> TranslationTable:
    """Expectation maximisation from equal probabilities; the result does not depend on the order of the pairs."""
    keys_P = _unique_keys(keys_E for keys_E, _ in _events(sources, targets, source_size, target_size))
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
    return TranslationTable(sources_P, targets_P, probability_P)


def _unique_keys(parts: Iterator[Ids]) -> Ids:
    """Each key once, in order; not many more are held than there are different ones."""
    pending, waiting = [np.zeros(0, dtype=np.int64)], 0
    for keys_E in parts:
        pending.append(np.unique(keys_E))
        waiting += len(pending[-1])
        if waiting > _MAX_PENDING_KEYS:
            pending, waiting = [np.unique(np.concatenate(pending))], 0
    return np.unique(np.concatenate(pending))


def _events(
    sources: TokenSequences, targets: TokenSequences, source_size: int, target_size: int
) -> Iterator[tuple[Ids, Ids]]:
    """keys_E, source * target_size + target; and explained_E, which target piece of the chunk each would explain."""
    for first in range(0, len(sources), _CHUNK_PAIRS):
        keys, explained, count = [], [], 0
        for source, target in zip(
            sources[first : first + _CHUNK_PAIRS], targets[first : first + _CHUNK_PAIRS], strict=True
        ):
            from_E = np.repeat(np.array([*source, source_size], dtype=np.int64), len(target))
            keys.append(from_E * target_size + np.tile(np.array(target, dtype=np.int64), len(source) + 1))
            explained.append(np.tile(np.arange(count, count + len(target)), len(source) + 1))
            count += len(target)
        yield np.concatenate(keys), np.concatenate(explained)


FORMAT = "clearhead-shortlist-1"
_METADATA = "shortlist"
CANDIDATES_PER_TOKEN, NUM_FREQUENT, MIN_PROBABILITY = 50, 100, 1e-4
_ARRAYS = ("offsets", "lists", "frequent")


@dataclass(frozen=True)
class Shortlist:
    """For each source piece the target pieces that it may become, and those that may stand in any sentence."""

    offsets_V1: NDArray[np.int32]
    lists_L: NDArray[np.int32]  # those of piece s from offsets[s] up to offsets[s + 1]
    frequent_F: NDArray[np.int32]
    vocab_size: int
    """Of the target."""
    fingerprint: str
    """Of the tokenizer whose ids these are."""

    def allowed_targets(self, source: Sequence[int]) -> tuple[int, ...]:
        """The target pieces for a sentence, in the order of their ids."""
        bounds = ((self.offsets_V1[piece], self.offsets_V1[piece + 1]) for piece in {*source})
        parts = [self.lists_L[begin:end] for begin, end in bounds]
        return tuple(np.unique(np.concatenate((*parts, self.frequent_F))).tolist())

    @cached_property
    def mean_length(self) -> float:
        """Pieces in the list of a source piece, on average over those that have one."""
        lengths = np.diff(self.offsets_V1)
        return float(lengths[lengths > 0].mean()) if lengths.any() else 0.0

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal lists give equal bytes.

        The metadata is one entry, because safetensors writes several in random order.
        """
        arrays = dict(zip(_ARRAYS, (self.offsets_V1, self.lists_L, self.frequent_F), strict=True))
        return save(arrays, {_METADATA: f"{FORMAT} {self.vocab_size} {self.fingerprint}"})

    def save(self, path: Path) -> None:
        """Writes the file, all of it or nothing."""
        try:
            write_atomically(path, self.to_bytes())
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}; choose another file") from error

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> "Shortlist":
        """Reads a file that was made for this tokenizer."""
        arrays, vocab_size, tokenizer = _read(path)
        if tokenizer != fingerprint:
            raise DataError(
                f"{path} was made for another tokenizer than this model's; make one with clearhead shortlist"
            )
        offsets, lists, frequent = (arrays[name] for name in _ARRAYS)
        found = cls(offsets, lists, frequent, vocab_size, fingerprint)
        ids = np.concatenate((found.lists_L, found.frequent_F))
        is_sound = len(ids) and ids.min() >= 0 and ids.max() < found.vocab_size
        if not is_sound or offsets[0] or offsets[-1] != len(found.lists_L) or (np.diff(offsets) < 0).any():
            raise DataError(f"{path} is damaged: its lists do not fit together; make it again")
        return found


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], int, str]:
    """Return the arrays, the vocabulary size and the fingerprint of the tokenizer."""
    try:
        with safe_open(path, "numpy") as file:
            about = (file.metadata() or {}).get(_METADATA, "").split()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read {path}: {error}; make it with clearhead shortlist") from error
    if len(about) != 3 or about[0] != FORMAT or {*arrays} != {*_ARRAYS} or not about[1].isdecimal():
        raise DataError(f"{path} is no shortlist; make one with clearhead shortlist DIR PAIRS --out FILE")
    return arrays, int(about[1]), about[2]


def make_shortlist(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    sizes: tuple[int, int],
    always: Sequence[int],
    fingerprint: str,
    best: int = CANDIDATES_PER_TOKEN,
    frequent: int = NUM_FREQUENT,
    copies: Sequence[int] = (),
) -> Shortlist:
    """From pairs of ids: the `best` likeliest targets of each source piece, and the `frequent` ones of all.

    `sizes` of both vocabularies; `always`: ids that every sentence gets; `copies`: ids that may become themselves, as
    they may where both sides have one vocabulary.
    """
    source_size, target_size = sizes
    lexicon = train_ibm_model1(sources, targets, source_size, target_size)
    from_N, to_N = lexicon.top_targets(best, MIN_PROBABILITY)
    from_N, to_N = (np.concatenate((each, np.array(copies, dtype=np.int64))) for each in (from_N, to_N))
    pairs_N2 = np.unique(np.stack((from_N, to_N), 1)[from_N < source_size], axis=0)
    offsets_V1 = np.searchsorted(pairs_N2[:, 0], np.arange(source_size + 1))
    counts = np.bincount([token for target in targets for token in target], minlength=target_size)
    common = [token for token in np.argsort(-counts, kind="stable")[:frequent].tolist() if counts[token]]
    chosen = np.array(sorted({*common, *always}), dtype=np.int32)
    return Shortlist(offsets_V1.astype(np.int32), pairs_N2[:, 1].astype(np.int32), chosen, target_size, fingerprint)
