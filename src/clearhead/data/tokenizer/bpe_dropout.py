"""BPE dropout (Provilkov et al. 2020): merges are left out at random, so that a text is cut now this way, now that.

Written here and not taken from the library, whose own draws from a generator that nobody can seed: a pair's pieces must
be a pure function of seed, epoch and pair, or a resumed run would not be the run that was interrupted.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from clearhead.data.tokenizer.tokenizer import Tokenizer
from clearhead.errors import ConfigError

CACHED_WORDS = 1 << 17  # of which the plain pieces are remembered


@dataclass(frozen=True, slots=True)
class TokenizedWord:
    """A word as it begins, in characters and bytes, and as its pieces are when no merge is left out."""

    symbols: tuple[int, ...]
    tokens: tuple[int, ...]


class BpeDropout:
    """Cuts texts with a chance that each merge is left out, every time it could be made."""

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if tokenizer.config.kind != "bpe":
            raise ConfigError(
                f"data.bpe_dropout is for tokenizer.kind=bpe, this is {tokenizer.config.kind}; leave it out"
            )
        self.tokenizer, self.probability = tokenizer, probability
        self._ids, merges = tokenizer.merges()
        self._merges = {
            (self._ids[first], self._ids[second]): (rank, self._ids[first + second])
            for rank, (first, second) in enumerate(merges)
        }
        self.word: Callable[[str], TokenizedWord] = lru_cache(CACHED_WORDS)(self._word)

    def sample_tokens(self, ids: Sequence[int], *seed: int) -> list[int]:
        """The text of these ids in other pieces, which follow from the seed alone."""
        draw = random.Random(":".join(map(str, seed))).random
        text = b"".join([self.tokenizer.token_bytes(index) for index in ids]).decode()
        found: list[int] = []
        for text_of_word in self.tokenizer.split_words(text):
            found += self._cut_word(self.word(text_of_word), draw)
        return found

    def _cut_word(self, word: TokenizedWord, draw: Callable[[], float]) -> Sequence[int]:
        """The plain pieces come of as many merges as there are pieces less than symbols, each of which must be made."""
        drawn: list[float] = []
        for _ in range(len(word.symbols) - len(word.tokens)):
            drawn.append(draw())
            if drawn[-1] < self.probability:
                return self._merge(word.symbols, chain(drawn, _endless(draw)), self.probability)
        return word.tokens

    def _word(self, text: str) -> TokenizedWord:
        symbols = tuple(index for char in text for index in self._symbols(char))
        return TokenizedWord(symbols, tuple(self._merge(symbols, _endless(lambda: 1.0), 0.0)))

    def _symbols(self, char: str) -> list[int]:
        """A character, or its bytes where the vocabulary does not have it."""
        index = self._ids.get(char)
        return [index] if index is not None else [self._ids[f"<0x{byte:02X}>"] for byte in char.encode()]

    def _merge(self, symbols: Sequence[int], draws: Iterator[float], chance: float) -> list[int]:
        """Makes the merge that was learned first of those that are not left out this time, until none is made."""
        pieces, merges = list(symbols), self._merges
        while True:
            options = sorted(
                (*merge, place) for place, pair in enumerate(pairwise(pieces)) if (merge := merges.get(pair))
            )
            made = next((option for option in options if next(draws) >= chance), None)
            if made is None:
                return pieces
            _, piece, place = made
            pieces[place : place + 2] = [piece]


def _endless(draw: Callable[[], float]) -> Iterator[float]:
    while True:
        yield draw()
