"""Given pairs, whose targets a network is made to write: in batches of like length, each answer in its place."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from clearhead.data.batching import length_batches
from clearhead.data.pairs import Pair
from clearhead.errors import DataError
from clearhead.tasks.examples import most_pieces
from clearhead.tasks.purposes import purpose
from clearhead.tasks.task import Ready

NUMBERS = 1 << 24  # held at a time, 64 MiB
TOGETHER = 4096  # pairs that are sorted by length, and answered in their order before the next ones
_LEAST = 4096  # numbers that a token takes, whatever is asked

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Forced:
    """A pair as ids, without start and end."""

    pair: Pair
    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Places that its longer side takes, with the end."""
        return max(len(self.source), len(self.target)) + 1


def encode_pairs(model: Ready, pairs: Sequence[Pair], path: Path | str) -> list[Forced]:
    """The pairs as ids; refuses what the network cannot take whole, by its line in `path`."""
    pieces = purpose(model.config.task).pieces
    sources = pieces(model.tokenizer, [pair.source for pair in pairs])
    targets = pieces(model.tokenizer.target, [pair.target for pair in pairs])
    encoded = [Forced(*each) for each in zip(pairs, sources, targets, strict=True)]
    limit = most_pieces(model.config)
    for one in encoded:
        if one.length > limit:
            problem = f"{one.length - 1:,} pieces, the model takes {limit - 1:,}; split the line"
            raise DataError.at(path, one.pair.line, problem)
    return encoded


def over_pairs(
    encoded: Sequence[Forced], answer: Callable[[list[Forced]], Sequence[Answer]], numbers: Callable[[int], int]
) -> Iterator[Answer]:
    """What `answer` gives for each pair, in their order; `numbers` are those that a pair of a length takes to hold."""
    for first in range(0, len(encoded), TOGETHER):
        part = encoded[first : first + TOGETHER]
        answers: dict[int, Answer] = {}
        costs = [max(numbers(one.length), one.length * _LEAST) for one in part]
        for batch in length_batches(costs, NUMBERS):
            answers.update(zip(batch, answer([part[index] for index in batch]), strict=True))
        yield from (answers[index] for index in range(len(part)))
