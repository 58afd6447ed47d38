"""A generator whose probabilities are a table, small enough to enumerate every output.

N sentences, W hypotheses of each, R = N*W rows, V vocabulary, U tokens of a shortlist
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Bools, Floats, Ints, Sources, Step
from clearhead.decoding.penalties import normalized_score, sum_log_probs

PAD, START, END = 0, 1, 2
Doubles = NDArray[np.float64]


def log_softmax(logits_V: Doubles) -> Doubles:
    shifted_V = logits_V - logits_V.max()
    return np.asarray(shifted_V - np.log(np.exp(shifted_V).sum()))


@dataclass(frozen=True)
class TableState:
    """Keys of the sentences, the tokens that each row has read, and the tokens that steps are restricted to."""

    key_N: tuple[int, ...]
    width: int
    history: tuple[tuple[int, ...], ...]
    tokens_U: Ints | None = None
    allowed_NU: Bools | None = None


class TableGenerator:
    """Generator with fixed random logits for each pair of a sentence's first token and a history."""

    def __init__(self, vocab_size: int, scale: float = 1.0, end_bonus: float = 0.0, distinct: int = 0) -> None:
        self.vocab_size = vocab_size
        self.scale = scale
        self.end_bonus = end_bonus
        self.distinct = distinct
        self.rows_seen: list[int] = []

    def logits(self, key: int, history: tuple[int, ...]) -> Doubles:
        logits_V = np.random.default_rng([key, *history]).standard_normal(self.vocab_size) * self.scale
        if self.distinct:  # few different values: many exact ties
            logits_V = (logits_V * self.distinct).round() / self.distinct
        logits_V[END] += self.end_bonus
        return np.asarray(logits_V)

    def log_probs(self, key: int, history: tuple[int, ...]) -> Floats:
        return log_softmax(self.logits(key, history)).astype(np.float32)

    def encode(self, sources: Sources, /) -> tuple[int, ...]:
        return tuple(int(source[0]) for source in sources)

    def start(self, memory: tuple[int, ...], width: int, /) -> tuple[Ints, TableState]:
        rows = len(memory) * width
        return np.full((rows, 1), START), TableState(memory, width, ((),) * rows)

    def step(
        self,
        tokens_RT: Ints,
        state: TableState,
        /,
        want_attention: bool = False,
        all_positions: bool = False,
        num_best: int | None = None,
    ) -> Step:
        assert len(tokens_RT) == len(state.key_N) * state.width
        self.rows_seen.append(len(tokens_RT))
        histories, parts = list(state.history), []
        for token_R in tokens_RT.T:
            histories = [(*past, int(token)) for past, token in zip(histories, token_R, strict=True)]
            parts.append(np.stack([self._row(state, row, past) for row, past in enumerate(histories)]))
        found_RTV = np.stack(parts if all_positions else parts[-1:], 1)
        return Step(found_RTV, replace(state, history=tuple(histories)))

    def _row(self, state: TableState, row: int, history: tuple[int, ...]) -> Floats:
        sentence = row // state.width
        if state.tokens_U is None or state.allowed_NU is None:
            return self.log_probs(state.key_N[sentence], history)
        logits_U = self.logits(state.key_N[sentence], history)[state.tokens_U]
        return log_softmax(np.where(state.allowed_NU[sentence], logits_U, -np.inf)).astype(np.float32)

    def reorder(self, state: TableState, rows_R: Ints, /) -> TableState:
        sentences_R = rows_R // state.width
        sentences_N = sentences_R[np.flatnonzero(np.diff(sentences_R, prepend=-1))]
        width = len(rows_R) // len(sentences_N)
        assert width == state.width or state.width == 1, "only single rows are repeated"
        assert (sentences_R == sentences_N.repeat(width)).all(), "a row left its sentence"
        allowed_NU = None if state.allowed_NU is None else state.allowed_NU[sentences_N]
        keys, history = (state.key_N[each] for each in sentences_N), (state.history[row] for row in rows_R)
        return TableState(tuple(keys), width, tuple(history), state.tokens_U, allowed_NU)

    def restrict(self, state: TableState, tokens_U: Ints, allowed_NU: Bools, /) -> TableState:
        assert (np.diff(tokens_U) > 0).all() and allowed_NU.shape == (len(state.key_N), len(tokens_U))
        return replace(state, tokens_U=tokens_U, allowed_NU=allowed_NU)

    def score(self, key: int, tokens: Sequence[int], ends: bool) -> list[float]:
        """Return the log-probabilities of the tokens of one output, computed without search."""
        written = (*tokens, END) if ends else tuple(tokens)
        return [
            float(self.log_probs(key, (START, *written[:position]))[token]) for position, token in enumerate(written)
        ]

    def all_outputs(self, key: int, limit: int, settings: DecodingConfig) -> list[tuple[float, tuple[int, ...]]]:
        """Return every output up to the limit with its score, best first."""
        outputs = []
        for tokens, ends in every_output(self.vocab_size, limit):
            log_probs = self.score(key, tokens, ends)
            outputs.append((normalized_score(sum_log_probs(log_probs), len(log_probs), settings), tokens))
        return sorted(outputs, reverse=True)


def every_output(vocab_size: int, limit: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield each output of at most `limit` tokens, and whether it has an end token."""
    words = range(END + 1, vocab_size)
    for length in range(limit):
        yield from ((tokens, True) for tokens in itertools.product(words, repeat=length))
    yield from ((tokens, False) for tokens in itertools.product(words, repeat=limit))
