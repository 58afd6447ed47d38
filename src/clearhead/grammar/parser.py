"""Parser of English clauses and sentences, and `translate`, which returns their German translation."""

from collections.abc import Iterable, Iterator
from functools import cache

from clearhead.errors import DataError
from clearhead.grammar import collocations as tables
from clearhead.grammar import lexicon as lex
from clearhead.grammar.examples import Example, split_words
from clearhead.grammar.lexicon import BE, Adverb, Verb
from clearhead.grammar.nouns import NAMES
from clearhead.grammar.phrase_parser import (
    ADJECTIVES,
    BASES,
    NOUNS,
    OBJECTS,
    PARTICIPLES,
    PASTS,
    SUBJECTS,
    THIRDS,
    UNRESOLVED_IT,
    Parses,
    VerbParser,
)
from clearhead.grammar.phrases import person_of
from clearhead.grammar.realization import RealizedSentence
from clearhead.grammar.syntax import (
    Clause,
    ConjoinedClause,
    Coordination,
    Gap,
    Nominal,
    NounPhrase,
    Predicate,
    PrepositionPhrase,
    Sentence,
    find_violation,
    resolve_pronoun,
)

LocalAdverbial = PrepositionPhrase | Adverb


class ClauseParser(VerbParser):
    """Parser of clauses."""

    def clauses(self, i: int, has_front: bool, has_that: bool) -> Parses[Clause]:
        """Return every clause that starts here; `has_front` allows an adverbial before the subject."""
        return self.memoize(("clause", i, has_front, has_that), lambda: self._clauses(i, has_front, has_that))

    def _clauses(self, i: int, has_front: bool, has_that: bool) -> Iterator[tuple[Clause, int]]:
        fronts: list[tuple[LocalAdverbial | None, int]] = [(None, i)]
        if has_front:
            fronts += self.adverbs(i, lex.TIMES + lex.COMMENTS)
            fronts += self.preposition_phrases(i, tables.LOCATIONS)
        for front, start in fronts:
            for subject, middle in self.subjects(start):
                for clause, end in self.predicates(middle, subject, has_that):
                    yield clause._replace(front=front), end

    def subjects(self, i: int) -> Iterator[tuple[Nominal, int]]:
        """Yield every subject that starts here, with its relative clause."""
        yield from self.pronouns_and_names(i, SUBJECTS)
        if self.word(i) == "it":
            yield UNRESOLVED_IT, i + 1
        yield from self.coordinations(i)
        yield from self.with_relatives(i)

    def with_relatives(self, i: int) -> Iterator[tuple[NounPhrase, int]]:
        """Yield noun phrases, each without and with a relative clause."""
        for phrase, end in self.noun_phrases(i):
            yield phrase, end
            if phrase.genitive is None:
                for relative, last in self.relatives(phrase, end):
                    yield phrase._replace(relative=relative), last

    def relatives(self, phrase: NounPhrase, i: int) -> Parses[Clause]:
        """Return the relative clauses of a noun phrase."""
        key = ("relative", i, phrase.noun.english, phrase.plural)
        return self.memoize(key, lambda: self._relatives(phrase, i))

    def _relatives(self, phrase: NounPhrase, i: int) -> Iterator[tuple[Clause, int]]:
        gap = Gap(phrase.noun, phrase.plural)
        is_person = phrase.noun.kind == "person"
        if self.word(i) == ("who" if is_person else "that"):
            yield from self.predicates(i + 1, gap, has_that=False)
        if self.word(i) == ("whom" if is_person else "that"):
            subjects = [
                *self.pronouns_and_names(i + 1, SUBJECTS),
                *self.noun_phrases(i + 1),
                *self.coordinations(i + 1),
            ]
            for subject, middle in subjects:
                yield from self.predicates(middle, subject, has_that=False, gap=gap)

    def predicates(
        self, i: int, subject: Nominal, has_that: bool, gap: Gap | None = None
    ) -> Iterator[tuple[Clause, int]]:
        """Yield clauses with a verb group and everything after it; `gap` is the object of a relative clause."""
        in_relative = gap is not None or isinstance(subject, Gap)
        for group, middle in self.verb_groups(i, person_of(subject)):
            verb = group.verb
            start = Clause(subject, verb, group.tense, group.modal, group.is_negated, frequency=group.frequency)
            if gap is not None:
                if verb.frame in ("accusative", "dative"):
                    marker = verb.preposition or verb.particle
                    at = self.sequence(middle, (marker,) if marker else ())
                    if at is not None:
                        yield from self.adverbials(at, start._replace(direct=gap))
            elif verb is BE:
                yield from self.states(middle, start)
            elif verb.frame == "that":
                if has_that:
                    yield from self.that_clauses(middle, start)
            else:
                for clause, at in self.objects(middle, start, in_relative):
                    if isinstance(clause.direct, NounPhrase) and clause.direct.relative:
                        yield clause, at
                    else:
                        yield from self.adverbials(at, clause)

    def states(self, i: int, clause: Clause) -> Iterator[tuple[Clause, int]]:
        """Yield the complements of "to be": an adjective or a place."""
        at = i
        intensifier = self.word(i) if self.word(i) in lex.INTENSIFIERS else ""
        if intensifier:
            at += 1
        if self.word(at) in ADJECTIVES:
            predicate = Predicate(ADJECTIVES[self.word(at)], intensifier)
            yield from self.with_time(at + 1, clause._replace(predicate=predicate))
        for place, end in self.locations(i):
            yield from self.with_time(end, clause._replace(place=place))

    def that_clauses(self, i: int, clause: Clause) -> Iterator[tuple[Clause, int]]:
        """Yield the clause with an optional time and a that-clause."""
        for timed, at in self.with_time(i, clause):
            if self.word(at) == "that":
                for inner, end in self.clauses(at + 1, has_front=False, has_that=False):
                    yield timed._replace(that=inner), end

    def objects(self, i: int, clause: Clause, in_relative: bool) -> Iterator[tuple[Clause, int]]:
        """Yield the clause with the objects that the verb requires, with particle or preposition."""
        verb = clause.verb
        if verb.frame == "ditransitive":
            indirects = [*self.pronouns_and_names(i, OBJECTS), *self.noun_phrases(i), *self.coordinations(i)]
            for indirect, middle in indirects:
                for direct, end in self.full_objects(middle, in_relative, can_be_name=False):
                    yield clause._replace(indirect=indirect, direct=direct), end
            return
        marker = verb.preposition or verb.particle
        at = self.sequence(i, (marker,) if marker else ())
        if not verb.objects:
            if at is not None:
                yield clause, at
            return
        if at is not None:
            for direct, end in self.full_objects(at, in_relative or verb.frame == "placing" or "+" in verb.frame):
                yield clause._replace(direct=direct), end
        yield from self.pronoun_objects(i, clause)

    def full_objects(self, i: int, in_relative: bool, can_be_name: bool = True) -> Iterable[tuple[Nominal, int]]:
        """Yield noun phrases, coordinations and names as objects; relative clauses are not nested."""
        yield from self.noun_phrases(i) if in_relative else self.with_relatives(i)
        yield from self.coordinations(i)
        if can_be_name:
            yield from self.pronouns_and_names(i, {})

    def pronoun_objects(self, i: int, clause: Clause) -> Iterator[tuple[Clause, int]]:
        """Yield an object pronoun before a particle or after a preposition; "it" only without preposition."""
        verb = clause.verb
        start = self.sequence(i, (verb.preposition,) if verb.preposition else ())
        if start is None:
            return
        pronoun: Nominal | None = OBJECTS.get(self.word(start))
        if self.word(start) == "it" and not verb.preposition and verb.frame != "dative":
            pronoun = UNRESOLVED_IT
        end = self.sequence(start + 1, (verb.particle,) if verb.particle else ())
        if pronoun is not None and end is not None:
            yield clause._replace(direct=pronoun), end

    def locations(self, i: int) -> Iterator[tuple[LocalAdverbial, int]]:
        """Yield the locations that start here."""
        yield from self.adverbs(i, lex.PLACES)
        yield from self.preposition_phrases(i, tables.LOCATIONS)

    def places(self, i: int, verb: Verb) -> Iterator[tuple[LocalAdverbial | None, int]]:
        """Yield the adverbials of place that the verb accepts, and None if it requires none."""
        if verb.frame == "placing":
            yield from self.preposition_phrases(i, tables.TWO_WAY, is_direction=True)
            return
        yield None, i
        if verb.frame == "motion":
            yield from self.preposition_phrases(i, tables.DIRECTIONS, is_direction=True, allows_pronoun=True)
        else:
            yield from self.locations(i)

    def adverbials(self, i: int, clause: Clause) -> Iterator[tuple[Clause, int]]:
        """Yield the clause with manner, companion, place and time, each optional, in this order."""
        options = tables.COMPANIONS if clause.direct is None else (*tables.COMPANIONS, tables.PURPOSE)
        for manner, after_manner in [(None, i), *self.adverbs(i, lex.MANNERS)]:
            companions = self.preposition_phrases(after_manner, options, allows_pronoun=True)
            for companion, after_companion in [(None, after_manner), *companions]:
                for place, at in self.places(after_companion, clause.verb):
                    yield from self.with_time(at, clause._replace(manner=manner, companion=companion, place=place))

    def with_time(self, i: int, clause: Clause) -> Iterator[tuple[Clause, int]]:
        """Yield the clause without and with a time at its end."""
        yield clause, i
        for time, end in self.adverbs(i, lex.TIMES):
            yield clause._replace(time=time), end


class SentenceParser(ClauseParser):
    """Parser of complete sentences."""

    def sentences(self) -> Iterator[Sentence]:
        """Yield every parse of all words as one sentence."""
        starts: list[tuple[ConjoinedClause | None, int]] = [(None, 0)]
        starts += [(part, end + 1) for part, end in self.subordinates(0) if self.word(end) == ","]
        for before, start in starts:
            for main, end in self.clauses(start, has_front=before is None, has_that=True):
                for conjuncts, after_conjuncts in self.conjuncts(end):
                    for after, at in [(None, after_conjuncts), *self.subordinates(after_conjuncts)]:
                        if (before is None or after is None) and self.word(at) == "." and at + 1 == len(self.words):
                            yield Sentence(main, conjuncts, before, after)

    def subordinates(self, i: int) -> Iterable[tuple[ConjoinedClause, int]]:
        """Return the clauses after a subordinating conjunction."""
        word = self.word(i)
        if word not in lex.SUBORDINATORS:
            return []
        return [
            (ConjoinedClause(word, clause), end) for clause, end in self.clauses(i + 1, has_front=False, has_that=False)
        ]

    def conjuncts(self, i: int) -> list[tuple[tuple[ConjoinedClause, ...], int]]:
        """Return all sequences of zero or more clauses joined by "and" or ", but"."""
        return self.memoize(("conjuncts", i), lambda: self._conjuncts(i))

    def _conjuncts(self, i: int) -> Iterator[tuple[tuple[ConjoinedClause, ...], int]]:
        yield (), i
        word = "and" if self.word(i) == "and" else "but"
        start = self.sequence(i, ("and",) if word == "and" else (",", "but"))
        if start is None:
            return
        for clause, end in self.clauses(start, has_front=True, has_that=False):
            if word == "and" and isinstance(clause.subject, Coordination):
                continue
            for rest, last in self.conjuncts(end):
                yield (ConjoinedClause(word, clause), *rest), last


@cache
def vocabulary() -> frozenset[str]:
    """Return every English word form of the grammar."""
    forms = {
        ",",
        ".",
        "an",
        "not",
        "cannot",
        "will",
        "who",
        "whom",
        "that",
        "of",
        "it",
        "am",
        "is",
        "are",
        "was",
        "were",
    }
    forms |= {"do", "does", "did", "to", "has", *NAMES, *lex.SUBORDINATORS, *lex.COORDINATORS, *lex.INTENSIFIERS}
    forms |= {*NOUNS, *ADJECTIVES, *BASES, *THIRDS, *PASTS, *PARTICIPLES, *SUBJECTS, *OBJECTS}
    for verb in lex.VERBS:
        forms |= {verb.particle, verb.preposition}
    for determiner in lex.DETERMINERS:
        forms |= {determiner.english, determiner.plural}
    for words in (*(entry.english for entry in lex.ADVERBS), *(entry.english for entry in lex.PREPOSITIONS)):
        forms.update(words)
    for modal in lex.MODALS:
        forms |= {*modal.english, *modal.third, *modal.past}
    return frozenset(forms - {""})


def parse(text: str) -> list[Sentence]:
    """Return every valid parse of an English sentence; all have the same German translation.

    Raise DataError with the first word that cannot be parsed, or with the violated constraint.
    """
    words = split_words(text)
    if not words:
        raise DataError("expected an English sentence of the grammar, got an empty text.")
    if words[0] not in NAMES and words[0] != "I":
        words[0] = words[0].lower()
    for position, word in enumerate(words, 1):
        if word not in vocabulary():
            raise DataError(f"{word!r} (word {position} of {text!r}) is not in the lexicon; see docs/grammar.md.")
    parser = SentenceParser(words)
    trees = list(parser.sentences())
    problems = [find_violation(tree) for tree in trees]
    valid = [resolve_pronoun(tree) for tree, problem in zip(trees, problems, strict=True) if not problem]
    if valid:
        return valid
    if problems:
        raise DataError(f"{problems[0]} in {text!r}; see docs/grammar.md.")
    at = parser.furthest
    word = words[at] if at < len(words) else "end of text"
    raise DataError(f"unexpected {word!r} (word {at + 1} of {text!r}); see docs/grammar.md.")


def translate(english: str) -> Example:
    """Return an English sentence of the grammar with its German translation; raise DataError if it has no parse."""
    return RealizedSentence(parse(english)[0]).example()
