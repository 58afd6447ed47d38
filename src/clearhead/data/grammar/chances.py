"""How often each construction occurs, and which words go together: the tables that `sampling.py` draws from."""

from functools import cache
from typing import NamedTuple

from clearhead.data.grammar import lexicon as lex
from clearhead.data.grammar.lexicon import BE, DETERMINER, Adverb, Determiner, Kinds, Noun, Verb


def _spread(weights: dict[str, int]) -> tuple[str, ...]:
    """Each name as often as its weight, so that one index draws it."""
    return tuple(name for name, weight in weights.items() for _ in range(weight))


FRAMES = _spread(
    {"accusative": 42, "dative": 8, "ditransitive": 8, "über+accusative": 4, "auf+accusative": 2, "von+dative": 2}
    | {"intransitive": 13, "motion": 9, "placing": 5, "have": 4, "be": 13}
)
TENSES = _spread({"present": 40, "past": 31, "perfect": 8, "future": 10, "modal": 8, "modal-past": 3})
# What a clause after when, if, before or while has, by the tense of the main clause.
PAST_TENSES = _spread({"past": 8, "modal-past": 1})
PRESENT_TENSES = _spread({"present": 8, "modal": 1})
STATE_TENSES = _spread({"present": 48, "past": 40, "future": 12})


def _determiners(weights: dict[str, int]) -> tuple[Determiner, ...]:
    return tuple(DETERMINER[name.strip("-")] for name in _spread(weights))


_OWNERS = {"my": 6, "our": 4, "his": 4, "her": 4, "their": 3}
SINGULAR = _determiners({"the": 46, "a": 22, "this": 6, "every": 3} | _OWNERS)
PLURAL = _determiners({"the": 34, "-": 20, "this": 5, "two": 6, "three": 5, "many": 6, "some": 6, "all": 4} | _OWNERS)
MASS = _determiners({"the": 30, "-": 30, "this": 4} | _OWNERS)
PLAIN_SINGULAR = _determiners({"the": 46, "a": 22, "this": 6} | _OWNERS)
PLAIN_PLURAL = _determiners({"the": 34, "-": 22, "this": 5} | _OWNERS)
DEFINITE = _determiners({"the": 30, "this": 3} | _OWNERS)

NOUNS_BY_KIND = {kind: tuple(noun for noun in lex.NOUNS if noun.kind == kind) for kind in {n.kind for n in lex.NOUNS}}
# Drinks have no size and no looks worth talking about.
NOT_OF_DRINKS = ("beautiful", "ugly", "big", "small", "old")
ADJECTIVES_BY_KIND = {kind: tuple(a for a in lex.ADJECTIVES if kind in a.kinds) for kind in NOUNS_BY_KIND}
ADJECTIVES_BY_KIND["drink"] = tuple(a for a in ADJECTIVES_BY_KIND["drink"] if a.english not in NOT_OF_DRINKS)
LOCATIONS = tuple(p for p in lex.PREPOSITIONS if p.use in ("place", "location"))
TWO_WAY = tuple(p for p in lex.PREPOSITIONS if p.use == "place")
DIRECTIONS = tuple(p for p in lex.PREPOSITIONS if p.use == "direction")
COMPANIONS = tuple(p for p in lex.PREPOSITIONS if p.use == "companion")
PURPOSE = next(p for p in lex.PREPOSITIONS if p.use == "purpose")
PEOPLE = frozenset({"person"})
FIXED = ("building", "area", "way")
GENITIVE_OWNERS = dict.fromkeys(
    ("person", "animal", "building", "vehicle", "text", "clothing", "thing", "device", "furniture"), PEOPLE
) | {"opening": frozenset({"person", "building"})}
# "Has seen" takes no time: "has seen yesterday" is no English.
TENSE_CODES = {"present": "r", "past": "p", "perfect": "", "future": "f"}


@cache
def nouns_of(kinds: Kinds) -> tuple[Noun, ...]:
    """The nouns of some kinds, or of these names."""
    return tuple(noun for noun in lex.NOUNS if noun.kind in kinds or noun.english in kinds)


def time_code(tense: str, has_modal: bool) -> str:
    """The codes of the times that go with a tense; what one can or must do may lie ahead."""
    return "rf" if has_modal and tense == "present" else TENSE_CODES[tense]


@cache
def times_of(code: str, is_single: bool) -> tuple[Adverb, ...]:
    """The time adverbials that go with a tense; single ones do not repeat."""
    return tuple(time for time in lex.TIMES if code in time.tenses and not (is_single and time.english[0] == "every"))


class Chances(NamedTuple):
    """How likely a clause is to have each optional part."""

    adjective: float = 0.28
    relative: float = 0.06
    couple: float = 0.04
    genitive: float = 0.05
    negation: float = 0.14
    manner: float = 0.2
    companion: float = 0.12
    place: float = 0.2
    time: float = 0.13
    front: float = 0.13


FULL = Chances()
SHORT = Chances(
    adjective=0.18,
    relative=0.0,
    couple=0.02,
    genitive=0.02,
    negation=0.1,
    manner=0.1,
    companion=0.05,
    place=0.15,
    time=0.08,
    front=0.0,
)
RELATIVE = SHORT._replace(couple=0.0)
COUPLED = SHORT._replace(genitive=0.0, adjective=0.15)


@cache
def subject_verbs(kind: str) -> tuple[Verb, ...]:
    """The verbs whose subject may be of this kind, but "to be"."""
    return tuple(verb for verb in lex.VERBS if kind in verb.subjects and verb is not BE and verb.frame != "that")


@cache
def object_verbs(kind: str) -> tuple[Verb, ...]:
    """The verbs of which a noun of this kind can be the object of a relative clause."""
    return tuple(verb for verb in lex.VERBS if kind in verb.objects and verb.frame in ("accusative", "dative"))
