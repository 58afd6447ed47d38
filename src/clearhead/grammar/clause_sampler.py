"""Random sampling of clauses.

Selectional restrictions are approximated (people eat food, doors are opened), so that sentences are plausible; the
parser does not check them.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from clearhead.grammar import collocations as tables
from clearhead.grammar import inflection
from clearhead.grammar import lexicon as lex
from clearhead.grammar.collocations import (
    PEOPLE,
    SHORT,
    LocationOptions,
    Probabilities,
    nouns_of,
    object_nouns,
    time_code,
    times_of,
)
from clearhead.grammar.lexicon import BE, DETERMINER, Adverb, Modal, Noun, Verb
from clearhead.grammar.nouns import NAMES
from clearhead.grammar.syntax import (
    UNNEGATED,
    Clause,
    Coordination,
    Gap,
    Name,
    Nominal,
    NounPhrase,
    Predicate,
    PrepositionPhrase,
    uses_kein,
)

T = TypeVar("T")
FIRST_PERSONS = tuple(entry for entry in lex.PERSONAL_PRONOUNS if entry.english in ("I", "we"))


class ClauseSampler:
    """Sampler of clauses; the same seed yields the same clauses."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[int(self.random() * len(items))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def noun_phrase(self, nouns: Sequence[Noun], probabilities: Probabilities, plain: bool = False) -> NounPhrase:
        """Return a phrase with one of the nouns; `plain` excludes determiners that are ambiguous under negation."""
        noun = self.pick(nouns)
        plural = not noun.mass and self.random() < 0.26
        if noun.mass:
            determiner = self.pick(tables.MASS_DETERMINERS)
        elif plural:
            determiner = self.pick(tables.PLAIN_PLURAL_DETERMINERS if plain else tables.PLURAL_DETERMINERS)
        else:
            determiner = self.pick(tables.PLAIN_SINGULAR_DETERMINERS if plain else tables.SINGULAR_DETERMINERS)
        adjectives, very = self.adjectives(noun, probabilities.adjective)
        very = very and not plain
        genitive = None
        if (
            determiner.english == "the"
            and self.random() < probabilities.genitive
            and noun.kind in tables.GENITIVE_OWNERS
        ):
            genitive = self.genitive(noun)
        return NounPhrase(determiner, noun, plural, adjectives, very, genitive)

    def adjectives(self, noun: Noun, chance: float) -> tuple[tuple[lex.Adjective, ...], bool]:
        """Return up to two adjectives in their usual order, and whether "very" precedes a single one."""
        draw = self.random()
        if draw >= chance:
            return (), False
        options = tables.ADJECTIVES_BY_KIND[noun.kind]
        first = self.pick(options)
        if draw < chance * 0.14:
            second = self.pick(tables.compatible_adjectives(noun.kind, (first,)))
            return ((first, second) if first.rank < second.rank else (second, first)), False
        return (first,), draw > chance * 0.92

    def genitive(self, noun: Noun) -> NounPhrase:
        """Return a plausible owner: people own things, houses have doors."""
        owner = self.pick(nouns_of(tables.GENITIVE_OWNERS[noun.kind]))
        plural = self.random() < 0.2
        return NounPhrase(self.pick(tables.DEFINITE_DETERMINERS), owner, plural, self.adjectives(owner, 0.15)[0][:1])

    def nominal(
        self, nouns: tuple[Noun, ...], probabilities: Probabilities, plain: bool, other: Nominal | None = None
    ) -> Nominal:
        """Return a subject or object: one of the nouns, or a pronoun or name that differs from `other`."""
        draw = self.random()
        if nouns[0].kind == "person" and draw < 0.26:
            if draw < 0.08:
                name = Name(self.pick(NAMES))
                return name if name != other else lex.PERSONAL_PRONOUNS[0]
            person = self.pick(lex.PERSONAL_PRONOUNS)
            if person is not other and not (person in FIRST_PERSONS and other in FIRST_PERSONS):
                return person
        if not plain and draw > 1 - probabilities.couple:
            first = self.noun_phrase(nouns, tables.COORDINATED, True)
            second = self.noun_phrase(tables.coordinated_nouns(first.noun, nouns), tables.COORDINATED, True)
            if first.noun is not second.noun:
                return coordinate(first, second)
        return self.noun_phrase(nouns, probabilities, plain)

    def clause(
        self,
        probabilities: Probabilities,
        verb: Verb | None = None,
        subject: Nominal | None = None,
        tenses: Sequence[str] | None = None,
    ) -> Clause:
        """Return a clause without that-clause; if `subject` is given, `verb` must be given, too."""
        verb = verb or self.pick(lex.VERBS_BY_FRAME[self.pick(tables.FRAMES)])
        is_negated = self.random() < probabilities.negation
        tense, modal, is_negated = self.tense(verb, is_negated, tenses)
        has_no = not is_negated and self.random() < 0.02 and subject is None
        if subject is None:
            subject = self.nominal(nouns_of(verb.subjects), probabilities, is_negated or has_no)
            subject = self.add_relative(subject, probabilities)
            if has_no:
                subject = self.with_no(subject)
        if verb is BE:
            return self.state(probabilities, subject, tense, is_negated)
        frequency = None
        code = time_code(verb, tense, modal is not None)
        if not is_negated and "s" not in verb.adverbials and tense != "future" and self.random() < 0.08:
            frequency, code = self.frequency(subject), ""
        clause = Clause(subject, verb, tense, modal, is_negated, frequency=frequency)
        plain = is_negated or has_no or frequency is not None
        return self.adverbials(self.objects(clause, probabilities, plain), probabilities, code)

    def tense(
        self, verb: Verb, is_negated: bool, tenses: Sequence[str] | None = None
    ) -> tuple[str, Modal | None, bool]:
        """Return tense, modal, and whether the clause is negated; "must" drops the negation."""
        is_state = verb is BE or "s" in verb.adverbials
        tense = self.pick(tenses or (tables.STATE_TENSES if is_state else tables.TENSES))
        if is_state and tense not in tables.STATE_TENSES:
            tense = "past" if tense == "modal-past" else "present"
        modal = None
        if tense.startswith("modal"):
            modal = self.pick(lex.MODALS if tense == "modal" else tables.PAST_MODALS)
            tense = "past" if tense == "modal-past" else "present"
            is_negated = is_negated and modal.english != ("must",)
        elif not inflection.has_form(verb, tense, is_negated):
            tense = "perfect"
        return tense, modal, is_negated

    def frequency(self, subject: Nominal) -> Adverb | None:
        """Return a frequency adverb: none if the subject has "no", not "never" after quantifiers such as "every"."""
        determiner = subject.determiner.english if isinstance(subject, NounPhrase) else ""
        if determiner == "no":
            return None
        return self.pick(tables.POSITIVE_FREQUENCIES if determiner in UNNEGATED else lex.FREQUENCIES)

    @staticmethod
    def with_no(item: Nominal) -> Nominal:
        """Return the phrase with "no" as its determiner."""
        if isinstance(item, NounPhrase):
            return item._replace(determiner=DETERMINER["no"], genitive=None)
        return item

    def objects(self, clause: Clause, probabilities: Probabilities, plain: bool) -> Clause:
        """Add the objects that the verb requires."""
        verb = clause.verb
        if not verb.objects:
            return clause
        indirect = None
        nouns = object_nouns(verb)
        if verb.frame == "ditransitive":
            indirect = self.nominal(PEOPLE, SHORT, plain, clause.subject)
            direct: Nominal = self.noun_phrase(nouns, probabilities, plain)
            if clause.is_negated and isinstance(indirect, NounPhrase) and not indirect.determiner.english.strip("a"):
                indirect = indirect._replace(determiner=DETERMINER["the"])
        elif verb.frame in ("placing", "have"):
            direct = self.noun_phrase(nouns, probabilities, plain)
        else:
            direct = self.nominal(nouns, probabilities, plain, clause.subject)
        if not plain and self.random() < 0.02:
            direct = self.with_no(direct)
        return clause._replace(indirect=indirect, direct=direct)

    def state(self, probabilities: Probabilities, subject: Nominal, tense: str, is_negated: bool) -> Clause:
        """Return a clause with "to be" and an adjective or a location."""
        clause = Clause(subject, BE, tense, None, is_negated)
        code = time_code(BE, tense, False)
        if not is_negated and self.random() < 0.05:
            clause, code = clause._replace(frequency=self.frequency(subject)), ""
        kind = kind_of(subject)
        if kind not in tables.IMMOVABLE and self.random() < 0.22:
            clause = clause._replace(place=self.location(tables.size_of(kind)))
        else:
            intensifier = self.pick(("", "", "", "very", "too"))
            adjective = self.pick(tables.compatible_adjectives(kind, adjectives_of(subject)))
            clause = clause._replace(predicate=Predicate(adjective, intensifier))
        return self.add_time(clause, probabilities, code)

    def adverbials(self, clause: Clause, probabilities: Probabilities, code: str) -> Clause:
        """Add manner, companion, place and time, or a relative clause of the object, which ends the clause."""
        verb = clause.verb
        direct = clause.direct
        if isinstance(direct, NounPhrase) and verb.frame != "placing" and "+" not in verb.frame:
            with_relative = self.add_relative(direct, probabilities)
            if with_relative is not direct:
                return self.add_front(clause._replace(direct=with_relative), probabilities, code)
        place = self.goal(clause)
        if clause.is_negated and uses_kein(clause):
            return self.add_time(clause._replace(place=place), probabilities, code)
        manner = self.pick(lex.MANNERS) if "m" in verb.adverbials and self.random() < probabilities.manner else None
        if isinstance(direct, NounPhrase) and direct.determiner.english == "no":
            manner = None  # "carries no knife quickly" is implausible
        companion = None
        if place is None:
            if self.random() < probabilities.companion and (manner is None or manner.stem != "alone"):
                companion = self.companion(verb, clause.subject)
            if "l" in verb.adverbials and self.random() < probabilities.place:
                place = self.location(size_of_scene(clause))
            elif "a" in verb.adverbials and self.random() < probabilities.place:
                place = self.home()
        return self.add_time(clause._replace(manner=manner, companion=companion, place=place), probabilities, code)

    def goal(self, clause: Clause) -> PrepositionPhrase | Adverb | None:
        """Return the goal of putting or moving or the place of residence, if the verb takes one."""
        verb = clause.verb
        if verb.frame == "placing" and clause.direct:
            return self.phrase(tables.goal_options(tables.size_of(kind_of(clause.direct))), True)
        if "d" in verb.adverbials and self.random() < 0.85:
            return self.phrase(tables.direction_options(verb), True)
        return self.home() if "h" in verb.adverbials else None

    def home(self) -> PrepositionPhrase | Adverb:
        """Return a place of residence or arrival: here, there, or in a building or an area."""
        return self.pick(lex.PLACES[:2]) if self.random() < 0.15 else self.phrase(tables.HOMES, False)

    def companion(self, verb: Verb, subject: Nominal) -> PrepositionPhrase | None:
        """Return a phrase with "with", "without" or "for", if the verb takes one."""
        options = [*tables.COMPANIONS] if "w" in verb.adverbials else []
        if "f" in verb.adverbials:
            options.append(tables.PURPOSE)
        if not options:
            return None
        return PrepositionPhrase(self.pick(options), self.nominal(PEOPLE, SHORT, True, subject))

    def location(self, size: str) -> PrepositionPhrase | Adverb:
        """Return a location of something of a given size."""
        return self.pick(lex.PLACES) if self.random() < 0.15 else self.phrase(tables.location_options(size), False)

    def phrase(self, options: LocationOptions, is_direction: bool) -> PrepositionPhrase:
        """Return a prepositional phrase of place."""
        preposition, nouns = self.pick(options)
        return PrepositionPhrase(preposition, self.noun_phrase(nouns, SHORT, True), is_direction)

    def add_time(self, clause: Clause, probabilities: Probabilities, code: str) -> Clause:
        """Add a time at the end or an adverbial at the front, or neither."""
        if code and self.random() < probabilities.time:
            return clause._replace(time=self.time(clause, code))
        return self.add_front(clause, probabilities, code)

    def time(self, clause: Clause, code: str) -> Adverb:
        """Return a time for one of the tense codes; negated clauses and "to be" exclude "every day"."""
        return self.pick(times_of(self.pick(code), clause.is_negated or clause.verb is BE))

    def add_front(self, clause: Clause, probabilities: Probabilities, code: str) -> Clause:
        """Add a time, a comment or a location at the front, with the given probability."""
        draw = self.random() / probabilities.front if probabilities.front else 1.0
        if draw >= 1:
            return clause
        if draw < 0.55 and code:
            return clause._replace(front=self.time(clause, code))
        if draw < 0.75:
            return clause._replace(front=self.pick(lex.COMMENTS))
        if clause.place is None and clause.verb is not BE and "l" in clause.verb.adverbials:
            return clause._replace(front=self.phrase(tables.location_options(size_of_scene(clause)), False))
        return clause

    def add_relative(self, item: Nominal, probabilities: Probabilities) -> Nominal:
        """Add a relative clause to a noun phrase, with the given probability."""
        if not isinstance(item, NounPhrase) or item.genitive or self.random() >= probabilities.relative:
            return item
        kind = item.noun.kind
        gap = Gap(item.noun, item.plural)
        if kind in ("person", "animal") and self.random() < 0.5:
            verb = self.pick(tables.subject_verbs(kind))
            return item._replace(relative=self.clause(tables.RELATIVE, verb, gap))
        verb = self.pick(tables.object_verbs(item.noun))
        tense, modal, is_negated = self.tense(verb, self.random() < SHORT.negation)
        subject = self.nominal(nouns_of(verb.subjects), tables.RELATIVE, True)
        if is_negated and isinstance(subject, NounPhrase):  # "das eine Frau nicht sieht" is ambiguous
            subject = subject._replace(determiner=DETERMINER["the"])
        clause = Clause(subject, verb, tense, modal, is_negated, direct=gap)
        return item._replace(relative=self.add_time(clause, SHORT, time_code(verb, tense, modal is not None)))


def coordinate(first: NounPhrase, second: NounPhrase) -> Coordination:
    """Return the coordination of two phrases, both with or both without a determiner."""
    if first.determiner is not second.determiner:
        the = DETERMINER["the"]
        first, second = (
            item._replace(determiner=the) if item.determiner is lex.BARE else item for item in (first, second)
        )
    return Coordination(first, second)


def kind_of(item: Nominal) -> str:
    """Return the kind of a nominal; both parts of a coordination have the same kind."""
    if isinstance(item, Coordination):
        item = item.first
    return item.noun.kind if isinstance(item, NounPhrase | Gap) else "person"


def adjectives_of(item: Nominal) -> tuple[lex.Adjective, ...]:
    """Return the attributive adjectives of a nominal."""
    if isinstance(item, Coordination):
        return item.first.adjectives + item.second.adjectives
    return item.adjectives if isinstance(item, NounPhrase) else ()


def size_of_scene(clause: Clause) -> str:
    """Return the size that limits the location: the object's after verbs of searching ("lost the key in a bag")."""
    if clause.verb.stem in tables.SEARCH_VERBS and clause.direct is not None:
        return tables.size_of(kind_of(clause.direct))
    return "medium"
