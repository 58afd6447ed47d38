"""Which kinds of sentence there are and how often each: the default mix, and sentences around the pronoun "it"."""

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
# A search ends after so many draws without success; the rarest kind of sentence needs a few hundred.
MAX_DRAWS = 50_000
# How many variants of one sentence with "it" are tried for a split before another is drawn.
MAX_VARIANTS = 16
# Clauses with two or more nouns are the ones in which "it" has something to choose between.
ANTECEDENT_FRAMES = ("accusative",) * 9 + ("placing", "motion", "have", "dative")
PRONOUN_CONJUNCTIONS = ("because",) * 10 + ("although",) * 4 + ("when", "while", "and", "and") + ("but",) * 4
ONE_WORD_CONJUNCTIONS = ("because",) * 4 + ("although",) * 2 + ("when", "while")
INTENSIFIERS = ("", "very", "too", "too")
# These tie two clauses to one time.
TIME_CONJUNCTIONS = ("when", "while", "before", "if")
SUBORDINATORS = ("because",) * 6 + ("although",) * 4 + ("when",) * 4 + ("if",) * 2 + ("before", "while")
# A clause after "and" has no coupled subject: "saw the dog and the cat and the man slept" would be two sentences.
CONJOINED = SHORT._replace(couple=0.0)
ALIVE = frozenset(("person", "animal"))
ANIMAL_VERBS = tuple(v for v in lex.VERBS_BY_FRAME["accusative"] if v.subjects == ALIVE)
IT_VERBS = tuple(v for v in lex.VERBS if v.frame in ("intransitive", "motion") and v.subjects == ALIVE)
FILLER = CONJOINED._replace(adjective=0.4, place=0.6, manner=0.3, time=0.2, companion=0.3, genitive=0.1, relative=0.1)
LEADING = SHORT._replace(couple=0.0, front=0.08, relative=0.04, place=0.2, manner=0.15, time=0.1)


class Restriction(NamedTuple):
    """What is said of "it", and the kinds that fits: an adjective, a verb as its subject, or a verb as its object."""

    kinds: lex.Kinds
    adjective: Adjective | None = None
    subject_verb: Verb | None = None
    object_verb: Verb | None = None


class SentenceSampler(ClauseSampler):
    """Draws sentences; unless they are for test_unseen, fillers have no combination that is held out."""

    def __init__(self, seed: str, is_unseen: bool = False) -> None:
        super().__init__(seed)
        self.is_unseen = is_unseen

    def sentence(self) -> Sentence:
        """One sentence of the default mix."""
        draw = self.random()
        if draw < 0.13:
            return self.pronoun_sentence(None)
        if draw < 0.15:
            # The smaller of two draws: long distances are there, but most long ones are not the longest.
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
        """Somebody says that something is the case."""
        verb = self.pick(lex.VERBS_BY_FRAME["that"])
        clause = self.clause(SHORT, verb)
        tenses = tables.PAST_TENSES if is_past(clause) else tables.REPORTED_TENSES
        return clause._replace(that=self.inner(SHORT._replace(relative=0.05), tenses))

    def inner(self, probabilities: Probabilities, tenses: tuple[str, ...]) -> Clause:
        """A clause in one of these tenses: not of read and put where they would need another."""
        while True:
            clause = self.clause(probabilities, tenses=tenses)
            if clause.tense != "perfect" or "perfect" in tenses:
                return clause

    def with_subordinate(self, is_first: bool) -> Sentence:
        """A main clause with a subordinate clause before or after it."""
        conjunction = self.pick(SUBORDINATORS)
        probabilities = SHORT._replace(relative=0.03)
        main_tenses = None
        if conjunction in TIME_CONJUNCTIONS:
            main_tenses = tables.OPEN_TENSES if conjunction == "if" else tables.PLAIN_TENSES
        main = self.clause(probabilities if is_first else probabilities._replace(front=0.1), tenses=main_tenses)
        if main.tense == "perfect" and conjunction in TIME_CONJUNCTIONS:  # read and put, which have no simple past
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
        """A sentence in which "it" stands for one noun, this many words before it if a distance is given.

        More than half of them name another animal or thing of another gender before, so that a guess does not do.
        """
        has_choice = self.has_choice()
        for _ in range(MAX_DRAWS):
            found = self.try_pronoun(distance, has_choice)
            if found is not None:
                return found
        raise DataError(f"no sentence with 'it' {distance} words after its noun came in {MAX_DRAWS:,} draws.")

    def has_choice(self) -> bool:
        """Whether the next sentence with "it" is to have such another noun."""
        return self.random() < 0.6

    def try_pronoun(self, distance: int | None, has_choice: bool) -> Sentence | None:
        """One draw of such a sentence; most draws come to nothing."""
        lead = self.leading_clause()
        options = antecedents(lead)
        if not options or (has_choice and len({phrase.noun.gender for phrase in options}) < 2):
            return None
        antecedent = self.pick(options)
        others = {phrase.noun.kind for phrase in options if phrase is not antecedent}
        fitting = self.fitting(antecedent, others, distance is not None and distance > 12)
        if fitting is None:
            return None
        last = self.pronoun_clause(antecedent, fitting, is_past(lead))
        if last.tense == "perfect" and lead.tense != "perfect":
            return None
        conjunction = self.pick(PRONOUN_CONJUNCTIONS)
        fillers: tuple[ConjoinedClause, ...] | None = ()
        if distance is not None:
            builder = SentenceBuilder()
            gap = distance - distance_without_fillers(builder, lead, antecedent, conjunction, last)
            if not self.is_unseen and has_held_out(builder.combinations):
                return None
            fillers = self.fillers(gap, fitting, lead.tense)
        return None if fillers is None else join_clauses(lead, fillers, conjunction, last)

    def leading_clause(self) -> Clause:
        """A clause that brings nouns with it; half of the time an animal does something to something else."""
        if self.random() < 0.5:
            animal = self.noun_phrase(tables.NOUNS_BY_KIND["animal"], LEADING, plain=True)
            return self.clause(LEADING, self.pick(ANIMAL_VERBS), animal)
        return self.clause(LEADING, self.pick(lex.VERBS_BY_FRAME[self.pick(ANTECEDENT_FRAMES)]))

    def fitting(self, antecedent: NounPhrase, others: set[str], is_narrow: bool) -> Restriction | None:
        """Something that fits the antecedent and none of the others; narrow leaves room for other nouns."""
        kind = antecedent.noun.kind
        draw = self.random()
        if draw < 0.7:
            adjective = self.pick(tables.compatible_adjectives(kind, antecedent.adjectives))
            fitting = Restriction(adjective.kinds, adjective=adjective)
        elif draw < 0.85 and kind == "animal":
            verb = self.pick(IT_VERBS)
            fitting = Restriction(verb.subjects, subject_verb=verb)
        else:
            verb = self.pick(tables.object_verbs(antecedent.noun))
            if verb.frame != "accusative" or verb.preposition:
                return None
            fitting = Restriction(verb.objects, object_verb=verb)
        if fitting.kinds & others or (is_narrow and len(fitting.kinds) > 4):
            return None
        return fitting

    def pronoun_clause(self, antecedent: NounPhrase, fitting: Restriction, is_past: bool) -> Clause:
        """The clause with "it"."""
        it = It(antecedent)
        tenses = tables.PAST_TENSES if is_past else tables.PRESENT_TENSES
        if fitting.adjective:
            intensifier = self.pick(INTENSIFIERS)
            predicate = Predicate(fitting.adjective, intensifier)
            return Clause(it, BE, "past" if is_past else "present", None, self.random() < 0.1, predicate=predicate)
        if fitting.subject_verb:
            return self.clause(SHORT, fitting.subject_verb, it, tenses)
        assert fitting.object_verb
        subject = self.nominal(PEOPLE, SHORT, True)
        tense, modal, is_negated = self.tense(fitting.object_verb, self.random() < 0.1, tenses)
        clause = Clause(subject, fitting.object_verb, tense, modal, is_negated, direct=it)
        return self.add_time(clause, SHORT, time_code(fitting.object_verb, tense, modal is not None))

    def fillers(self, words: int, fitting: Restriction, tense: str) -> tuple[ConjoinedClause, ...] | None:
        """Clauses of so many words in all, conjunctions included, with no noun that "it" could stand for."""
        parts: list[ConjoinedClause] = []
        for _ in range(40):
            if words == 0:
                return tuple(parts)
            if words < 4:
                return None
            clause = self.clause(FILLER, tenses=compatible_tenses(tense))
            if any(phrase.noun.kind in fitting.kinds for phrase in antecedents(clause)):
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
        """The clause with up to so many adjectives more, and how many words are still missing."""
        for phrase in (clause.subject, clause.direct):
            if words == 0 or not isinstance(phrase, NounPhrase) or phrase.adjectives:
                continue
            taken = (clause.predicate.adjective,) if clause.predicate and phrase is clause.subject else ()
            adjective = self.pick(tables.compatible_adjectives(phrase.noun.kind, taken))
            padded = phrase._replace(adjectives=(adjective,))
            clause = clause._replace(subject=padded) if phrase is clause.subject else clause._replace(direct=padded)
            words -= 1
        return clause, words

    def vary(self, tree: Sentence) -> Sentence:
        """A sentence with the same words up to "it" but perhaps another conjunction and another end."""
        part = tree.after or tree.conjuncts[-1]
        if part.clause.predicate:
            predicate = part.clause.predicate._replace(intensifier=self.pick(INTENSIFIERS))
            part = part._replace(clause=part.clause._replace(predicate=predicate, is_negated=self.random() < 0.1))
        if tree.after is None:
            return tree._replace(conjuncts=(*tree.conjuncts[:-1], part))
        conjunction = compatible_conjunction(self.pick(ONE_WORD_CONJUNCTIONS), last_main_clause(tree), part.clause)
        return tree._replace(after=part._replace(conjunction=conjunction))

    def variants(self, tree: Sentence, source: Tokens) -> Iterator[tuple[str, Sentence]]:
        """Variants of a sentence with "it" and their English; only what comes after the conjunction is made again."""
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
    """Whether a clause tells of the past."""
    return clause.tense in ("past", "perfect")


def compatible_tenses(tense: str) -> tuple[str, ...]:
    """The tenses of another main clause in the same sentence."""
    return tables.PAST_TENSES if tense in ("past", "perfect") else tables.OPEN_TENSES


def last_main_clause(tree: Sentence) -> Clause:
    """The main clause that a subordinate clause at the end belongs to."""
    return tree.conjuncts[-1].clause if tree.conjuncts else tree.main


def compatible_conjunction(conjunction: str, main: Clause, last: Clause) -> str:
    """The conjunction, or because: "has seen it when" is no English."""
    return "because" if conjunction in TIME_CONJUNCTIONS and "perfect" in (main.tense, last.tense) else conjunction


def distance_without_fillers(
    builder: SentenceBuilder, lead: Clause, antecedent: NounPhrase, conjunction: str, last: Clause
) -> int:
    """Words from the antecedent to "it" without fillers; the builder makes both clauses."""
    words = builder.clause(lead, "main")[0]
    unit = builder.heads[id(antecedent)]
    position = next(i for i, token in enumerate(words) if token[1] & unit)
    return len(words) - position + count_words_before_it(builder, last) + (2 if conjunction == "but" else 1)


def count_words_before_it(builder: SentenceBuilder, clause: Clause) -> int:
    """How many words of its clause stand before "it"."""
    words = builder.clause(clause, "last")[0]
    return next(i for i, token in enumerate(words) if token[0] == "it")


def join_clauses(lead: Clause, fillers: tuple[ConjoinedClause, ...], conjunction: str, last: Clause) -> Sentence:
    """The sentence; subordinate conjunctions go to the end, and and but join main clauses."""
    part = ConjoinedClause(conjunction, last)
    if conjunction in lex.COORDINATORS:
        return Sentence(lead, (*fillers, part))
    tree = Sentence(lead, fillers, after=part)
    return tree._replace(
        after=part._replace(conjunction=compatible_conjunction(conjunction, last_main_clause(tree), last))
    )
