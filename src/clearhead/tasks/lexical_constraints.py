"""Conversion of lexical constraints from text to tokens: a prefix, words to include, words to exclude.

A constraint may consist of several words. It is case-sensitive and matches only where no letter or digit is directly
before or after it. Text that the tokenizer cannot generate, and constraints that contradict each other, raise an error
before the search.
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
def resolve_constraints(settings: DecodingConfig, tokenizer: Tokenizer) -> Constraints | None:
    """Return the constraints of the settings as tokens; None without constraints.

    Raise TokenizerError for text that the tokenizer cannot generate, DecodingError for contradictions.
    """
    if not (settings.prefix or settings.include or settings.exclude):
        return None
    prefix = _encode(tokenizer, settings.prefix, "prefix") if settings.prefix.strip() else ()
    for word in settings.exclude:
        _encode(tokenizer, word, "exclude")
    _check_contradictions(settings, tokenizer)
    _check_repetitions(settings, tokenizer)
    excluded = tuple(build_automaton(tokenizer, tokenizer.normalize(word).strip()) for word in settings.exclude)
    return Constraints(prefix, _included_phrases(settings, tokenizer), excluded)


def _included_phrases(settings: DecodingConfig, tokenizer: Tokenizer) -> LexicalConstraints:
    """Return the words to include, without those that another word to include contains."""
    ids_of = {tokenizer.normalize(word).strip(): _encode_included(tokenizer, word) for word in settings.include}
    words = [word for word in ids_of if not any(word != other and contains_word(other, word) for other in ids_of)]
    automata = tuple(_unambiguous(build_automaton(tokenizer, word), word, tokenizer) for word in words)
    joining = frozenset[int]().union(*(automaton.joining for automaton in automata))
    return LexicalConstraints(tuple(ids_of[word] for word in words), joining, automata)


def _unambiguous(automaton: TokenAutomaton, word: str, tokenizer: Tokenizer) -> TokenAutomaton:
    """Return the automaton without segmentations in which a special token separates words, since it has no text."""
    if not is_wordlike(word[0]):  # punctuation can begin after any character
        tokens = {*automaton.begin, *automaton.begin_open}
        begin = {token: (*automaton.begin.get(token, ()), *automaton.begin_open.get(token, ())) for token in tokens}
        automaton = replace(automaton, begin=begin, begin_open={})
    silent = frozenset(token for token in range(tokenizer.vocab_size) if not tokenizer.token_bytes(token))
    joining = automaton.joining | silent if automaton.joining else automaton.joining
    return replace(automaton, opening=automaton.opening - silent, joining=joining)


def find_unmet_constraints(
    settings: DecodingConfig, tokenizer: Tokenizer, text: str, prompt: str = ""
) -> tuple[str, ...]:
    """Return the constraints that the text violates: prefix, words to include, words to exclude.

    `prompt` is the text before it. A word may begin in the prompt or directly after it.
    """
    if not settings.has_constraints:
        return ()
    include, exclude = (
        [(word, tokenizer.normalize(word).strip()) for word in words] for words in (settings.include, settings.exclude)
    )
    whole, start = prompt + text, len(prompt)
    missing = [word for word, normalized in include if not contains_word(whole, normalized, start)]
    present = [
        word for word, normalized in exclude if contains_word(whole, normalized, max(0, start - len(normalized) + 1))
    ]
    has_prefix = text.startswith(tokenizer.normalize(settings.prefix).strip())
    return (*([] if has_prefix else [settings.prefix]), *missing, *present)


def contains_word(text: str, word: str, first: int = 0) -> bool:
    """Return whether a text contains a word, not as a part of another, that begins at character `first` or later."""
    start = text.find(word, first)
    while start >= 0:
        end = start + len(word)
        if _is_boundary(text[:start], word[:1]) and _is_boundary(text[end : end + 1], word[-1:]):
            return True
        start = text.find(word, start + 1)
    return False


def _is_boundary(outside: str, inside: str) -> bool:
    """Return whether there is a word boundary between the neighbouring text and an end character of a word."""
    return not outside or not is_wordlike(inside) or not is_wordlike(outside[-1])


def _encode(tokenizer: Tokenizer, text: str, field: str) -> tuple[int, ...]:
    """Return the ids of a text; raise TokenizerError if they do not reproduce it."""
    ids = tokenizer.encode(text.strip()).ids
    if tokenizer.unk_id in ids or tokenizer.decode_tokens(ids).strip() != tokenizer.normalize(text).strip() or not ids:
        raise TokenizerError(
            f"decoding.{field}={excerpt(text)} cannot be generated with the tokens of this model's tokenizer "
            f"({tokenizer.config.kind}); use other words."
        )
    return tuple(ids)


def _encode_included(tokenizer: Tokenizer, word: str) -> tuple[int, ...]:
    """Return the ids that generate a word after any text; punctuation needs no space before it."""
    ids = _encode(tokenizer, word, "include")
    has_separate_space = len(ids) > 1 and not tokenizer.token_bytes(ids[0]).strip()
    return ids[1:] if has_separate_space and not is_wordlike(word.strip()[0]) else ids


def _check_contradictions(settings: DecodingConfig, tokenizer: Tokenizer) -> None:
    """Raise DecodingError if an excluded word is part of the prefix or of a word to include."""
    for excluded in settings.exclude:
        word = tokenizer.normalize(excluded).strip()
        for text, field in ((settings.prefix, "prefix"), *((text, "include") for text in settings.include)):
            if contains_word(tokenizer.normalize(text), word):
                raise DecodingError(
                    f"decoding.exclude={excerpt(excluded)} contradicts decoding.{field}={excerpt(text)}; unset one."
                )
        automaton = build_automaton(tokenizer, word)
        for included in settings.include:
            ids = _encode_included(tokenizer, included)
            if any(ids[end] in automaton.completing_tokens(ids[:end]) for end in range(len(ids))):
                raise DecodingError(
                    f"decoding.exclude={excerpt(excluded)} contradicts decoding.include={excerpt(included)}, which "
                    f"contains a word that begins with it (tokens {' '.join(map(tokenizer.token, ids))}); unset one."
                )


def _check_repetitions(settings: DecodingConfig, tokenizer: Tokenizer) -> None:
    """Raise DecodingError if a word to include repeats an n-gram although that is forbidden."""
    size = settings.no_repeat_ngram_size
    if not size:
        return
    for word in settings.include:
        ids = _encode_included(tokenizer, word)
        if any(ids[end] in tokens_repeating_ngram(ids[:end], size) for end in range(len(ids))):
            raise DecodingError(
                f"decoding.include={excerpt(word)} contains the same {size} tokens in a row twice, which "
                f"decoding.no_repeat_ngram_size={size} forbids; unset one of them."
            )


@lru_cache(maxsize=8)
def _joining_tokens(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the tokens that begin with a letter or digit and therefore continue the word before them."""
    surfaces = ((token, tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
    return frozenset(token for token, surface in surfaces if surface and not _begins_at_boundary(surface))


def _begins_at_boundary(surface: bytes) -> bool:
    """Return whether a word can end before these bytes. An incomplete character counts as a boundary."""
    text = surface[:4].decode("utf-8", "ignore")
    return not text or not is_wordlike(text[0])


def _ends_at_boundary(surface: bytes) -> bool:
    """Return whether a word can begin after these bytes. An incomplete character counts as a boundary."""
    text = surface[-4:].decode("utf-8", "ignore")
    return not text or not is_wordlike(text[-1])


@lru_cache(maxsize=256)
def build_automaton(tokenizer: Tokenizer, word: str) -> TokenAutomaton:
    """Return all segmentations of a word into the tokenizer's tokens."""
    target, begins_anywhere = word.encode(), not is_wordlike(word[0])
    transitions: tuple[dict[int, int], ...] = tuple({} for _ in target)
    begin: dict[int, tuple[int, ...]] = {}
    begin_open: dict[int, tuple[int, ...]] = {}
    opening = set()
    for token in range(tokenizer.vocab_size):
        surface = tokenizer.token_bytes(token)
        if not surface or begins_anywhere or _ends_at_boundary(surface):
            opening.add(token)
        if not surface:
            continue
        for position in range(1, len(target)):
            if end := _match_end(surface, target, position):
                transitions[position][token] = end
        if end := _match_end(surface, target, 0):
            begin_open[token] = (end,)
        ends = [
            end
            for offset in range(1, len(surface))
            if (begins_anywhere or _ends_at_boundary(surface[:offset]))
            and (end := _match_end(surface[offset:], target, 0))
        ]
        if ends:
            begin[token] = tuple(ends)
    joining = _joining_tokens(tokenizer) if is_wordlike(word[-1]) else frozenset[int]()
    return TokenAutomaton(len(target), transitions, begin, begin_open, frozenset(opening), joining)


def _match_end(surface: bytes, target: bytes, position: int) -> int:
    """Return the position in the word after a token that continues it from `position`; 0 if the token does not fit."""
    rest = target[position:]
    if len(surface) <= len(rest):
        return position + len(surface) if rest.startswith(surface) else 0
    ends_anywhere = not is_wordlike(target.decode()[-1])
    is_complete = surface.startswith(rest) and (ends_anywhere or _begins_at_boundary(surface[len(rest) :]))
    return len(target) if is_complete else 0
