"""The trees that both languages are made from; knows structure, nothing of words' forms or their order."""

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

# Determiners that leave open what "not" and "never" deny.
UNNEGATED = ("every", "all", "no", "two", "three", "many", "some")
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


class Coordination(NamedTuple):
    """Two noun phrases joined by "and": plural."""

    first: NounPhrase
    second: NounPhrase


class Gap(NamedTuple):
    """The place in a relative clause that the relative pronoun fills."""

    noun: Noun
    plural: bool


Nominal = NounPhrase | PersonalPronoun | Name | It | Coordination | Gap


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


class ConjoinedClause(NamedTuple):
    """A clause with the conjunction before it."""

    conjunction: str
    clause: Clause


class Sentence(NamedTuple):
    """Main clauses, the later ones joined by and/but, with a subordinate clause before or after them or neither."""

    main: Clause
    conjuncts: tuple[ConjoinedClause, ...] = ()
    before: ConjoinedClause | None = None
    after: ConjoinedClause | None = None


def clauses(sentence: Sentence) -> Iterator[Clause]:
    """The top-level clauses in their English order."""
    if sentence.before:
        yield sentence.before.clause
    yield sentence.main
    for part in sentence.conjuncts:
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
    return [phrase for phrase in phrases if can_be_antecedent(phrase) and not any(phrase is other for other in denied)]


def all_clauses(tree: Sentence) -> Iterator[Clause]:
    """Every clause, inner ones included."""
    for clause in clauses(tree):
        for outer in (clause, clause.that):
            if outer is not None:
                yield outer
                yield from (phrase.relative for phrase in noun_phrases(outer) if phrase.relative)


def can_negate(clause: Clause) -> bool:
    """Whether "not" is unambiguous in this clause."""
    if clause.frequency:
        return False
    for item in (clause.subject, clause.indirect, clause.direct):
        if isinstance(item, Coordination) or (isinstance(item, NounPhrase) and item.determiner.english in UNNEGATED):
            return False
    return True


def count_negations(clause: Clause) -> int:
    """How often a clause denies itself, by not, never or no."""
    count = int(clause.is_negated) + (clause.frequency is not None and clause.frequency.stem == "never")
    for part in (clause.front, clause.subject, clause.indirect, clause.direct, clause.companion, clause.place):
        item = part.nominal if isinstance(part, PrepositionPhrase) else part
        item = item.first if isinstance(item, Coordination) else item
        count += isinstance(item, NounPhrase) and item.determiner.english == "no"
    return count


def has_pronoun(clause: Clause) -> bool:
    """Whether "it" is the subject or the object of the clause itself."""
    return isinstance(clause.subject, It) or isinstance(clause.direct, It)


def clauses_with_antecedents(tree: Sentence) -> Iterator[tuple[list[NounPhrase], Clause]]:
    """Each top-level clause with what "it" could stand for in all clauses before it."""
    earlier: list[NounPhrase] = []
    for clause in clauses(tree):
        yield earlier, clause
        earlier = [*earlier, *antecedents(clause)]


def possible_antecedents(earlier: list[NounPhrase], clause: Clause) -> list[NounPhrase]:
    """The phrases that "it" could stand for by what its clause says about it."""
    if isinstance(clause.direct, It):
        kinds = clause.verb.objects
        earlier = [*earlier, *antecedents(clause.subject)]
    else:
        kinds = clause.predicate.adjective.kinds if clause.predicate else clause.verb.subjects
    return [phrase for phrase in earlier if phrase.noun.kind in kinds]


def resolve_pronoun(tree: Sentence) -> Sentence:
    """The sentence with "it" tied to its noun."""
    for earlier, clause in clauses_with_antecedents(tree):
        if has_pronoun(clause):
            it = It(possible_antecedents(earlier, clause)[0])
            resolved = clause._replace(subject=it) if isinstance(clause.subject, It) else clause._replace(direct=it)
            return replace_clause(tree, clause, resolved)
    return tree


def replace_clause(tree: Sentence, old: Clause, new: Clause) -> Sentence:
    """The sentence with one top-level clause exchanged."""

    def swap(part: ConjoinedClause) -> ConjoinedClause:
        return part._replace(clause=new) if part.clause is old else part

    return Sentence(
        new if tree.main is old else tree.main,
        tuple(swap(part) for part in tree.conjuncts),
        swap(tree.before) if tree.before else None,
        swap(tree.after) if tree.after else None,
    )


def find_violation(tree: Sentence) -> str:
    """What rules out a reading that the word order allows; "" if nothing does."""
    for part in (tree.before, tree.after):
        if part and part.conjunction == "if" and part.clause.tense != "present":
            return "'if' takes the present"
    for clause in all_clauses(tree):
        if clause.is_negated and not can_negate(clause):
            return "'not' does not go with every, all, no, numbers, 'and' or a frequency adverb in the same clause"
        if count_negations(clause) > 1:
            return "two of no, never and not do not go together in one clause"
        if clause.tense == "perfect" and (clause.time in FINISHED_TIMES or clause.front in FINISHED_TIMES):
            return "'has' and 'have' with a participle do not go with a time that is over"
    for earlier, clause in clauses_with_antecedents(tree):
        if has_pronoun(clause) and len(possible_antecedents(earlier, clause)) != 1:
            return f"'it' needs exactly one fitting noun before it, not {len(possible_antecedents(earlier, clause))},"
    return ""
