"""Python interface of a model in the C++ core, with NumPy arrays and token ids.

Weights are read-only and all methods may be called from several threads; a decoder state belongs to one thread at a
time. The core releases the interpreter lock while it computes.

N sequences, R rows, W rows per sentence, T tokens, S source length, H heads, D model width, V vocabulary, L labels
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.config import ModelConfig
from clearhead.runtime.cancellation import Cancellation

ComputeType = Literal["float32", "int8"]
StoppingRule = Literal["beam_finished", "cannot_improve", "no_better_now"]
FinishReason = Literal["end", "length", "blocked"]
Floats = NDArray[np.float32]
Ids = Sequence[int] | NDArray[np.int32]

_STOPPING_RULES = ("beam_finished", "cannot_improve", "no_better_now")
_STATES, _MEAN, _POOLED, _CLASSES, _TAGS = range(5)
_NO_LAYER = -1


@dataclass(frozen=True)
class CoreSearch:
    """Settings of a search that runs inside the core."""

    penalties: Floats
    """Length penalties by length, the end token included: a score is the total divided by its penalty."""
    end_id: int
    start_id: int = 0
    """First token of the decoder; ignored for decoder-only models, which continue their prompt."""
    beam_size: int = 1
    n_best: int = 1
    min_length: int = 0
    stopping_rule: StoppingRule = "beam_finished"
    suppressed: tuple[int, ...] = ()
    """Tokens that are never generated."""
    want_scores: bool = True
    """False: greedy search skips the softmax; score and total are then NaN, and token_log_probs is empty."""
    threads: int = 1
    batch_rows: int = 0
    """Rows that a thread decodes together; 0: chosen by the core."""


class CoreHypothesis(NamedTuple):
    """One output: its tokens without the end token, and log-probabilities with it."""

    tokens: list[int]
    score: float
    total: float
    token_log_probs: list[float]
    finish_reason: FinishReason


@dataclass
class NativeState:
    """Unfinished hypotheses of some sentences, one per row."""

    handle: Any = field(repr=False)
    source_lengths_R: list[int]
    """Source length of each row; 0 without an encoder."""
    num_outputs: int
    """Number of log-probabilities per row: the vocabulary, or the longest shortlist after `restrict`."""
    max_source_length: int
    """Length of the longest source before any rows were dropped."""


class StepOutput(NamedTuple):
    """Log-probabilities after the last token of each row (RV), or after every token (RTV)."""

    log_probs: Floats
    cross_RHTS: Floats | None


class NativeModel:
    """A model with prepared weights, as returned by `runtime.prepare`."""

    def __init__(self, core: Any, config: ModelConfig, compute_type: ComputeType) -> None:
        self._core = core
        self.config = config
        self.compute_type = compute_type

    # ---- search

    def search(
        self,
        sources: Sequence[Ids],
        limits: Sequence[int],
        settings: CoreSearch,
        shortlists: Sequence[Ids] | None = None,
        cancellations: Sequence[Cancellation | None] = (),
    ) -> list[list[CoreHypothesis] | None]:
        """Return the hypotheses of each source (or prompt), best first; None if its search was cancelled.

        An empty list means that the model returned no finite probabilities. `limits`: maximum number of tokens to
        generate, the end token included. `shortlists`: ascending ids of the tokens that each output may contain.
        `cancellations`: one per source, or empty. Raises ValueError for invalid ids and limits.
        """
        if not sources:
            return []
        options = {
            "beam_size": settings.beam_size,
            "n_best": settings.n_best,
            "min_length": settings.min_length,
            "end_id": settings.end_id,
            "start_id": settings.start_id,
            "threads": settings.threads,
            "batch_rows": settings.batch_rows,
            "stopping_rule": _STOPPING_RULES.index(settings.stopping_rule),
            "want_scores": settings.want_scores,
        }
        deadlines = [0.0 if cancellation is None else cancellation.deadline for cancellation in cancellations]
        results = self._core.search(
            _concatenate(sources),
            _int32(limits),
            options,
            np.ascontiguousarray(settings.penalties, dtype=np.float32),
            _int32(settings.suppressed),
            None if shortlists is None else _concatenate(shortlists),
            [None if cancellation is None else cancellation.flag for cancellation in cancellations],
            np.array(deadlines) if deadlines else None,
        )
        return [None if result is None else [CoreHypothesis(*fields) for fields in result] for result in results]

    # ---- step by step

    def encode(self, sources: Sequence[Ids]) -> tuple[Any, list[int]]:
        """Return the encoded sources and their lengths."""
        return self._core.encode(_concatenate(sources)), [len(source) for source in sources]

    def start(self, memory: tuple[Any, list[int]] | None, num_sentences: int, width: int) -> NativeState:
        """Return the state before the first token; `memory` is None for a decoder-only model."""
        handle = self._core.start(None if memory is None else memory[0], num_sentences, width)
        lengths = [0] * num_sentences if memory is None else memory[1]
        lengths_R = [length for length in lengths for _ in range(width)]
        return NativeState(handle, lengths_R, self.config.vocab_size, max(lengths))

    def step(
        self,
        tokens_RT: NDArray[np.int64],
        state: NativeState,
        attention_layer: int | None = None,
        all_positions: bool = False,
    ) -> StepOutput:
        """Append the tokens to the rows of the state; return log-probabilities of the tokens that may follow.

        With `attention_layer`, the cross-attention of that decoder layer is also returned, padded with zeros to the
        length of the longest source.
        """
        rows, count = tokens_RT.shape
        shape = (rows, count, state.num_outputs) if all_positions else (rows, state.num_outputs)
        log_probs = np.empty(shape, dtype=np.float32)
        flat, layer = None, _NO_LAYER
        if attention_layer is not None:
            size = sum(state.source_lengths_R) * count * self.config.num_heads
            flat, layer = np.empty(size, dtype=np.float32), attention_layer
        self._core.step(state.handle, _int32(tokens_RT), count, all_positions, log_probs, layer, flat)
        return StepOutput(log_probs, None if flat is None else self._attention(flat, state, count))

    def _attention(self, flat: Floats, state: NativeState, count: int) -> Floats:
        """Return cross_RHTS from blocks [T, H, S] per row."""
        lengths, heads = state.source_lengths_R, self.config.num_heads
        cross_RHTS = np.zeros((len(lengths), heads, count, state.max_source_length), dtype=np.float32)
        start = 0
        for row, length in enumerate(lengths):
            size = count * heads * length
            block_THS = flat[start : start + size].reshape(count, heads, length)
            cross_RHTS[row, :, :, :length] = block_THS.transpose(1, 0, 2)
            start += size
        return cross_RHTS

    def reorder(self, state: NativeState, rows_R: NDArray[np.int64]) -> None:
        """Replace row i by row rows_R[i] of the state; rows may be repeated and dropped."""
        self._core.reorder(state.handle, _int32(rows_R))
        state.source_lengths_R = [state.source_lengths_R[row] for row in rows_R.tolist()]

    def restrict(self, state: NativeState, lists: Sequence[Ids]) -> None:
        """Allow only these tokens (ids ascending) in each sentence that was passed to `start`, and normalize over them.

        A row then has one log-probability per token of its sentence's list, padded with minus infinity to the length
        of the longest list.
        """
        self._core.restrict(state.handle, _concatenate(lists))
        state.num_outputs = max(map(len, lists))

    def score(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        start_id: int = 0,
        attention_layer: int | None = None,
        threads: int = 1,
    ) -> tuple[list[Floats], list[Floats] | None]:
        """Return the log-probabilities of the tokens of each target, and cross-attention [H, T, S] if a layer is given.

        A decoder-only model predicts target token t from source tokens 0 to t.
        """
        joined_targets = _concatenate(targets)
        log_probs = np.empty(len(joined_targets[0]), dtype=np.float32)
        flat, layer, heads = None, _NO_LAYER, self.config.num_heads
        if attention_layer is not None:
            sizes = [len(source) * len(target) * heads for source, target in zip(sources, targets, strict=True)]
            flat, layer = np.empty(sum(sizes), dtype=np.float32), attention_layer
        self._core.score(_concatenate(sources), joined_targets, start_id, log_probs, layer, flat, threads)
        scores = np.split(log_probs, np.cumsum(joined_targets[1])[:-1])
        if flat is None:
            return scores, None
        blocks = np.split(flat, np.cumsum(sizes)[:-1])
        pairs = zip(blocks, sources, targets, strict=True)
        return scores, [
            block.reshape(len(target), heads, len(source)).transpose(1, 0, 2) for block, source, target in pairs
        ]

    # ---- encoders

    def states(self, rows: Sequence[Ids], threads: int = 1) -> list[Floats]:
        """Return the encoder's final states of each sequence, [S, D]."""
        return self._per_token(rows, _STATES, self.config.model_dim, threads)

    def mean_states(self, rows: Sequence[Ids], threads: int = 1) -> Floats:
        """Return the mean of the encoder's final states of each sequence, [N, D]."""
        return self._per_sequence(rows, _MEAN, self.config.model_dim, threads)

    def pooled(self, rows: Sequence[Ids], threads: int = 1) -> Floats:
        """Return one vector per sequence, pooled as set by model.pooling and passed through any pooler, [N, D]."""
        return self._per_sequence(rows, _POOLED, self.config.model_dim, threads)

    def class_logits(self, rows: Sequence[Ids], threads: int = 1) -> Floats:
        """Return the logits of the labels of each sequence, [N, L]."""
        return self._per_sequence(rows, _CLASSES, self.config.num_labels, threads)

    def tag_logits(self, rows: Sequence[Ids], threads: int = 1) -> list[Floats]:
        """Return the logits of the labels of each token, [S, L] per sequence."""
        return self._per_token(rows, _TAGS, self.config.num_labels, threads)

    def masked_log_probs(
        self, rows: Sequence[Ids], positions: Sequence[Sequence[int]], threads: int = 1
    ) -> list[Floats]:
        """Return log-probabilities of the vocabulary at some positions (ascending) of each sequence, [M, V]."""
        starts = np.cumsum([0, *(len(row) for row in rows)])
        pairs = zip(starts[:-1].tolist(), positions, strict=True)
        token_indices = [start + position for start, row_positions in pairs for position in row_positions]
        out_MV = np.empty((len(token_indices), self.config.vocab_size), dtype=np.float32)
        if token_indices:
            self._core.predict_masked(_concatenate(rows), _int32(token_indices), out_MV, threads)
        return np.split(out_MV, np.cumsum([len(row_positions) for row_positions in positions])[:-1])

    def _per_sequence(self, rows: Sequence[Ids], kind: int, width: int, threads: int) -> Floats:
        out = np.empty((len(rows), width), dtype=np.float32)
        if rows:
            self._core.encode_texts(_concatenate(rows), kind, out, threads)
        return out

    def _per_token(self, rows: Sequence[Ids], kind: int, width: int, threads: int) -> list[Floats]:
        counts = [len(row) for row in rows]
        out = np.empty((sum(counts), width), dtype=np.float32)
        if rows:
            self._core.encode_texts(_concatenate(rows), kind, out, threads)
        return np.split(out, np.cumsum(counts)[:-1]) if rows else []


def _concatenate(sequences: Sequence[Ids]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the concatenated ids of all sequences, and the length of each sequence."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int32)
    if len(sequences) and isinstance(sequences[0], np.ndarray):
        return _int32(np.concatenate(sequences)), lengths
    return _int32([*chain.from_iterable(sequences)]), lengths


def _int32(numbers: ArrayLike) -> NDArray[np.int32]:
    """Return integers as a contiguous array. Raises ValueError if int32 cannot hold one, where NumPy may wrap it."""
    array = np.asarray(numbers)
    if array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        raise ValueError(f"expected integers of 32 bits, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int32)
