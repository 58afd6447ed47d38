"""Parsing English verb groups: tense, modal, negation and the frequency adverb between them."""

from collections.abc import Iterator

from clearhead.data.grammar import english
from clearhead.data.grammar import lexicon as lex
from clearhead.data.grammar.lexicon import BE, Adverb
from clearhead.data.grammar.parse_phrases import BASES, PARTICIPLES, PASTS, THIRDS, Found, Group, PhraseParser


class VerbParser(PhraseParser):
    """Reads verb groups that agree with a person (1s, 3s or p)."""

    def groups(self, i: int, person: str) -> Found[Group]:
        """Every verb group that starts here."""
        return self.kept(("group", i, person), lambda: self._groups(i, person))

    def _groups(self, i: int, person: str) -> Iterator[tuple[Group, int]]:
        yield from self.simple(i, person)
        yield from self.be(i, person)
        yield from self.modals(i, person)
        word = self.word(i)
        if word == "will":
            for negated, frequency, at in self.between(i + 1):
                for verb in BASES.get(self.word(at), ()):
                    yield Group(verb, "future", None, negated, frequency), at + 1
        if word == english.has_form(person):
            for negated, frequency, at in self.between(i + 1):
                for verb in PARTICIPLES.get(self.word(at), ()):
                    yield Group(verb, "perfect", None, negated, frequency), at + 1
        for tense in ("present", "past"):
            if self.sequence(i, (english.do_form(tense, person), "not")) is not None:
                for verb in BASES.get(self.word(i + 2), ()):
                    if verb is not BE:
                        yield Group(verb, tense, None, True), i + 3

    def between(self, i: int) -> Iterator[tuple[bool, Adverb | None, int]]:
        """Nothing, "not" or a frequency adverb after an auxiliary."""
        yield False, None, i
        if self.word(i) == "not":
            yield True, None, i + 1
        for frequency, end in self.adverbs(i, lex.FREQUENCIES):
            yield False, frequency, end

    def before(self, i: int) -> Iterator[tuple[Adverb | None, int]]:
        """Nothing or a frequency adverb before the verb."""
        yield None, i
        yield from self.adverbs(i, lex.FREQUENCIES)

    def simple(self, i: int, person: str) -> Iterator[tuple[Group, int]]:
        """One-word present and past of full verbs."""
        for frequency, at in self.before(i):
            word = self.word(at)
            for verb in (THIRDS if person == "3s" else BASES).get(word, ()):
                if verb is not BE:
                    yield Group(verb, "present", frequency=frequency), at + 1
            for verb in PASTS.get(word, ()):
                if verb is not BE and english.allows(verb, "past", False):
                    yield Group(verb, "past", frequency=frequency), at + 1

    def be(self, i: int, person: str) -> Iterator[tuple[Group, int]]:
        """Present and past of "to be"."""
        for tense in ("present", "past"):
            if self.word(i) == english.simple(BE, tense, person):
                for negated, frequency, at in self.between(i + 1):
                    yield Group(BE, tense, None, negated, frequency), at

    def modals(self, i: int, person: str) -> Iterator[tuple[Group, int]]:
        """A modal with an infinitive."""
        for modal in lex.MODALS:
            for tense in ("present", "past") if modal.past else ("present",):
                for negated in (False, True):
                    if negated and modal.english == ("must",):
                        continue
                    head, rest = english.modal(modal, tense, person, negated)
                    middle = self.sequence(i, head)
                    if middle is None:
                        continue
                    for frequency, at in [(None, middle)] if negated else [*self.before(middle)]:
                        end = self.sequence(at, rest)
                        if end is None:
                            continue
                        for verb in BASES.get(self.word(end), ()):
                            if verb is not BE:
                                yield Group(verb, tense, modal, negated, frequency), end + 1
