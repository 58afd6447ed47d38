"""BPE dropout (Provilkov et al. 2020): merges are skipped at random, so that a text gets varying tokenizations.

The implementation of the library `tokenizers` uses a random generator without a seed. Here the tokens of a pair are a
pure function of seed, epoch and pair, so that a resumed run equals an uninterrupted one.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from clearhead.data.tokenizer.tokenizer import Tokenizer
from clearhead.errors import ConfigError

CACHED_WORDS = 1 << 17  # words whose tokens without dropout are cached


@dataclass(frozen=True, slots=True)
class TokenizedWord:
    """The ids of a word before any merge (characters and bytes), and after all merges."""

    symbols: tuple[int, ...]
    tokens: tuple[int, ...]


class BpeDropout:
    """Tokenizes texts with BPE, skipping each possible merge with a given probability."""

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if tokenizer.config.kind != "bpe":
            raise ConfigError(
                f"data.bpe_dropout requires tokenizer.kind=bpe, found {tokenizer.config.kind}; unset data.bpe_dropout"
            )
        self.tokenizer, self.probability = tokenizer, probability
        self._ids, merges = tokenizer.merges()
        self._merges = {
            (self._ids[first], self._ids[second]): (rank, self._ids[first + second])
            for rank, (first, second) in enumerate(merges)
        }
        self.word: Callable[[str], TokenizedWord] = lru_cache(CACHED_WORDS)(self._word)

    def sample_tokens(self, ids: Sequence[int], *seed: int) -> list[int]:
        """Return a random tokenization of the text of the given ids, a pure function of `seed`."""
        draw = random.Random(":".join(map(str, seed))).random
        text = b"".join([self.tokenizer.token_bytes(index) for index in ids]).decode()
        tokens: list[int] = []
        for word in self.tokenizer.split_words(text):
            tokens += self._sample_word(self.word(word), draw)
        return tokens

    def _sample_word(self, word: TokenizedWord, draw: Callable[[], float]) -> Sequence[int]:
        """Return a random tokenization of a word.

        The tokens without dropout result from `len(symbols) - len(tokens)` merges. If none of as many draws skips a
        merge, they are returned directly.
        """
        draws: list[float] = []
        for _ in range(len(word.symbols) - len(word.tokens)):
            draws.append(draw())
            if draws[-1] < self.probability:
                return self._merge(word.symbols, chain(draws, _repeat(draw)), self.probability)
        return word.tokens

    def _word(self, text: str) -> TokenizedWord:
        symbols = tuple(index for char in text for index in self._symbols(char))
        return TokenizedWord(symbols, tuple(self._merge(symbols, _repeat(lambda: 1.0), 0.0)))

    def _symbols(self, char: str) -> list[int]:
        """Return the id of a character, or the ids of its bytes if it is not in the vocabulary."""
        index = self._ids.get(char)
        return [index] if index is not None else [self._ids[f"<0x{byte:02X}>"] for byte in char.encode()]

    def _merge(self, symbols: Sequence[int], draws: Iterator[float], probability: float) -> list[int]:
        """Apply the first-learned merge among those that are not skipped in this step, until there is none."""
        tokens, merges = list(symbols), self._merges
        while True:
            options = sorted(
                (*merge, position) for position, pair in enumerate(pairwise(tokens)) if (merge := merges.get(pair))
            )
            applied = next((option for option in options if next(draws) >= probability), None)
            if applied is None:
                return tokens
            _, token, position = applied
            tokens[position : position + 2] = [token]


def _repeat(draw: Callable[[], float]) -> Iterator[float]:
    while True:
        yield draw()
