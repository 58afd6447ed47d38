"""Vocabulary shortlists: the target tokens that the translation of a sentence is likely to contain.

Restricting the output projection to these tokens speeds up decoding. The candidates of each source token are learned
with IBM Model 1 (Brown et al., 1993, section 4.1) from token ids of pairs such as the training data: p(t | s) is the
probability that target token t is the translation of source token s, where each target token of a pair is explained by
one source token of the pair, or by the null token. A shortlist is one file, next to a model.

V source vocabulary, L candidates of all source tokens, F tokens allowed in every sentence
E events (a source token and a target token of the same pair), P distinct (source, target) token pairs
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

FORMAT = "clearhead-shortlist-1"
ITERATIONS = 5
CANDIDATES_PER_TOKEN, NUM_FREQUENT, MIN_PROBABILITY = 50, 100, 1e-4
_METADATA = "shortlist"
_ARRAYS = ("offsets", "lists", "frequent")
_CHUNK_PAIRS = 2000  # pairs whose events are in memory at a time
_MAX_PENDING_KEYS = 1 << 23  # keys collected from several chunks before duplicates are removed


@dataclass(frozen=True)
class TranslationTable:
    """p(target token | source token) for all tokens that occur in a pair; the largest source id is the null token."""

    sources_P: Ids
    targets_P: Ids
    probability_P: Probabilities

    def top_targets(self, count: int, min_probability: float) -> tuple[Ids, Ids]:
        """Return each source token with its `count` most probable targets, as two arrays; drop improbable targets."""
        order = np.lexsort((self.targets_P, -self.probability_P, self.sources_P))
        sources = self.sources_P[order]
        starts = np.searchsorted(sources, sources)  # first position of the same source token
        is_candidate = (np.arange(len(order)) - starts < count) & (self.probability_P[order] >= min_probability)
        return sources[is_candidate], self.targets_P[order][is_candidate]


def train_ibm_model1(
    sources: TokenSequences, targets: TokenSequences, source_size: int, target_size: int, iterations: int = ITERATIONS
) -> TranslationTable:
    """Return p(t | s) after expectation maximization from uniform probabilities, for pairs in any order."""
    keys_P = _unique_keys(keys_E for keys_E, _ in _events(sources, targets, source_size, target_size))
    sources_P, targets_P = keys_P // target_size, keys_P % target_size
    probability_P = np.ones(len(keys_P))
    for _ in range(iterations):
        counts_P = np.zeros(len(keys_P))
        for keys_E, target_E in _events(sources, targets, source_size, target_size):
            index_E = np.searchsorted(keys_P, keys_E)
            share_E = probability_P[index_E]
            share_E = share_E / np.bincount(target_E, share_E)[target_E]
            counts_P += np.bincount(index_E, share_E, minlength=len(keys_P))
        probability_P = counts_P / np.bincount(sources_P, counts_P, minlength=source_size + 1)[sources_P]
    return TranslationTable(sources_P, targets_P, probability_P)


def _unique_keys(chunks: Iterator[Ids]) -> Ids:
    """Return the distinct keys in ascending order, in memory proportional to their number."""
    pending, num_pending = [np.zeros(0, dtype=np.int64)], 0
    for keys_E in chunks:
        pending.append(np.unique(keys_E))
        num_pending += len(pending[-1])
        if num_pending > _MAX_PENDING_KEYS:
            pending, num_pending = [np.unique(np.concatenate(pending))], 0
    return np.unique(np.concatenate(pending))


def _events(
    sources: TokenSequences, targets: TokenSequences, source_size: int, target_size: int
) -> Iterator[tuple[Ids, Ids]]:
    """Yield, per chunk, keys_E (source * target_size + target) and target_E, the index of the event's target token."""
    for first in range(0, len(sources), _CHUNK_PAIRS):
        keys, target_indices, count = [], [], 0
        for source, target in zip(
            sources[first : first + _CHUNK_PAIRS], targets[first : first + _CHUNK_PAIRS], strict=True
        ):
            source_E = np.repeat(np.array([*source, source_size], dtype=np.int64), len(target))
            keys.append(source_E * target_size + np.tile(np.array(target, dtype=np.int64), len(source) + 1))
            target_indices.append(np.tile(np.arange(count, count + len(target)), len(source) + 1))
            count += len(target)
        yield np.concatenate(keys), np.concatenate(target_indices)


@dataclass(frozen=True)
class Shortlist:
    """The candidate translations of each source token, and the tokens that are allowed in every sentence."""

    offsets_V1: NDArray[np.int32]
    lists_L: NDArray[np.int32]  # the candidates of source token s are lists[offsets[s] : offsets[s + 1]]
    frequent_F: NDArray[np.int32]
    vocab_size: int
    """Size of the target vocabulary."""
    fingerprint: str
    """Fingerprint of the tokenizer that the ids belong to."""

    def allowed_targets(self, source: Sequence[int]) -> tuple[int, ...]:
        """Return the target tokens allowed in the translation of a source sentence, in the order of their ids."""
        bounds = ((self.offsets_V1[token], self.offsets_V1[token + 1]) for token in {*source})
        candidates = [self.lists_L[start:end] for start, end in bounds]
        return tuple(np.unique(np.concatenate((*candidates, self.frequent_F))).tolist())

    @cached_property
    def mean_length(self) -> float:
        """Mean number of candidates, over the source tokens that have any."""
        lengths = np.diff(self.offsets_V1)
        return float(lengths[lengths > 0].mean()) if lengths.any() else 0.0

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal lists give equal bytes.

        The metadata has a single entry because safetensors writes several in random order.
        """
        arrays = dict(zip(_ARRAYS, (self.offsets_V1, self.lists_L, self.frequent_F), strict=True))
        return save(arrays, {_METADATA: f"{FORMAT} {self.vocab_size} {self.fingerprint}"})

    def save(self, path: Path) -> None:
        """Write the file atomically; raise DataError if that fails."""
        try:
            write_atomically(path, self.to_bytes())
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}; choose another file") from error

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> "Shortlist":
        """Return the shortlist in a file; raise DataError if it is damaged or belongs to another tokenizer."""
        arrays, vocab_size, tokenizer = _read(path)
        if tokenizer != fingerprint:
            raise DataError(
                f"{path} was made for another tokenizer than that of this model; create one with clearhead shortlist"
            )
        offsets, lists, frequent = (arrays[name] for name in _ARRAYS)
        shortlist = cls(offsets, lists, frequent, vocab_size, fingerprint)
        ids = np.concatenate((shortlist.lists_L, shortlist.frequent_F))
        are_valid = len(ids) and ids.min() >= 0 and ids.max() < shortlist.vocab_size
        if not are_valid or offsets[0] or offsets[-1] != len(shortlist.lists_L) or (np.diff(offsets) < 0).any():
            raise DataError(f"{path} is damaged: its lists are inconsistent; create it again")
        return shortlist


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], int, str]:
    """Return the arrays, the vocabulary size and the fingerprint of the tokenizer."""
    try:
        with safe_open(path, "numpy") as file:
            header = (file.metadata() or {}).get(_METADATA, "").split()
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read {path}: {error}; create one with clearhead shortlist") from error
    if len(header) != 3 or header[0] != FORMAT or {*arrays} != {*_ARRAYS} or not header[1].isdecimal():
        raise DataError(f"{path} is not a shortlist; create one with clearhead shortlist DIR PAIRS --out FILE")
    return arrays, int(header[1]), header[2]


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
    """Return the shortlist of the `best` targets of each source token and the `frequent` most common target tokens.

    `sizes` are the sizes of both vocabularies, `always` the ids allowed in every sentence, and `copies` the ids that
    are candidates for themselves, which requires a shared vocabulary.
    """
    source_size, target_size = sizes
    table = train_ibm_model1(sources, targets, source_size, target_size)
    source_N, target_N = (
        np.concatenate((ids, np.array(copies, dtype=np.int64))) for ids in table.top_targets(best, MIN_PROBABILITY)
    )
    pairs_N2 = np.unique(np.stack((source_N, target_N), 1)[source_N < source_size], axis=0)
    offsets_V1 = np.searchsorted(pairs_N2[:, 0], np.arange(source_size + 1))
    counts = np.bincount([token for target in targets for token in target], minlength=target_size)
    common = [token for token in np.argsort(-counts, kind="stable")[:frequent].tolist() if counts[token]]
    frequent_F = np.array(sorted({*common, *always}), dtype=np.int32)
    return Shortlist(offsets_V1.astype(np.int32), pairs_N2[:, 1].astype(np.int32), frequent_F, target_size, fingerprint)
