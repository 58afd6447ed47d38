"""The trees that both languages are made from; knows structure, nothing of words' forms or their order."""

from collections.abc import Iterator
from typing import NamedTuple

from clearhead.grammar.lexicon import (
    DETERMINER,
    Adjective,
    Adverb,
    Determiner,
    Modal,
    Noun,
    Personal,
    Preposition,
    Verb,
)

INDEFINITE = (DETERMINER["a"], DETERMINER[""])


class NounPhrase(NamedTuple):
    """A noun with its determiner and adjectives, and at most one of genitive and relative clause."""

    determiner: Determiner
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    very: bool = False
    genitive: "NounPhrase | None" = None
    relative: "Clause | None" = None


class Name(NamedTuple):
    """A person's name, the same in both languages."""

    name: str


class It(NamedTuple):
    """The pronoun "it" and the very noun phrase (the same object) that it stands for."""

    antecedent: NounPhrase


class Couple(NamedTuple):
    """Two noun phrases joined by "and": plural."""

    first: NounPhrase
    second: NounPhrase


class Gap(NamedTuple):
    """The place in a relative clause that the relative pronoun fills."""

    noun: Noun
    plural: bool


Nominal = NounPhrase | Personal | Name | It | Couple | Gap


class PrepositionPhrase(NamedTuple):
    """A preposition and what follows it; a direction asks two-way prepositions for the accusative."""

    preposition: Preposition
    nominal: Nominal
    is_direction: bool = False


class Predicate(NamedTuple):
    """The adjective after "to be", with "very", "too" or nothing before it."""

    adjective: Adjective
    intensifier: str = ""


class Clause(NamedTuple):
    """One clause, in no language's order; tense is present, past, perfect or future."""

    subject: Nominal
    verb: Verb
    tense: str = "present"
    modal: Modal | None = None
    is_negated: bool = False
    indirect: Nominal | None = None
    direct: Nominal | None = None
    frequency: Adverb | None = None
    manner: Adverb | None = None
    companion: PrepositionPhrase | None = None
    place: PrepositionPhrase | Adverb | None = None
    time: Adverb | None = None
    front: PrepositionPhrase | Adverb | None = None
    that: "Clause | None" = None
    predicate: Predicate | None = None


class Joined(NamedTuple):
    """A clause with the conjunction before it."""

    conjunction: str
    clause: Clause


class Sentence(NamedTuple):
    """Main clauses, the later ones joined by and/but, with a subordinate clause before or after them or neither."""

    main: Clause
    joined: tuple[Joined, ...] = ()
    before: Joined | None = None
    after: Joined | None = None


def clauses(sentence: Sentence) -> Iterator[Clause]:
    """The top-level clauses in their English order."""
    if sentence.before:
        yield sentence.before.clause
    yield sentence.main
    for part in sentence.joined:
        yield part.clause
    if sentence.after:
        yield sentence.after.clause


def noun_phrases(item: object) -> Iterator[NounPhrase]:
    """Every noun phrase of a tree, outer before inner; antecedents of "it" are not entered a second time."""
    if isinstance(item, NounPhrase):
        yield item
        if item.genitive:
            yield item.genitive
        if item.relative:
            yield from noun_phrases(item.relative)
    elif isinstance(item, Couple):
        yield item.first
        yield item.second
    elif isinstance(item, PrepositionPhrase):
        yield from noun_phrases(item.nominal)
    elif isinstance(item, Clause):
        for part in (item.front, item.subject, item.indirect, item.direct, item.companion, item.place, item.that):
            if part is not None:
                yield from noun_phrases(part)


def may_be_it(phrase: NounPhrase) -> bool:
    """Whether "it" could stand for this phrase: one animal or thing, not "every" or "no" animal."""
    return not phrase.plural and phrase.noun.kind != "person" and phrase.determiner.english not in ("every", "no")


def uses_kein(clause: Clause) -> bool:
    """Whether a negated clause says kein: its object is indefinite and not prepositional."""
    item = clause.direct
    return isinstance(item, NounPhrase) and item.determiner in INDEFINITE and "+" not in clause.verb.frame


def antecedents(item: object) -> list[NounPhrase]:
    """The phrases of a tree that a later "it" could stand for; what kein denies is not there to be meant."""
    phrases = list(noun_phrases(item))
    inner = [item, *(phrase.relative for phrase in phrases)]
    if isinstance(item, Clause):
        inner.append(item.that)
    negated = (part for part in inner if isinstance(part, Clause) and part.is_negated)
    denied = [clause.direct for clause in negated if uses_kein(clause)]
    return [phrase for phrase in phrases if may_be_it(phrase) and not any(phrase is other for other in denied)]
