"""Random sampling of sentences: the default mix of sentence types, and sentences with the pronoun "it"."""

from collections.abc import Iterator
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.grammar import collocations as tables
from clearhead.grammar import lexicon as lex
from clearhead.grammar.clause_sampler import ClauseSampler
from clearhead.grammar.collocations import FULL, PEOPLE, SHORT, Probabilities, time_code
from clearhead.grammar.examples import has_held_out
from clearhead.grammar.inflection import Tokens
from clearhead.grammar.lexicon import BE, Adjective, Verb
from clearhead.grammar.realization import SentenceBuilder, join_words
from clearhead.grammar.syntax import Clause, ConjoinedClause, It, NounPhrase, Predicate, Sentence, antecedents

SHORTEST, LONGEST = 2, 60
MAX_DRAWS = 50_000  # limit of unsuccessful draws; the rarest type of sentence needs a few hundred
MAX_VARIANTS = 16  # variants of one sentence with "it" that are tried for a split before another is drawn
# Frames with two or more nouns, which give "it" several candidate antecedents.
ANTECEDENT_FRAMES = ("accusative",) * 9 + ("placing", "motion", "have", "dative")
PRONOUN_CONJUNCTIONS = ("because",) * 10 + ("although",) * 4 + ("when", "while", "and", "and") + ("but",) * 4
ONE_WORD_CONJUNCTIONS = ("because",) * 4 + ("although",) * 2 + ("when", "while")
INTENSIFIERS = ("", "very", "too", "too")
# These conjunctions require two clauses of the same time.
TIME_CONJUNCTIONS = ("when", "while", "before", "if")
SUBORDINATORS = ("because",) * 6 + ("although",) * 4 + ("when",) * 4 + ("if",) * 2 + ("before", "while")
# A clause after "and" has no coordinated subject: "saw the dog and the cat and the man slept" would be ambiguous.
CONJOINED = SHORT._replace(couple=0.0)
ALIVE = frozenset(("person", "animal"))
ANIMAL_VERBS = tuple(v for v in lex.VERBS_BY_FRAME["accusative"] if v.subjects == ALIVE)
IT_VERBS = tuple(v for v in lex.VERBS if v.frame in ("intransitive", "motion") and v.subjects == ALIVE)
FILLER = CONJOINED._replace(adjective=0.4, place=0.6, manner=0.3, time=0.2, companion=0.3, genitive=0.1, relative=0.1)
LEADING = SHORT._replace(couple=0.0, front=0.08, relative=0.04, place=0.2, manner=0.15, time=0.1)


class Restriction(NamedTuple):
    """Selectional restriction that identifies the antecedent of "it": the accepted kinds, and the word that sets them.

    The word is a predicate adjective, a verb with "it" as its subject, or a verb with "it" as its object.
    """

    kinds: lex.Kinds
    adjective: Adjective | None = None
    subject_verb: Verb | None = None
    object_verb: Verb | None = None


class SentenceSampler(ClauseSampler):
    """Sampler of sentences; fillers contain held-out combinations only if `is_unseen` (test_unseen)."""

    def __init__(self, seed: str, is_unseen: bool = False) -> None:
        super().__init__(seed)
        self.is_unseen = is_unseen

    def sentence(self) -> Sentence:
        """Return a sentence of the default mix."""
        draw = self.random()
        if draw < 0.13:
            return self.pronoun_sentence(None)
        if draw < 0.15:
            # The minimum of two draws makes the longest distances rarer.
            return self.pronoun_sentence(min(self.integer(16, LONGEST), self.integer(16, LONGEST)))
        if draw < 0.20:
            return Sentence(self.that_clause())
        if draw < 0.28:
            return self.with_subordinate(is_first=False)
        if draw < 0.33:
            return self.with_subordinate(is_first=True)
        if draw < 0.37:
            main = self.clause(SHORT)
            other = self.clause(CONJOINED, tenses=compatible_tenses(main.tense))
            return Sentence(main, (ConjoinedClause(self.pick(("and", "but")), other),))
        return Sentence(self.clause(FULL))

    def that_clause(self) -> Clause:
        """Return a clause with a that-clause."""
        verb = self.pick(lex.VERBS_BY_FRAME["that"])
        clause = self.clause(SHORT, verb)
        tenses = tables.PAST_TENSES if is_past(clause) else tables.REPORTED_TENSES
        return clause._replace(that=self.inner(SHORT._replace(relative=0.05), tenses))

    def inner(self, probabilities: Probabilities, tenses: tuple[str, ...]) -> Clause:
        """Return a clause in one of the tenses; redraw "read" and "put", which would need the perfect instead."""
        while True:
            clause = self.clause(probabilities, tenses=tenses)
            if clause.tense != "perfect" or "perfect" in tenses:
                return clause

    def with_subordinate(self, is_first: bool) -> Sentence:
        """Return a main clause with a subordinate clause before or after it."""
        conjunction = self.pick(SUBORDINATORS)
        probabilities = SHORT._replace(relative=0.03)
        main_tenses = None
        if conjunction in TIME_CONJUNCTIONS:
            main_tenses = tables.OPEN_TENSES if conjunction == "if" else tables.PLAIN_TENSES
        main = self.clause(probabilities if is_first else probabilities._replace(front=0.1), tenses=main_tenses)
        if main.tense == "perfect" and conjunction in TIME_CONJUNCTIONS:  # "read" and "put"
            conjunction = "because"
        if is_past(main):
            tenses = tables.PAST_TENSES
        elif conjunction in TIME_CONJUNCTIONS:
            tenses = tables.PRESENT_TENSES
            probabilities = probabilities._replace(time=0.0)
        else:
            tenses = tables.REASON_TENSES
        if conjunction == "before":
            probabilities = probabilities._replace(negation=0.0)
        clause = self.inner(probabilities, tenses)
        part = ConjoinedClause(conjunction, clause._replace(frequency=None) if conjunction == "before" else clause)
        return Sentence(main, before=part) if is_first else Sentence(main, after=part)

    def pronoun_sentence(self, distance: int | None) -> Sentence:
        """Return a sentence with "it", at `distance` words from its antecedent if a distance is given.

        60 % of the sentences have another candidate antecedent of a different gender, so that guessing fails.
        """
        has_choice = self.has_choice()
        for _ in range(MAX_DRAWS):
            sentence = self.try_pronoun(distance, has_choice)
            if sentence is not None:
                return sentence
        raise DataError(f"{MAX_DRAWS:,} draws yielded no sentence with 'it' {distance} words after its antecedent.")

    def has_choice(self) -> bool:
        """Return whether the next sentence with "it" must have a candidate antecedent of a different gender."""
        return self.random() < 0.6

    def try_pronoun(self, distance: int | None, has_choice: bool) -> Sentence | None:
        """Draw a sentence with "it"; return None if the draw is unsuccessful, as most are."""
        lead = self.leading_clause()
        options = antecedents(lead)
        if not options or (has_choice and len({phrase.noun.gender for phrase in options}) < 2):
            return None
        antecedent = self.pick(options)
        others = {phrase.noun.kind for phrase in options if phrase is not antecedent}
        restriction = self.restriction(antecedent, others, distance is not None and distance > 12)
        if restriction is None:
            return None
        last = self.pronoun_clause(antecedent, restriction, is_past(lead))
        if last.tense == "perfect" and lead.tense != "perfect":
            return None
        conjunction = self.pick(PRONOUN_CONJUNCTIONS)
        fillers: tuple[ConjoinedClause, ...] | None = ()
        if distance is not None:
            builder = SentenceBuilder()
            gap = distance - distance_without_fillers(builder, lead, antecedent, conjunction, last)
            if not self.is_unseen and has_held_out(builder.combinations):
                return None
            fillers = self.fillers(gap, restriction, lead.tense)
        return None if fillers is None else join_clauses(lead, fillers, conjunction, last)

    def leading_clause(self) -> Clause:
        """Return a first clause with candidate antecedents; in half of the cases the subject is an animal."""
        if self.random() < 0.5:
            animal = self.noun_phrase(tables.NOUNS_BY_KIND["animal"], LEADING, plain=True)
            return self.clause(LEADING, self.pick(ANIMAL_VERBS), animal)
        return self.clause(LEADING, self.pick(lex.VERBS_BY_FRAME[self.pick(ANTECEDENT_FRAMES)]))

    def restriction(self, antecedent: NounPhrase, others: set[str], is_narrow: bool) -> Restriction | None:
        """Return a restriction that only the antecedent satisfies; `is_narrow` limits it to four kinds of noun."""
        kind = antecedent.noun.kind
        draw = self.random()
        if draw < 0.7:
            adjective = self.pick(tables.compatible_adjectives(kind, antecedent.adjectives))
            restriction = Restriction(adjective.kinds, adjective=adjective)
        elif draw < 0.85 and kind == "animal":
            verb = self.pick(IT_VERBS)
            restriction = Restriction(verb.subjects, subject_verb=verb)
        else:
            verb = self.pick(tables.object_verbs(antecedent.noun))
            if verb.frame != "accusative" or verb.preposition:
                return None
            restriction = Restriction(verb.objects, object_verb=verb)
        if restriction.kinds & others or (is_narrow and len(restriction.kinds) > 4):
            return None
        return restriction

    def pronoun_clause(self, antecedent: NounPhrase, restriction: Restriction, is_past: bool) -> Clause:
        """Return the clause with "it"."""
        it = It(antecedent)
        tenses = tables.PAST_TENSES if is_past else tables.PRESENT_TENSES
        if restriction.adjective:
            intensifier = self.pick(INTENSIFIERS)
            predicate = Predicate(restriction.adjective, intensifier)
            return Clause(it, BE, "past" if is_past else "present", None, self.random() < 0.1, predicate=predicate)
        if restriction.subject_verb:
            return self.clause(SHORT, restriction.subject_verb, it, tenses)
        assert restriction.object_verb
        subject = self.nominal(PEOPLE, SHORT, True)
        tense, modal, is_negated = self.tense(restriction.object_verb, self.random() < 0.1, tenses)
        clause = Clause(subject, restriction.object_verb, tense, modal, is_negated, direct=it)
        return self.add_time(clause, SHORT, time_code(restriction.object_verb, tense, modal is not None))

    def fillers(self, words: int, restriction: Restriction, tense: str) -> tuple[ConjoinedClause, ...] | None:
        """Return clauses of `words` words in total, with conjunctions, and without further candidate antecedents."""
        parts: list[ConjoinedClause] = []
        for _ in range(40):
            if words == 0:
                return tuple(parts)
            if words < 4:
                return None
            clause = self.clause(FILLER, tenses=compatible_tenses(tense))
            if any(phrase.noun.kind in restriction.kinds for phrase in antecedents(clause)):
                continue
            builder = SentenceBuilder()
            length = len(builder.clause(clause, "main")[0])
            if not self.is_unseen and has_held_out(builder.combinations):
                continue
            conjunction = self.pick(("and", "and", "but"))
            rest = words - length - (1 if conjunction == "and" else 2)
            if 0 < rest < 4:
                clause, rest = self.pad(clause, rest)
            if rest == 0 or rest >= 4:
                parts.append(ConjoinedClause(conjunction, clause))
                words = rest
        return None

    def pad(self, clause: Clause, words: int) -> tuple[Clause, int]:
        """Return the clause with up to `words` additional adjectives, and the number of words still missing."""
        for phrase in (clause.subject, clause.direct):
            if words == 0 or not isinstance(phrase, NounPhrase) or phrase.adjectives:
                continue
            present = (clause.predicate.adjective,) if clause.predicate and phrase is clause.subject else ()
            adjective = self.pick(tables.compatible_adjectives(phrase.noun.kind, present))
            padded = phrase._replace(adjectives=(adjective,))
            clause = clause._replace(subject=padded) if phrase is clause.subject else clause._replace(direct=padded)
            words -= 1
        return clause, words

    def vary(self, tree: Sentence) -> Sentence:
        """Return the sentence with a resampled conjunction, intensifier and negation of the clause with "it"."""
        part = tree.after or tree.conjuncts[-1]
        if part.clause.predicate:
            predicate = part.clause.predicate._replace(intensifier=self.pick(INTENSIFIERS))
            part = part._replace(clause=part.clause._replace(predicate=predicate, is_negated=self.random() < 0.1))
        if tree.after is None:
            return tree._replace(conjuncts=(*tree.conjuncts[:-1], part))
        conjunction = compatible_conjunction(self.pick(ONE_WORD_CONJUNCTIONS), last_main_clause(tree), part.clause)
        return tree._replace(after=part._replace(conjunction=conjunction))

    def variants(self, tree: Sentence, source: Tokens) -> Iterator[tuple[str, Sentence]]:
        """Yield variants of a sentence with "it" and their English; only the words from the conjunction on change."""
        part = tree.after or tree.conjuncts[-1]
        if part.clause.predicate is None and tree.after is None:
            return
        head = source[: len(source) - len(SentenceBuilder().clause(part.clause, "last")[0]) - 2]
        for _ in range(MAX_VARIANTS):
            varied = self.vary(tree)
            part = varied.after or varied.conjuncts[-1]
            tail = SentenceBuilder().clause(part.clause, "last")[0]
            yield join_words([*head, (part.conjunction, 0), *tail, (".", 0)]), varied


def is_past(clause: Clause) -> bool:
    """Return whether a clause is about the past."""
    return clause.tense in ("past", "perfect")


def compatible_tenses(tense: str) -> tuple[str, ...]:
    """Return the tenses of another main clause in the same sentence."""
    return tables.PAST_TENSES if tense in ("past", "perfect") else tables.OPEN_TENSES


def last_main_clause(tree: Sentence) -> Clause:
    """Return the main clause that a final subordinate clause modifies."""
    return tree.conjuncts[-1].clause if tree.conjuncts else tree.main


def compatible_conjunction(conjunction: str, main: Clause, last: Clause) -> str:
    """Return the conjunction, or "because" where it cannot follow the perfect ("has seen it when")."""
    return "because" if conjunction in TIME_CONJUNCTIONS and "perfect" in (main.tense, last.tense) else conjunction


def distance_without_fillers(
    builder: SentenceBuilder, lead: Clause, antecedent: NounPhrase, conjunction: str, last: Clause
) -> int:
    """Return the number of words from the antecedent to "it" without fillers; both clauses are built by `builder`."""
    words = builder.clause(lead, "main")[0]
    unit = builder.heads[id(antecedent)]
    position = next(i for i, token in enumerate(words) if token[1] & unit)
    return len(words) - position + count_words_before_it(builder, last) + (2 if conjunction == "but" else 1)


def count_words_before_it(builder: SentenceBuilder, clause: Clause) -> int:
    """Return the number of words before "it" in its clause."""
    words = builder.clause(clause, "last")[0]
    return next(i for i, token in enumerate(words) if token[0] == "it")


def join_clauses(lead: Clause, fillers: tuple[ConjoinedClause, ...], conjunction: str, last: Clause) -> Sentence:
    """Return the sentence: "and" and "but" coordinate main clauses, others add a final subordinate clause."""
    part = ConjoinedClause(conjunction, last)
    if conjunction in lex.COORDINATORS:
        return Sentence(lead, (*fillers, part))
    tree = Sentence(lead, fillers, after=part)
    return tree._replace(
        after=part._replace(conjunction=compatible_conjunction(conjunction, last_main_clause(tree), last))
    )
