"""What a user asks of outputs, from text to tokens: a prefix, words to include, words to exclude.

A word may be several words long. It counts where no letter or digit stands right before or behind it; capital and
small letters are different. What a tokenizer cannot write, and what contradicts itself, is refused before any search.
"""

from dataclasses import replace
from functools import lru_cache

from clearhead.config import DecodingConfig
from clearhead.data.readers.lines import excerpt
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.word_indices import is_wordlike
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import TokenAutomaton, tokens_repeating_ngram
from clearhead.decoding.requests import Constraints
from clearhead.errors import DecodingError, TokenizerError


@lru_cache(maxsize=64)
def constraints_of(settings: DecodingConfig, tokenizer: Tokenizer) -> Constraints | None:
    """The constraints of all sentences that these settings are for, if they have any."""
    if not (settings.prefix or settings.include or settings.exclude):
        return None
    prefix = _encode(tokenizer, settings.prefix, "prefix") if settings.prefix.strip() else ()
    wanted = [_wanted(tokenizer, word) for word in settings.include]
    unwanted = [_encode(tokenizer, word, "exclude") for word in settings.exclude]
    assert all(unwanted), "an excluded word has pieces"
    _check(settings, tokenizer)
    for word, ids in zip(settings.include, wanted, strict=True):
        size = settings.no_repeat_ngram_size
        if size and any(ids[end] in tokens_repeating_ngram(ids[:end], size) for end in range(len(ids))):
            raise DecodingError(
                f"decoding.include={excerpt(word)} has the same {size} pieces in a row twice, which "
                f"decoding.no_repeat_ngram_size={size} forbids; unset one of them."
            )
    words = tuple(spelling(tokenizer, tokenizer.normalise(word).strip()) for word in settings.exclude)
    return Constraints(prefix, _phrases(settings, tokenizer), words)


def _phrases(settings: DecodingConfig, tokenizer: Tokenizer) -> LexicalConstraints:
    """The words to include; what is inside another comes with it."""
    words = {tokenizer.normalise(word).strip(): _wanted(tokenizer, word) for word in settings.include}
    apart = [word for word in words if not any(word != other and contains(other, word) for other in words)]
    spellings = tuple(_certain(spelling(tokenizer, word), word, tokenizer) for word in apart)
    joining = frozenset[int]().union(*(each.joining for each in spellings))
    return LexicalConstraints(tuple(words[word] for word in apart), joining, spellings)


def _certain(ways: TokenAutomaton, word: str, tokenizer: Tokenizer) -> TokenAutomaton:
    """Only ways that surely write the word: special tokens write nothing and so part no letters."""
    if not is_wordlike(word[0]):  # it begins behind anything
        both = {*ways.begin, *ways.begin_open}
        begin = {token: (*ways.begin.get(token, ()), *ways.begin_open.get(token, ())) for token in both}
        ways = replace(ways, begin=begin, begin_open={})
    silent = frozenset(index for index in range(tokenizer.vocab_size) if not tokenizer.surface(index))
    return replace(ways, opening=ways.opening - silent, joining=ways.joining | silent if ways.joining else ways.joining)


def unmet(settings: DecodingConfig, tokenizer: Tokenizer, text: str, before: str = "") -> tuple[str, ...]:
    """The constraints that an output does not meet: words to include that it lacks, words to exclude that it has.

    `before` is the prompt that it follows: it may part words, or begin one.
    """
    if not (settings.include or settings.exclude or settings.prefix):
        return ()
    include, exclude = (
        [(word, tokenizer.normalise(word).strip()) for word in words] for words in (settings.include, settings.exclude)
    )
    whole, first = before + text, len(before)
    missing = [word for word, bare in include if not contains(whole, bare, first)]
    present = [word for word, bare in exclude if contains(whole, bare, max(0, first - len(bare) + 1))]
    begins = text.startswith(tokenizer.normalise(settings.prefix).strip())
    return (*([] if begins else [settings.prefix]), *missing, *present)


def contains(text: str, word: str, first: int = 0) -> bool:
    """Whether a word stands in a text on its own, and begins no sooner than at that character."""
    start = text.find(word, first)
    while start >= 0:
        end = start + len(word)
        if _is_edge(text[:start], word[:1]) and _is_edge(text[end : end + 1], word[-1:]):
            return True
        start = text.find(word, start + 1)
    return False


def _is_edge(outside: str, inside: str) -> bool:
    """Whether a word ends between what stands outside and its own first or last character."""
    return not outside or not is_wordlike(inside) or not is_wordlike(outside[-1])


def _encode(tokenizer: Tokenizer, text: str, field: str) -> tuple[int, ...]:
    """The pieces of a text that the tokenizer can write as it is."""
    ids = tokenizer.encode(text.strip()).ids
    if tokenizer.unk_id in ids or tokenizer.decode_pieces(ids).strip() != tokenizer.normalise(text).strip() or not ids:
        raise TokenizerError(
            f"decoding.{field}={excerpt(text)} cannot be written with the pieces of this model's tokenizer "
            f"({tokenizer.config.kind}); use other words."
        )
    return tuple(ids)


def _wanted(tokenizer: Tokenizer, word: str) -> tuple[int, ...]:
    """The pieces that write a word behind anything; what is no letter needs no space before it."""
    ids = _encode(tokenizer, word, "include")
    has_bare_space = len(ids) > 1 and not tokenizer.surface(ids[0]).strip()
    return ids[1:] if has_bare_space and not is_wordlike(word.strip()[0]) else ids


def _check(settings: DecodingConfig, tokenizer: Tokenizer) -> None:
    """Refuses what contradicts itself."""
    for word in settings.exclude:
        bare = tokenizer.normalise(word).strip()
        for given, field in ((settings.prefix, "prefix"), *((wanted, "include") for wanted in settings.include)):
            if contains(tokenizer.normalise(given), bare):
                raise DecodingError(
                    f"decoding.exclude={excerpt(word)} contradicts decoding.{field}={excerpt(given)}; unset one."
                )
        for given in settings.include:
            ids, ways = _wanted(tokenizer, given), spelling(tokenizer, bare)
            if any(ids[place] in ways.completing_tokens(ids[:place]) for place in range(len(ids))):
                raise DecodingError(
                    f"decoding.exclude={excerpt(word)} contradicts decoding.include={excerpt(given)}, which begins a "
                    f"word with it: its pieces are {' '.join(map(tokenizer.piece, ids))}; unset one."
                )


@lru_cache(maxsize=8)
def _joining(tokenizer: Tokenizer) -> frozenset[int]:
    """The pieces that begin with a letter or digit and so go on with the word before them."""
    surfaces = ((index, tokenizer.surface(index)) for index in range(tokenizer.vocab_size))
    return frozenset(index for index, surface in surfaces if surface and not _opens(surface, is_end=False))


def _opens(surface: bytes, is_end: bool) -> bool:
    """Whether a word can begin behind these bytes, or end before them. A part of a character may be either."""
    text = surface[-4:].decode("utf-8", "ignore") if is_end else surface[:4].decode("utf-8", "ignore")
    return not text or not is_wordlike(text[-1 if is_end else 0])


@lru_cache(maxsize=256)
def spelling(tokenizer: Tokenizer, word: str) -> TokenAutomaton:
    """All ways to write a word with the tokenizer's pieces."""
    target = word.encode()
    go_on: tuple[dict[int, int], ...] = tuple({} for _ in target)
    begin: dict[int, tuple[int, ...]] = {}
    begin_open: dict[int, tuple[int, ...]] = {}
    opening = set()
    for index in range(tokenizer.vocab_size):
        surface = tokenizer.surface(index)
        if not surface or _opens(surface, is_end=True) or not is_wordlike(word[0]):
            opening.add(index)
        if not surface:
            continue
        for place in range(1, len(target)):
            if reach := _reach(surface, target, place):
                go_on[place][index] = reach
        if reach := _reach(surface, target, 0):
            begin_open[index] = (reach,)
        inside = [
            reach
            for offset in range(1, len(surface))
            if (_opens(surface[:offset], is_end=True) or not is_wordlike(word[0]))
            and (reach := _reach(surface[offset:], target, 0))
        ]
        if inside:
            begin[index] = tuple(inside)
    joining = _joining(tokenizer) if is_wordlike(word[-1]) else frozenset[int]()
    return TokenAutomaton(len(target), go_on, begin, begin_open, frozenset(opening), joining)


def _reach(surface: bytes, target: bytes, place: int) -> int:
    """How far the word is written by a piece that goes on with it from a place; 0 if it does not."""
    rest = target[place:]
    if len(surface) <= len(rest):
        return place + len(surface) if rest.startswith(surface) else 0
    is_whole = surface.startswith(rest) and (
        _opens(surface[len(rest) :], is_end=False) or not is_wordlike(target.decode()[-1])
    )
    return len(target) if is_whole else 0
