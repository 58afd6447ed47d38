"""The random choice of clauses.

Meaning is only roughly kept (people eat food, doors are opened), so that sentences read sensibly; the parser does
not ask for it.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from clearhead.data.grammar import chances as tables
from clearhead.data.grammar import english
from clearhead.data.grammar import lexicon as lex
from clearhead.data.grammar.chances import SHORT, Chances, nouns_of, time_code, times_of
from clearhead.data.grammar.lexicon import BE, DETERMINER, HAVE, Adverb, Kinds, Modal, Noun, Preposition, Verb
from clearhead.data.grammar.nouns import NAMES
from clearhead.data.grammar.realise import uses_kein
from clearhead.data.grammar.syntax import Clause, Couple, Gap, Name, Nominal, NounPhrase, Predicate, PrepositionPhrase

T = TypeVar("T")


class Sampler:
    """Draws clauses; the same seed draws the same ones."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[int(self.random() * len(items))]

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return low + int(self.random() * (high - low + 1))

    def noun_phrase(self, nouns: Sequence[Noun], chances: Chances, plain: bool = False) -> NounPhrase:
        """A phrase around one of the nouns; a plain one has only determiners that go with negation."""
        noun = self.pick(nouns)
        plural = not noun.mass and self.random() < 0.26
        if noun.mass:
            determiner = self.pick(tables.MASS)
        elif plural:
            determiner = self.pick(tables.PLAIN_PLURAL if plain else tables.PLURAL)
        else:
            determiner = self.pick(tables.PLAIN_SINGULAR if plain else tables.SINGULAR)
        adjectives, very = self.adjectives(noun, chances.adjective)
        very = very and not plain
        genitive = None
        if determiner.english == "the" and self.random() < chances.genitive and noun.kind in tables.GENITIVE_OWNERS:
            genitive = self.genitive(noun)
        return NounPhrase(determiner, noun, plural, adjectives, very, genitive)

    def adjectives(self, noun: Noun, chance: float) -> tuple[tuple[lex.Adjective, ...], bool]:
        """None, one (perhaps with very) or two in their usual order."""
        draw = self.random()
        if draw >= chance:
            return (), False
        options = tables.ADJECTIVES_BY_KIND[noun.kind]
        first = self.pick(options)
        if draw < chance * 0.14:
            second = self.pick(options)
            if second is not first:
                return ((first, second) if first.rank < second.rank else (second, first)), False
        return (first,), draw > chance * 0.92

    def genitive(self, noun: Noun) -> NounPhrase:
        """A fitting owner: people own things, houses have doors."""
        owner = self.pick(nouns_of(tables.GENITIVE_OWNERS[noun.kind]))
        plural = self.random() < 0.2
        return NounPhrase(self.pick(tables.DEFINITE), owner, plural, self.adjectives(owner, 0.15)[0][:1])

    def nominal(self, kinds: Kinds, chances: Chances, plain: bool, other: Nominal | None = None) -> Nominal:
        """A subject or object of these kinds; never the pronoun that `other` already is."""
        draw = self.random()
        if "person" in kinds and draw < 0.26:
            if draw < 0.08:
                name = Name(self.pick(NAMES))
                return name if name != other else lex.PERSONALS[0]
            person = self.pick(lex.PERSONALS)
            if person is not other:
                return person
        if not plain and draw > 1 - chances.couple:
            nouns = nouns_of(kinds)
            first = self.noun_phrase(nouns, tables.COUPLED, True)
            second = self.noun_phrase(nouns, tables.COUPLED, True)
            if first.noun is not second.noun:
                return Couple(first, second)
        return self.noun_phrase(nouns_of(kinds), chances, plain)

    def clause(
        self,
        chances: Chances,
        verb: Verb | None = None,
        subject: Nominal | None = None,
        tenses: Sequence[str] | None = None,
    ) -> Clause:
        """A clause without that-clause; with a given subject the verb must be given too."""
        verb = verb or self.pick(lex.VERBS_BY_FRAME[self.pick(tables.FRAMES)])
        is_negated = self.random() < chances.negation
        tense, modal, is_negated = self.tense(verb, is_negated, tenses)
        no_subject = not is_negated and self.random() < 0.02 and subject is None
        if subject is None:
            subject = self.nominal(verb.subjects, chances, is_negated or no_subject)
            subject = self.add_relative(subject, chances)
            if no_subject:
                subject = self.with_no(subject)
        if verb is BE:
            return self.state(chances, subject, tense, is_negated)
        frequency = None
        code = time_code(tense, modal is not None)
        if not is_negated and not no_subject and tense != "future" and self.random() < 0.08:
            frequency, code = self.pick(lex.FREQUENCIES), ""
        clause = Clause(subject, verb, tense, modal, is_negated, frequency=frequency)
        plain = is_negated or no_subject or frequency is not None
        return self.adverbials(self.objects(clause, chances, plain), chances, code)

    def tense(
        self, verb: Verb, is_negated: bool, tenses: Sequence[str] | None = None
    ) -> tuple[str, Modal | None, bool]:
        """Tense, modal, and whether "not" can stay."""
        is_state = verb is BE or verb is HAVE
        tense = self.pick(tenses or (tables.STATE_TENSES if is_state else tables.TENSES))
        if is_state and tense.startswith("modal"):
            tense = "past" if tense == "modal-past" else "present"
        modal = None
        if tense.startswith("modal"):
            modal = self.pick(lex.MODALS)
            tense = "past" if tense == "modal-past" and modal.past else "present"
            is_negated = is_negated and modal.english != ("must",)
        elif not english.allows(verb, tense, is_negated):
            tense = "perfect"
        return tense, modal, is_negated

    @staticmethod
    def with_no(item: Nominal) -> Nominal:
        """The phrase with "no" as its determiner."""
        if isinstance(item, NounPhrase):
            return item._replace(determiner=DETERMINER["no"], genitive=None)
        return item

    def objects(self, clause: Clause, chances: Chances, plain: bool) -> Clause:
        """Add the objects that the verb asks for."""
        verb = clause.verb
        if not verb.objects:
            return clause
        indirect = None
        if verb.frame == "ditransitive":
            indirect = self.nominal(tables.PEOPLE, SHORT, plain, clause.subject)
            direct: Nominal = self.noun_phrase(nouns_of(verb.objects), chances, plain)
            if clause.is_negated and isinstance(indirect, NounPhrase) and not indirect.determiner.english.strip("a"):
                indirect = indirect._replace(determiner=DETERMINER["the"])
        elif verb.frame in ("placing", "have"):
            direct = self.noun_phrase(nouns_of(verb.objects), chances, plain)
        else:
            direct = self.nominal(verb.objects, chances, plain, clause.subject)
        if not plain and self.random() < 0.02:
            direct = self.with_no(direct)
        return clause._replace(indirect=indirect, direct=direct)

    def state(self, chances: Chances, subject: Nominal, tense: str, is_negated: bool) -> Clause:
        """Something is somehow or somewhere."""
        clause = Clause(subject, BE, tense, None, is_negated)
        code = time_code(tense, False)
        if not is_negated and self.random() < 0.05:
            clause, code = clause._replace(frequency=self.pick(lex.FREQUENCIES)), ""
        kind = "person"
        if isinstance(subject, NounPhrase | Gap):
            kind = subject.noun.kind
        elif isinstance(subject, Couple):
            kind = subject.first.noun.kind
        if kind not in tables.FIXED and self.random() < 0.22:
            clause = clause._replace(place=self.location())
        else:
            intensifier = self.pick(("", "", "", "very", "too"))
            clause = clause._replace(predicate=Predicate(self.pick(tables.ADJECTIVES_BY_KIND[kind]), intensifier))
        return self.add_time(clause, chances, code)

    def adverbials(self, clause: Clause, chances: Chances, code: str) -> Clause:
        """Add manner, companion, place and time, or a relative clause of the object, which closes the clause."""
        verb = clause.verb
        direct = clause.direct
        if isinstance(direct, NounPhrase) and verb.frame != "placing" and "+" not in verb.frame:
            with_relative = self.add_relative(direct, chances)
            if with_relative is not direct:
                return self.add_front(clause._replace(direct=with_relative), chances, code)
        if clause.is_negated and uses_kein(clause):
            return self.add_time(clause._replace(place=self.goal(verb)), chances, code)
        manner = self.pick(lex.MANNERS) if "m" in verb.extras and self.random() < chances.manner else None
        place: PrepositionPhrase | Adverb | None = self.goal(verb)
        companion = None
        if place is None:
            if self.random() < chances.companion and (manner is None or manner.stem != "alone"):
                companion = self.companion(verb, clause.subject)
            if "l" in verb.extras and self.random() < chances.place:
                place = self.location()
        return self.add_time(clause._replace(manner=manner, companion=companion, place=place), chances, code)

    def goal(self, verb: Verb) -> PrepositionPhrase | None:
        """Where something is put or somebody moves, if the verb has that."""
        if verb.frame == "placing":
            return self.phrase(tables.TWO_WAY, True)
        if "d" in verb.extras and self.random() < 0.85:
            return self.phrase(tables.DIRECTIONS, True)
        return None

    def companion(self, verb: Verb, subject: Nominal) -> PrepositionPhrase | None:
        """With, without or for somebody."""
        options = [*tables.COMPANIONS] if "w" in verb.extras else []
        if "f" in verb.extras:
            options.append(tables.PURPOSE)
        if not options:
            return None
        return PrepositionPhrase(self.pick(options), self.nominal(tables.PEOPLE, SHORT, True, subject))

    def location(self) -> PrepositionPhrase | Adverb:
        """Where something happens."""
        return self.pick(lex.PLACES) if self.random() < 0.15 else self.phrase(tables.LOCATIONS, False)

    def phrase(self, options: Sequence[Preposition], is_direction: bool) -> PrepositionPhrase:
        """A place with its preposition."""
        preposition = self.pick(options)
        return PrepositionPhrase(preposition, self.noun_phrase(nouns_of(preposition.fits), SHORT, True), is_direction)

    def add_time(self, clause: Clause, chances: Chances, code: str) -> Clause:
        """Time at the end, or something at the front, or neither."""
        if code and self.random() < chances.time:
            return clause._replace(time=self.time(clause, code))
        return self.add_front(clause, chances, code)

    def time(self, clause: Clause, code: str) -> Adverb:
        """A time for one of the tenses; what is or is not the case is so at one time, not every day."""
        return self.pick(times_of(self.pick(code), clause.is_negated or clause.verb is BE))

    def add_front(self, clause: Clause, chances: Chances, code: str) -> Clause:
        """Perhaps put time, a comment or a location first."""
        draw = self.random() / chances.front if chances.front else 1.0
        if draw >= 1:
            return clause
        if draw < 0.55 and code:
            return clause._replace(front=self.time(clause, code))
        if draw < 0.75:
            return clause._replace(front=self.pick(lex.COMMENTS))
        if clause.place is None and clause.verb is not BE and "d" not in clause.verb.extras:
            return clause._replace(front=self.phrase(tables.LOCATIONS, False))
        return clause

    def add_relative(self, item: Nominal, chances: Chances) -> Nominal:
        """Perhaps give a noun phrase a relative clause."""
        if not isinstance(item, NounPhrase) or item.genitive or self.random() >= chances.relative:
            return item
        kind = item.noun.kind
        gap = Gap(item.noun, item.plural)
        if kind in ("person", "animal") and self.random() < 0.5:
            verb = self.pick(tables.subject_verbs(kind))
            return item._replace(relative=self.clause(tables.RELATIVE, verb, gap))
        verb = self.pick(tables.object_verbs(kind))
        tense, modal, is_negated = self.tense(verb, self.random() < SHORT.negation)
        subject = self.nominal(verb.subjects, tables.RELATIVE, True)
        if is_negated and isinstance(subject, NounPhrase):  # "das eine Frau nicht sieht" could be read both ways
            subject = subject._replace(determiner=DETERMINER["the"])
        clause = Clause(subject, verb, tense, modal, is_negated, direct=gap)
        return item._replace(relative=self.add_time(clause, SHORT, time_code(tense, modal is not None)))
