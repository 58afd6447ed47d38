"""Frequencies of constructions and collocations: the tables that the samplers draw from."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from clearhead.grammar import inflection
from clearhead.grammar import lexicon as lex
from clearhead.grammar.lexicon import BE, DETERMINER, Adjective, Adverb, Determiner, Kinds, Noun, Preposition, Verb
from clearhead.grammar.words import KIND_GROUPS

# Prepositions, each with the nouns it can be sampled with.
LocationOptions = tuple[tuple[Preposition, tuple[Noun, ...]], ...]


def _repeat_by_weight(weights: dict[str, int]) -> tuple[str, ...]:
    """Return each name repeated by its weight, so that a uniform index samples by weight."""
    return tuple(name for name, weight in weights.items() for _ in range(weight))


FRAMES = _repeat_by_weight(
    {"accusative": 42, "dative": 8, "ditransitive": 8, "über+accusative": 4, "auf+accusative": 2, "von+dative": 2}
    | {"intransitive": 13, "motion": 9, "placing": 5, "have": 4, "be": 13}
)
SIMPLE_TENSES = ("present", "past", "perfect", "future")
TENSES = _repeat_by_weight({"present": 40, "past": 31, "perfect": 8, "future": 10, "modal": 8, "modal-past": 3})
# Tenses of further clauses, depending on the main clause: past with past, present and future with present.
PAST_TENSES = _repeat_by_weight({"past": 8, "modal-past": 1})
PRESENT_TENSES = _repeat_by_weight({"present": 8, "modal": 1})
REASON_TENSES = _repeat_by_weight({"present": 8, "modal": 1, "perfect": 2})
REPORTED_TENSES = _repeat_by_weight({"present": 8, "modal": 1, "perfect": 2, "future": 2})
# Tenses of main clauses: present or future; and any tense except the perfect, which "when", "while" and "before"
# exclude.
OPEN_TENSES = _repeat_by_weight({"present": 40, "future": 10, "modal": 8})
PLAIN_TENSES = _repeat_by_weight({"present": 40, "past": 31, "future": 10, "modal": 8, "modal-past": 3})
STATE_TENSES = _repeat_by_weight({"present": 48, "past": 40, "future": 12})


def _determiners(weights: dict[str, int]) -> tuple[Determiner, ...]:
    return tuple(DETERMINER[name.strip("-")] for name in _repeat_by_weight(weights))


_OWNERS = {"my": 6, "our": 4, "his": 4, "her": 4, "their": 3}
SINGULAR_DETERMINERS = _determiners({"the": 46, "a": 22, "this": 6, "every": 3} | _OWNERS)
PLURAL_DETERMINERS = _determiners(
    {"the": 34, "-": 20, "this": 5, "two": 6, "three": 5, "many": 6, "some": 6, "all": 4} | _OWNERS
)
MASS_DETERMINERS = _determiners({"the": 30, "-": 30, "this": 4} | _OWNERS)
PLAIN_SINGULAR_DETERMINERS = _determiners({"the": 46, "a": 22, "this": 6} | _OWNERS)
PLAIN_PLURAL_DETERMINERS = _determiners({"the": 34, "-": 22, "this": 5} | _OWNERS)
DEFINITE_DETERMINERS = _determiners({"the": 30, "this": 3} | _OWNERS)

NOUNS_BY_KIND = {kind: tuple(noun for noun in lex.NOUNS if noun.kind == kind) for kind in {n.kind for n in lex.NOUNS}}
# Adjectives of size and appearance do not describe drinks.
EXCLUDED_FOR_DRINKS = ("beautiful", "ugly", "big", "small", "old")
ADJECTIVES_BY_KIND = {kind: tuple(a for a in lex.ADJECTIVES if kind in a.kinds) for kind in NOUNS_BY_KIND}
ADJECTIVES_BY_KIND["drink"] = tuple(a for a in ADJECTIVES_BY_KIND["drink"] if a.english not in EXCLUDED_FOR_DRINKS)
LOCATIONS = tuple(p for p in lex.PREPOSITIONS if p.use in ("place", "location"))
TWO_WAY = tuple(p for p in lex.PREPOSITIONS if p.use == "place")
DIRECTIONS = tuple(p for p in lex.PREPOSITIONS if p.use == "direction")
COMPANIONS = tuple(p for p in lex.PREPOSITIONS if p.use == "companion")
PURPOSE = next(p for p in lex.PREPOSITIONS if p.use == "purpose")
PERSON = frozenset({"person"})
POSITIVE_FREQUENCIES = tuple(adverb for adverb in lex.FREQUENCIES if adverb.stem != "never")
PAST_MODALS = tuple(modal for modal in lex.MODALS if modal.past)
IMMOVABLE = ("building", "area", "way")
GENITIVE_OWNERS = dict.fromkeys(
    ("person", "animal", "building", "vehicle", "text", "clothing", "thing", "device", "furniture"), PERSON
) | {"opening": frozenset({"person", "building"})}
# Codes of the time adverbials for each tense; the perfect takes none ("has seen yesterday" is ungrammatical).
TENSE_CODES = {"present": "r", "past": "p", "perfect": "", "future": "f"}


@cache
def nouns_of(kinds: Kinds) -> tuple[Noun, ...]:
    """Return the nouns with one of these kinds or names."""
    return tuple(noun for noun in lex.NOUNS if noun.kind in kinds or noun.english in kinds)


@cache
def coordinated_nouns(noun: Noun, nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """Return the nouns that can be coordinated with a noun: "the dog and the cat", not "the dog and the bed"."""
    return tuple(other for other in nouns if other.kind == noun.kind)


@cache
def object_nouns(verb: Verb) -> tuple[Noun, ...]:
    """Return the nouns that are sampled as objects of a verb."""
    narrowed = {noun.kind for noun in lex.NOUNS if noun.english in verb.object_names}
    return tuple(n for n in nouns_of(verb.objects) if n.kind not in narrowed or n.english in verb.object_names)


@cache
def compatible_adjectives(kind: str, others: tuple[Adjective, ...]) -> tuple[Adjective, ...]:
    """Return the adjectives of a kind that neither repeat nor contradict the others."""
    excluded = {word for other in others for word in lex.INCOMPATIBLE[other.english]}
    return tuple(option for option in ADJECTIVES_BY_KIND[kind] if option.english not in excluded)


# Kinds that fit into a bag, and kinds that are too large for a table.
SMALL = frozenset(KIND_GROUPS["small"].split()) - {"plant"}
LARGE = frozenset(("building", "area", "way", "vehicle", "furniture", "plant"))
CONTAINERS = ("suitcase", "box", "bag", "cupboard")


def size_of(kind: str) -> str:
    """Return the size of a kind: small, large or, for persons and animals, medium."""
    return "small" if kind in SMALL else "large" if kind in LARGE else "medium"


def _location_options(
    prepositions: tuple[Preposition, ...], names: Kinds, kinds: Kinds = frozenset()
) -> LocationOptions:
    """Return the prepositions with their nouns, excluding some names and kinds, and prepositions without a noun."""
    options: list[tuple[Preposition, tuple[Noun, ...]]] = []
    for preposition in prepositions:
        nouns = nouns_of(preposition.fits)
        nouns = tuple(noun for noun in nouns if noun.english not in names and noun.kind not in kinds)
        if nouns:
            options.append((preposition, nouns))
    return tuple(options)


@cache
def location_options(size: str) -> LocationOptions:
    """Return the locations of something of a given size."""
    large = frozenset(("furniture", "person", "vehicle")) if size == "large" else frozenset[str]()
    return _location_options(LOCATIONS, frozenset(() if size == "small" else CONTAINERS), large)


@cache
def goal_options(size: str) -> LocationOptions:
    """Return the goals that something of a given size can be put to."""
    return _location_options(
        TWO_WAY, frozenset(() if size == "small" else CONTAINERS), frozenset(("vehicle", "person"))
    )


@cache
def direction_options(verb: Verb) -> LocationOptions:
    """Return the directions of a verb of motion: only jumping leads onto furniture, driving not into rooms."""
    if verb.english == "jump":
        return _location_options(DIRECTIONS, frozenset())
    if verb.english == "drive":
        return _location_options(DIRECTIONS, frozenset(("kitchen", "room")), frozenset(("furniture",)))
    around = _location_options(tuple(p for p in DIRECTIONS if p.english != ("onto",)), frozenset())
    return around + _location_options(
        tuple(p for p in DIRECTIONS if p.english == ("onto",)), frozenset(), frozenset(("furniture",))
    )


PEOPLE = nouns_of(PERSON)
HOMES: LocationOptions = tuple(
    (p, nouns_of(frozenset(("building", "area")))) for p in lex.PREPOSITIONS if p.english == ("in",)
)
# The location after these verbs is that of the object, not of the subject.
SEARCH_VERBS = ("find", "look for", "lose", "steal", "forget", "hide")


def time_code(verb: Verb, tense: str, has_modal: bool) -> str:
    """Return the codes of the time adverbials of a verb in a tense; with a present modal, the future is possible."""
    if "s" in verb.adverbials:
        return ""
    return "rf" if has_modal and tense == "present" else TENSE_CODES[tense]


@cache
def times_of(code: str, is_single: bool) -> tuple[Adverb, ...]:
    """Return the time adverbials of a tense; `is_single` excludes "every day" and "every evening"."""
    return tuple(time for time in lex.TIMES if code in time.tenses and not (is_single and time.english[0] == "every"))


class Probabilities(NamedTuple):
    """Probability of each optional part of a clause."""

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


FULL = Probabilities()
SHORT = Probabilities(
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
COORDINATED = SHORT._replace(genitive=0.0, adjective=0.15)


@cache
def subject_verbs(kind: str) -> tuple[Verb, ...]:
    """Return the verbs that accept a subject of this kind, except "to be" and verbs with a that-clause."""
    return tuple(verb for verb in lex.VERBS if kind in verb.subjects and verb is not BE and verb.frame != "that")


@cache
def object_verbs(noun: Noun) -> tuple[Verb, ...]:
    """Return the verbs of a relative clause in which the noun can be the object."""
    verbs = (verb for verb in lex.VERBS if verb.frame in ("accusative", "dative"))
    return tuple(verb for verb in verbs if noun in object_nouns(verb))


def _count_phrases(nouns: Iterable[Noun]) -> int:
    """Return the number of singular noun phrases of a determiner, at most one adjective, and one of the nouns."""
    determiners = len(set(SINGULAR_DETERMINERS))
    return sum(determiners * (1 + len(ADJECTIVES_BY_KIND[noun.kind])) for noun in nouns if not noun.mass)


def pair_count() -> int:
    """Return a lower bound of the number of pairs: sentences of subject, verb and one object.

    Each choice is visible in the English sentence, so the counted sentences are distinct.
    """
    total = 0
    for verb in lex.VERBS_BY_FRAME["accusative"]:
        tenses = sum(
            inflection.has_form(verb, tense, is_negated=False) for tense in ("present", "past", "perfect", "future")
        )
        total += _count_phrases(nouns_of(verb.subjects)) * _count_phrases(object_nouns(verb)) * tenses
    return total
