"""Parsing English sentences of the grammar, and with it `translate`: English in, the one German out."""

from collections.abc import Iterable, Iterator
from functools import cache

from clearhead.errors import DataError
from clearhead.grammar import lexicon as lex
from clearhead.grammar.clause_parser import ClauseParser
from clearhead.grammar.collocations import UNNEGATED
from clearhead.grammar.examples import Example, split_words
from clearhead.grammar.nouns import NAMES
from clearhead.grammar.phrase_parser import ADJECTIVES, BASES, NOUNS, OBJECTS, PARTICIPLES, PASTS, SUBJECTS, THIRDS
from clearhead.grammar.realization import Realised
from clearhead.grammar.syntax import (
    Clause,
    Couple,
    It,
    Joined,
    NounPhrase,
    PrepositionPhrase,
    Sentence,
    antecedents,
    clauses,
    noun_phrases,
)


class SentenceParser(ClauseParser):
    """Reads whole sentences."""

    def sentences(self) -> Iterator[Sentence]:
        """Every way to read all the words as one sentence."""
        starts: list[tuple[Joined | None, int]] = [(None, 0)]
        starts += [(part, end + 1) for part, end in self.subordinates(0) if self.word(end) == ","]
        for before, start in starts:
            for main, end in self.clauses(start, has_front=before is None, has_that=True):
                for joined, after_joined in self.joined(end):
                    for after, at in [(None, after_joined), *self.subordinates(after_joined)]:
                        if (before is None or after is None) and self.word(at) == "." and at + 1 == len(self.words):
                            yield Sentence(main, joined, before, after)

    def subordinates(self, i: int) -> Iterable[tuple[Joined, int]]:
        """A clause after a subordinating conjunction."""
        word = self.word(i)
        if word not in lex.SUBORDINATORS:
            return []
        return [(Joined(word, clause), end) for clause, end in self.clauses(i + 1, has_front=False, has_that=False)]

    def joined(self, i: int) -> list[tuple[tuple[Joined, ...], int]]:
        """Any number of clauses joined by "and" or ", but"."""
        return self.kept(("joined", i), lambda: self._joined(i))

    def _joined(self, i: int) -> Iterator[tuple[tuple[Joined, ...], int]]:
        yield (), i
        word = "and" if self.word(i) == "and" else "but"
        start = self.sequence(i, ("and",) if word == "and" else (",", "but"))
        if start is None:
            return
        for clause, end in self.clauses(start, has_front=True, has_that=False):
            if word == "and" and isinstance(clause.subject, Couple):
                continue
            for rest, last in self.joined(end):
                yield (Joined(word, clause), *rest), last


def problem_of(tree: Sentence) -> str:
    """What rules out a reading that the word order allows; "" if nothing does."""
    for part in (tree.before, tree.after):
        if part and part.conjunction == "if" and part.clause.tense != "present":
            return "'if' takes the present"
    for clause in all_clauses(tree):
        if clause.is_negated and not can_negate(clause):
            return "'not' does not go with every, all, no, numbers, 'and' or a frequency adverb in the same clause"
        if negatives(clause) > 1:
            return "two of no, never and not do not go together in one clause"
        if clause.tense == "perfect" and (clause.time in lex.FINISHED or clause.front in lex.FINISHED):
            return "'has' and 'have' with a participle do not go with a time that is over"
    for earlier, clause in preceding(tree):
        if has_it(clause) and len(fitting_phrases(earlier, clause)) != 1:
            return f"'it' needs exactly one fitting noun before it, not {len(fitting_phrases(earlier, clause))},"
    return ""


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
        if isinstance(item, Couple) or (isinstance(item, NounPhrase) and item.determiner.english in UNNEGATED):
            return False
    return True


def negatives(clause: Clause) -> int:
    """How often a clause denies itself, by not, never or no."""
    count = int(clause.is_negated) + (clause.frequency is not None and clause.frequency.stem == "never")
    for part in (clause.front, clause.subject, clause.indirect, clause.direct, clause.companion, clause.place):
        item = part.nominal if isinstance(part, PrepositionPhrase) else part
        item = item.first if isinstance(item, Couple) else item
        count += isinstance(item, NounPhrase) and item.determiner.english == "no"
    return count


def has_it(clause: Clause) -> bool:
    """Whether "it" is the subject or the object of the clause itself."""
    return isinstance(clause.subject, It) or isinstance(clause.direct, It)


def preceding(tree: Sentence) -> Iterator[tuple[list[NounPhrase], Clause]]:
    """Each top-level clause with what "it" could stand for in all clauses before it."""
    earlier: list[NounPhrase] = []
    for clause in clauses(tree):
        yield earlier, clause
        earlier = [*earlier, *antecedents(clause)]


def fitting_phrases(earlier: list[NounPhrase], clause: Clause) -> list[NounPhrase]:
    """The phrases that "it" could stand for by what its clause says about it."""
    if isinstance(clause.direct, It):
        kinds = clause.verb.objects
        earlier = [*earlier, *antecedents(clause.subject)]
    else:
        kinds = clause.predicate.adjective.kinds if clause.predicate else clause.verb.subjects
    return [phrase for phrase in earlier if phrase.noun.kind in kinds]


def resolve(tree: Sentence) -> Sentence:
    """The sentence with "it" tied to its noun."""
    for earlier, clause in preceding(tree):
        if has_it(clause):
            it = It(fitting_phrases(earlier, clause)[0])
            resolved = clause._replace(subject=it) if isinstance(clause.subject, It) else clause._replace(direct=it)
            return replace_clause(tree, clause, resolved)
    return tree


def replace_clause(tree: Sentence, old: Clause, new: Clause) -> Sentence:
    """The sentence with one top-level clause exchanged."""

    def swap(part: Joined) -> Joined:
        return part._replace(clause=new) if part.clause is old else part

    return Sentence(
        new if tree.main is old else tree.main,
        tuple(swap(part) for part in tree.joined),
        swap(tree.before) if tree.before else None,
        swap(tree.after) if tree.after else None,
    )


@cache
def vocabulary() -> frozenset[str]:
    """Every English word form that some sentence can contain."""
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


def readings(text: str) -> list[Sentence]:
    """Every valid reading of an English sentence; their German is the same. DataError names what does not fit."""
    words = split_words(text)
    if not words:
        raise DataError("expected an English sentence of the grammar, got an empty text.")
    if words[0] not in NAMES and words[0] != "I":
        words[0] = words[0].lower()
    for position, word in enumerate(words, 1):
        if word not in vocabulary():
            raise DataError(f"the grammar does not know {word!r} (word {position} of {text!r}); see docs/grammar.md.")
    parser = SentenceParser(words)
    trees = list(parser.sentences())
    problems = [problem_of(tree) for tree in trees]
    valid = [resolve(tree) for tree, problem in zip(trees, problems, strict=True) if not problem]
    if valid:
        return valid
    if problems:
        raise DataError(f"{problems[0]} in {text!r}; see docs/grammar.md.")
    at = parser.furthest
    word = words[at] if at < len(words) else "the end"
    raise DataError(f"cannot use {word!r} there (word {at + 1} of {text!r}); see docs/grammar.md.")


def translate(english: str) -> Example:
    """Parse an English sentence of the grammar and give it with its German; DataError names what does not fit."""
    return Realised(readings(english)[0]).example()
