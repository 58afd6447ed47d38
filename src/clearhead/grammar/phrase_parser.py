"""Parser of English phrases: noun phrases, adverbials and verb groups.

A rule takes the index of a word and returns all (tree, next index) pairs that start there. Results are memoized, so
that exhaustive search stays cheap; the furthest word requested by any rule is reported if a sentence cannot be parsed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from clearhead.grammar import inflection
from clearhead.grammar import lexicon as lex
from clearhead.grammar.lexicon import BE, HAVE, Adjective, Adverb, Determiner, Modal, Noun, Preposition, Verb
from clearhead.grammar.nouns import NAMES
from clearhead.grammar.syntax import Coordination, It, Name, Nominal, NounPhrase, PrepositionPhrase

T = TypeVar("T")
Parses = list[tuple[T, int]]

# Placeholder for "it" until the complete sentence is parsed.
UNRESOLVED_IT = It(NounPhrase(lex.DETERMINER["the"], lex.NOUNS[0]))
OWNER_DETERMINERS = ("the", "this", "my", "our", "his", "her", "their")


def _group_by_word(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    entries: dict[str, list[T]] = defaultdict(list)
    for word, entry in pairs:
        if word:
            entries[word].append(entry)
    return dict(entries)


NOUNS: dict[str, list[tuple[Noun, bool]]] = _group_by_word(
    [(noun.english, (noun, False)) for noun in lex.NOUNS] + [(noun.plural, (noun, True)) for noun in lex.NOUNS]
)
ADJECTIVES = {adjective.english: adjective for adjective in lex.ADJECTIVES}
BASES = _group_by_word((verb.english, verb) for verb in lex.VERBS)
THIRDS = _group_by_word((inflection.english_simple(verb, "present", "3s"), verb) for verb in lex.VERBS)
PASTS = _group_by_word((verb.past, verb) for verb in lex.VERBS)
PARTICIPLES = _group_by_word((verb.participle, verb) for verb in lex.VERBS if verb is not BE and verb is not HAVE)
SUBJECTS = {entry.english: entry for entry in lex.PERSONAL_PRONOUNS}
OBJECTS = {entry.english_object: entry for entry in lex.PERSONAL_PRONOUNS}


class VerbGroupParse(NamedTuple):
    """Parsed verb group."""

    verb: Verb
    tense: str
    modal: Modal | None = None
    is_negated: bool = False
    frequency: Adverb | None = None


class PhraseParser:
    """Parser of the phrases of one sentence."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.furthest = 0
        self.memo: dict[tuple[object, ...], list[tuple[object, int]]] = {}

    def word(self, i: int) -> str:
        """Return the word at an index, "" after the end."""
        if i > self.furthest:
            self.furthest = i
        return self.words[i] if i < len(self.words) else ""

    def memoize(self, key: tuple[object, ...], rule: Callable[[], Iterator[tuple[T, int]]]) -> Parses[T]:
        """Return the results of a rule, computed once per key."""
        if key not in self.memo:
            self.memo[key] = list(rule())
        return self.memo[key]  # type: ignore[return-value]

    def sequence(self, i: int, words: tuple[str, ...]) -> int | None:
        """Return the index after these words if they start here, otherwise None."""
        for offset, word in enumerate(words):
            if self.word(i + offset) != word:
                return None
        return i + len(words)

    def adverbs(self, i: int, options: Iterable[Adverb]) -> Iterator[tuple[Adverb, int]]:
        """Yield the options that start here."""
        for option in options:
            end = self.sequence(i, option.english)
            if end is not None:
                yield option, end

    def preposition_phrases(
        self, i: int, options: Iterable[Preposition], is_direction: bool = False, allows_pronoun: bool = False
    ) -> Iterator[tuple[PrepositionPhrase, int]]:
        """Yield prepositional phrases with one of the prepositions and a noun phrase, or also a pronoun or name."""
        for option in options:
            start = self.sequence(i, option.english)
            if start is None:
                continue
            nominals: Iterable[tuple[Nominal, int]] = self.noun_phrases(start)
            if allows_pronoun:
                nominals = [*nominals, *self.pronouns_and_names(start, OBJECTS)]
            for nominal, end in nominals:
                yield PrepositionPhrase(option, nominal, is_direction), end

    def pronouns_and_names(self, i: int, table: dict[str, lex.PersonalPronoun]) -> Iterator[tuple[Nominal, int]]:
        """Yield a personal pronoun of the table, or a name."""
        word = self.word(i)
        if word in table:
            yield table[word], i + 1
        if word in NAMES:
            yield Name(word), i + 1

    def noun_phrases(self, i: int) -> Parses[NounPhrase]:
        """Return noun phrases without relative clause."""
        return self.memoize(("phrase", i), lambda: self._noun_phrases(i))

    def coordinations(self, i: int) -> Iterator[tuple[Coordination, int]]:
        """Yield two noun phrases coordinated by "and", without genitive."""
        for first, middle in self.noun_phrases(i):
            if first.genitive or self.word(middle) != "and":
                continue
            for second, end in self.noun_phrases(middle + 1):
                if not second.genitive:
                    yield Coordination(first, second), end

    def _noun_phrases(self, i: int) -> Iterator[tuple[NounPhrase, int]]:
        for determiner, numbers, start in self.determiners(i):
            for adjectives, very, at in self.adjectives(start):
                for noun, plural in NOUNS.get(self.word(at), ()):
                    if not agrees(determiner, numbers, noun, plural):
                        continue
                    phrase = NounPhrase(determiner, noun, plural, adjectives, very)
                    yield phrase, at + 1
                    if self.word(at + 1) == "of":
                        yield from self.with_genitive(phrase, at + 2)

    def with_genitive(self, phrase: NounPhrase, i: int) -> Iterator[tuple[NounPhrase, int]]:
        """Yield the phrase with the genitive after "of"."""
        for owner, end in self.noun_phrases(i):
            is_simple = len(owner.adjectives) < 2 and not owner.very and not owner.genitive
            if is_simple and owner.determiner.english in OWNER_DETERMINERS:
                yield phrase._replace(genitive=owner), end

    def determiners(self, i: int) -> Iterator[tuple[Determiner, str, int]]:
        """Yield the determiners that start here, including the empty one, with the numbers of the form."""
        word = self.word(i)
        yield lex.BARE, "sp", i
        if word in ("a", "an"):
            if self.word(i + 1) and inflection.indefinite_article(self.word(i + 1)) == word:
                yield lex.DETERMINER["a"], "s", i + 1
            return
        for determiner in lex.DETERMINERS:
            singular, plural = word == determiner.english, word == determiner.plural
            if singular or plural:
                numbers = "s" * singular + "p" * plural
                yield determiner, "".join(n for n in numbers if n in determiner.numbers), i + 1

    def adjectives(self, i: int) -> Iterator[tuple[tuple[Adjective, ...], bool, int]]:
        """Yield no adjective, one (optionally after "very") or two."""
        yield (), False, i
        if self.word(i) == "very" and self.word(i + 1) in ADJECTIVES:
            yield (ADJECTIVES[self.word(i + 1)],), True, i + 2
        if self.word(i) in ADJECTIVES:
            first = ADJECTIVES[self.word(i)]
            yield (first,), False, i + 1
            if self.word(i + 1) in ADJECTIVES:
                yield (first, ADJECTIVES[self.word(i + 1)]), False, i + 2


def agrees(determiner: Determiner, numbers: str, noun: Noun, plural: bool) -> bool:
    """Return whether a determiner can precede a noun."""
    if ("p" if plural else "s") not in numbers:
        return False
    if noun.mass:
        return determiner.english not in ("a", "every")
    return plural or determiner is not lex.BARE


class VerbParser(PhraseParser):
    """Parser of verb groups that agree with a person (1s, 3s or p)."""

    def verb_groups(self, i: int, person: str) -> Parses[VerbGroupParse]:
        """Return every verb group that starts here."""
        return self.memoize(("group", i, person), lambda: self._verb_groups(i, person))

    def _verb_groups(self, i: int, person: str) -> Iterator[tuple[VerbGroupParse, int]]:
        yield from self.full_verbs(i, person)
        yield from self.forms_of_be(i, person)
        yield from self.modals(i, person)
        word = self.word(i)
        if word == "will":
            for negated, frequency, at in self.negation_or_frequency(i + 1):
                for verb in BASES.get(self.word(at), ()):
                    yield VerbGroupParse(verb, "future", None, negated, frequency), at + 1
        if word == inflection.has_auxiliary(person):
            for negated, frequency, at in self.negation_or_frequency(i + 1):
                for verb in PARTICIPLES.get(self.word(at), ()):
                    yield VerbGroupParse(verb, "perfect", None, negated, frequency), at + 1
        for tense in ("present", "past"):
            if self.sequence(i, (inflection.do_auxiliary(tense, person), "not")) is not None:
                for verb in BASES.get(self.word(i + 2), ()):
                    if verb is not BE:
                        yield VerbGroupParse(verb, tense, None, True), i + 3

    def negation_or_frequency(self, i: int) -> Iterator[tuple[bool, Adverb | None, int]]:
        """Yield nothing, "not" or a frequency adverb after an auxiliary."""
        yield False, None, i
        if self.word(i) == "not":
            yield True, None, i + 1
        for frequency, end in self.adverbs(i, lex.FREQUENCIES):
            yield False, frequency, end

    def optional_frequency(self, i: int) -> Iterator[tuple[Adverb | None, int]]:
        """Yield nothing or a frequency adverb before the verb."""
        yield None, i
        yield from self.adverbs(i, lex.FREQUENCIES)

    def full_verbs(self, i: int, person: str) -> Iterator[tuple[VerbGroupParse, int]]:
        """Yield the one-word present and past of full verbs."""
        for frequency, at in self.optional_frequency(i):
            word = self.word(at)
            for verb in (THIRDS if person == "3s" else BASES).get(word, ()):
                if verb is not BE:
                    yield VerbGroupParse(verb, "present", frequency=frequency), at + 1
            for verb in PASTS.get(word, ()):
                if verb is not BE and inflection.has_form(verb, "past", False):
                    yield VerbGroupParse(verb, "past", frequency=frequency), at + 1

    def forms_of_be(self, i: int, person: str) -> Iterator[tuple[VerbGroupParse, int]]:
        """Yield the present and past of "to be"."""
        for tense in ("present", "past"):
            if self.word(i) == inflection.english_simple(BE, tense, person):
                for negated, frequency, at in self.negation_or_frequency(i + 1):
                    yield VerbGroupParse(BE, tense, None, negated, frequency), at

    def modals(self, i: int, person: str) -> Iterator[tuple[VerbGroupParse, int]]:
        """Yield a modal with an infinitive."""
        for modal in lex.MODALS:
            for tense in ("present", "past") if modal.past else ("present",):
                for negated in (False, True):
                    if negated and modal.english == ("must",):
                        continue
                    head, rest = inflection.english_modal(modal, tense, person, negated)
                    middle = self.sequence(i, head)
                    if middle is None:
                        continue
                    for frequency, at in [(None, middle)] if negated else [*self.optional_frequency(middle)]:
                        end = self.sequence(at, rest)
                        if end is None:
                            continue
                        for verb in BASES.get(self.word(end), ()):
                            if verb is not BE:
                                yield VerbGroupParse(verb, tense, modal, negated, frequency), end + 1
