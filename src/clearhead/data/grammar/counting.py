"""How much the grammar can say: a lower bound, counted over one family of sentences."""

from collections.abc import Iterable

from clearhead.data.grammar import english
from clearhead.data.grammar.chances import ADJECTIVES_BY_KIND, SINGULAR, nouns_of, object_nouns
from clearhead.data.grammar.lexicon import VERBS_BY_FRAME, Noun

TENSES = ("present", "past", "perfect", "future")


def _phrases(nouns: Iterable[Noun]) -> int:
    """Singular noun phrases with at most one adjective: determiner, adjective or none, noun."""
    determiners = len(set(SINGULAR))
    return sum(determiners * (1 + len(ADJECTIVES_BY_KIND[noun.kind])) for noun in nouns if not noun.mass)


def pair_count() -> int:
    """A lower bound of the number of pairs: subject, verb with one object, and nothing else.

    Each choice shows in the English sentence, so no two of the counted sentences are the same.
    """
    total = 0
    for verb in VERBS_BY_FRAME["accusative"]:
        tenses = sum(english.allows(verb, tense, is_negated=False) for tense in TENSES)
        total += _phrases(nouns_of(verb.subjects)) * _phrases(object_nouns(verb)) * tenses
    return total
