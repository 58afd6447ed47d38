"""Syntax trees shared by both languages, independent of word forms and word order, and the constraints on them."""

from collections.abc import Iterator
from typing import NamedTuple

from clearhead.grammar.lexicon import (
    DETERMINER,
    FINISHED_TIMES,
    Adjective,
    Adverb,
    Determiner,
    Modal,
    Noun,
    PersonalPronoun,
    Preposition,
    Verb,
)

# With these determiners the scope of "not" and "never" is ambiguous.
UNNEGATED = ("every", "all", "no", "two", "three", "many", "some")
INDEFINITE = (DETERMINER["a"], DETERMINER[""])


class NounPhrase(NamedTuple):
    """Noun with its determiner and adjectives, and a genitive or a relative clause, but not both."""

    determiner: Determiner
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    very: bool = False
    genitive: "NounPhrase | None" = None
    relative: "Clause | None" = None


class Name(NamedTuple):
    """Name of a person, the same in both languages."""

    name: str


class It(NamedTuple):
    """Pronoun "it" with its antecedent, the same object as the noun phrase in the tree."""

    antecedent: NounPhrase


class Coordination(NamedTuple):
    """Two noun phrases coordinated by "and"; grammatically plural."""

    first: NounPhrase
    second: NounPhrase


class Gap(NamedTuple):
    """Position in a relative clause that is filled by the relative pronoun."""

    noun: Noun
    plural: bool


Nominal = NounPhrase | PersonalPronoun | Name | It | Coordination | Gap


class PrepositionPhrase(NamedTuple):
    """Preposition and its complement; two-way prepositions govern the accusative if `is_direction`."""

    preposition: Preposition
    nominal: Nominal
    is_direction: bool = False


class Predicate(NamedTuple):
    """Predicate adjective after "to be", with "very", "too" or no intensifier."""

    adjective: Adjective
    intensifier: str = ""


class Clause(NamedTuple):
    """Clause, independent of word order; `tense` is present, past, perfect or future."""

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


class ConjoinedClause(NamedTuple):
    """Clause with its conjunction."""

    conjunction: str
    clause: Clause


class Sentence(NamedTuple):
    """Main clauses coordinated by "and" or "but", with at most one subordinate clause before or after them."""

    main: Clause
    conjuncts: tuple[ConjoinedClause, ...] = ()
    before: ConjoinedClause | None = None
    after: ConjoinedClause | None = None


def clauses(sentence: Sentence) -> Iterator[Clause]:
    """Yield the top-level clauses in their English order."""
    if sentence.before:
        yield sentence.before.clause
    yield sentence.main
    for part in sentence.conjuncts:
        yield part.clause
    if sentence.after:
        yield sentence.after.clause


def noun_phrases(item: object) -> Iterator[NounPhrase]:
    """Yield every noun phrase of a tree, outer before inner, without the antecedents of "it"."""
    if isinstance(item, NounPhrase):
        yield item
        if item.genitive:
            yield item.genitive
        if item.relative:
            yield from noun_phrases(item.relative)
    elif isinstance(item, Coordination):
        yield item.first
        yield item.second
    elif isinstance(item, PrepositionPhrase):
        yield from noun_phrases(item.nominal)
    elif isinstance(item, Clause):
        for part in (item.front, item.subject, item.indirect, item.direct, item.companion, item.place, item.that):
            if part is not None:
                yield from noun_phrases(part)


def can_be_antecedent(phrase: NounPhrase) -> bool:
    """Return whether "it" can refer to the phrase: a singular animal or thing without "every" or "no"."""
    return not phrase.plural and phrase.noun.kind != "person" and phrase.determiner.english not in ("every", "no")


def uses_kein(clause: Clause) -> bool:
    """Return whether a negated clause uses kein: its object is indefinite and not prepositional."""
    direct = clause.direct
    return isinstance(direct, NounPhrase) and direct.determiner in INDEFINITE and "+" not in clause.verb.frame


def antecedents(item: object) -> list[NounPhrase]:
    """Return the phrases of a tree that a later "it" can refer to; an object negated by kein cannot be one."""
    phrases = list(noun_phrases(item))
    inner = [item, *(phrase.relative for phrase in phrases)]
    if isinstance(item, Clause):
        inner.append(item.that)
    negated = (part for part in inner if isinstance(part, Clause) and part.is_negated)
    excluded = [clause.direct for clause in negated if uses_kein(clause)]
    return [
        phrase for phrase in phrases if can_be_antecedent(phrase) and not any(phrase is other for other in excluded)
    ]


def all_clauses(tree: Sentence) -> Iterator[Clause]:
    """Yield every clause, including that-clauses and relative clauses."""
    for clause in clauses(tree):
        for outer in (clause, clause.that):
            if outer is not None:
                yield outer
                yield from (phrase.relative for phrase in noun_phrases(outer) if phrase.relative)


def can_negate(clause: Clause) -> bool:
    """Return whether "not" is unambiguous in the clause."""
    if clause.frequency:
        return False
    for item in (clause.subject, clause.indirect, clause.direct):
        if isinstance(item, Coordination) or (isinstance(item, NounPhrase) and item.determiner.english in UNNEGATED):
            return False
    return True


def count_negations(clause: Clause) -> int:
    """Return the number of negations ("not", "never", "no") in a clause."""
    count = int(clause.is_negated) + (clause.frequency is not None and clause.frequency.stem == "never")
    for part in (clause.front, clause.subject, clause.indirect, clause.direct, clause.companion, clause.place):
        item = part.nominal if isinstance(part, PrepositionPhrase) else part
        item = item.first if isinstance(item, Coordination) else item
        count += isinstance(item, NounPhrase) and item.determiner.english == "no"
    return count


def has_pronoun(clause: Clause) -> bool:
    """Return whether "it" is the subject or the object of the clause."""
    return isinstance(clause.subject, It) or isinstance(clause.direct, It)


def clauses_with_antecedents(tree: Sentence) -> Iterator[tuple[list[NounPhrase], Clause]]:
    """Yield each top-level clause with the candidate antecedents from all clauses before it."""
    earlier: list[NounPhrase] = []
    for clause in clauses(tree):
        yield earlier, clause
        earlier = [*earlier, *antecedents(clause)]


def possible_antecedents(earlier: list[NounPhrase], clause: Clause) -> list[NounPhrase]:
    """Return the candidates that satisfy the selectional restriction of the adjective or verb of "it"."""
    if isinstance(clause.direct, It):
        kinds = clause.verb.objects
        earlier = [*earlier, *antecedents(clause.subject)]
    else:
        kinds = clause.predicate.adjective.kinds if clause.predicate else clause.verb.subjects
    return [phrase for phrase in earlier if phrase.noun.kind in kinds]


def resolve_pronoun(tree: Sentence) -> Sentence:
    """Return the sentence with "it" linked to its antecedent."""
    for earlier, clause in clauses_with_antecedents(tree):
        if has_pronoun(clause):
            it = It(possible_antecedents(earlier, clause)[0])
            resolved = clause._replace(subject=it) if isinstance(clause.subject, It) else clause._replace(direct=it)
            return replace_clause(tree, clause, resolved)
    return tree


def replace_clause(tree: Sentence, old: Clause, new: Clause) -> Sentence:
    """Return the sentence with one top-level clause replaced."""

    def swap(part: ConjoinedClause) -> ConjoinedClause:
        return part._replace(clause=new) if part.clause is old else part

    return Sentence(
        new if tree.main is old else tree.main,
        tuple(swap(part) for part in tree.conjuncts),
        swap(tree.before) if tree.before else None,
        swap(tree.after) if tree.after else None,
    )


def find_violation(tree: Sentence) -> str:
    """Return the constraint that a parsed sentence violates; "" if there is none."""
    for part in (tree.before, tree.after):
        if part and part.conjunction == "if" and part.clause.tense != "present":
            return "'if' requires the present tense"
    for clause in all_clauses(tree):
        if clause.is_negated and not can_negate(clause):
            return "'not' cannot be combined with every, all, no, numbers, 'and' or a frequency adverb in one clause"
        if count_negations(clause) > 1:
            return "a clause cannot contain two of 'no', 'never' and 'not'"
        if clause.tense == "perfect" and (clause.time in FINISHED_TIMES or clause.front in FINISHED_TIMES):
            return "'has' and 'have' with a participle cannot be combined with a past time"
    for earlier, clause in clauses_with_antecedents(tree):
        if has_pronoun(clause) and len(possible_antecedents(earlier, clause)) != 1:
            return f"'it' needs exactly one fitting noun before it, not {len(possible_antecedents(earlier, clause))},"
    return ""
