"""A generator whose probabilities are a table, small enough to try every output there is.

N sentences, W hypotheses of each, R = N*W rows, V vocabulary
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.scoring import divisor

PAD, START, END = 0, 1, 2


@dataclass(frozen=True)
class TableState:
    """What the rows have read: their sentence's key, and the tokens so far."""

    key_N: Tensor
    width: int
    history: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TableStep:
    """The logits after each token."""

    logits_RTV: Tensor
    state: TableState
    attention: None = None


class TableGenerator:
    """Logits drawn at random for each pair of a sentence's first piece and a history, always the same ones."""

    def __init__(self, vocab_size: int, scale: float = 1.0, end_bonus: float = 0.0, distinct: int = 0) -> None:
        self.vocab_size = vocab_size
        self.scale = scale
        self.end_bonus = end_bonus
        self.distinct = distinct
        self.rows_seen: list[int] = []

    def logits(self, key: int, history: tuple[int, ...]) -> Tensor:
        seed = hash((key, history)) % (2**31)
        logits_V = torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(seed)) * self.scale
        if self.distinct:  # few different values: many exact ties
            logits_V = (logits_V * self.distinct).round() / self.distinct
        logits_V[END] += self.end_bonus
        return logits_V

    def encode(self, src_NS: Tensor, /) -> Tensor:
        return src_NS[:, 0]

    def start(self, memory: Tensor, width: int, /) -> tuple[Tensor, TableState]:
        rows = len(memory) * width
        return torch.full((rows, 1), START), TableState(memory, width, ((),) * rows)

    def step(self, tokens_RT: Tensor, state: TableState, /, want_attention: bool = False) -> TableStep:
        assert len(tokens_RT) == len(state.key_N) * state.width
        self.rows_seen.append(len(tokens_RT))
        keys = state.key_N.repeat_interleave(state.width).tolist()
        histories, logits = list(state.history), []
        for token_R in tokens_RT.T:
            histories = [(*past, int(token)) for past, token in zip(histories, token_R, strict=True)]
            logits.append(torch.stack([self.logits(key, past) for key, past in zip(keys, histories, strict=True)]))
        return TableStep(torch.stack(logits, 1), TableState(state.key_N, state.width, tuple(histories)))

    def widen(self, state: TableState, width: int, /) -> TableState:
        assert state.width == 1
        return TableState(state.key_N, width, tuple(each for each in state.history for _ in range(width)))

    def select(self, state: TableState, rows_R: Tensor, /) -> TableState:
        sentences = rows_R[:: state.width] // state.width
        assert (rows_R // state.width == sentences.repeat_interleave(state.width)).all(), "a row left its sentence"
        return TableState(state.key_N[sentences], state.width, tuple(state.history[row] for row in rows_R.tolist()))

    def score(self, key: int, tokens: tuple[int, ...], ends: bool) -> list[float]:
        """Log-probabilities of the tokens of one output, computed without search."""
        written = (*tokens, END) if ends else tokens
        return [
            float(self.logits(key, (START, *written[:place])).log_softmax(0)[token])
            for place, token in enumerate(written)
        ]

    def all_outputs(self, key: int, limit: int, settings: DecodingConfig) -> list[tuple[float, tuple[int, ...]]]:
        """Every output up to the limit with its score, best first."""
        outputs = []
        for tokens, ends in _every(self.vocab_size, limit):
            log_probs = self.score(key, tokens, ends)
            outputs.append((sum(log_probs) / divisor(len(log_probs), settings), tokens))
        return sorted(outputs, reverse=True)


def _every(vocab_size: int, limit: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Each output of at most `limit` written tokens, and whether it ends by itself."""
    words = range(END + 1, vocab_size)
    for length in range(limit):
        yield from ((tokens, True) for tokens in itertools.product(words, repeat=length))
    yield from ((tokens, False) for tokens in itertools.product(words, repeat=limit))
