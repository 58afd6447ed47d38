"""A checker of German grammar for the sentences of the built-in corpus, independent of what generates them.

`check` reads German text alone. It splits a sentence into clauses, clauses into phrases, and looks for the reading
that breaks the fewest rules; what that reading still breaks is the answer. Every word has to be known and to belong
to a phrase, so a sentence the checker cannot follow is reported, never passed. Knows nothing of English and shares
nothing with the generator: its words stand in `german_checker_lexicon`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from .german_checker_lexicon import (
    ADJECTIVE_KINDS,
    ADJECTIVE_STEMS,
    ADJECTIVES,
    ADVERB_KINDS,
    CASES,
    CONTRACTIONS,
    DETERMINERS,
    FRAME_CASES,
    NOUNS,
    NUMBERS,
    PREFIXES,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVE,
    STRONG,
    SUBORDINATORS,
    VERB_FORMS,
    VERBS,
    Case,
    Frame,
    Noun,
    Number,
    Pronoun,
    Verb,
    VerbForm,
)

RULES = {
    "unknown-word": "every word is German and in the lexicon",
    "fragment": "every word belongs to a phrase",
    "capital": "nouns, names and the first word are capitalised, nothing else is",
    "comma": "commas stand around subordinate and relative clauses and before aber, nowhere else",
    "article": "the determiner agrees with its noun in gender, number and case",
    "adjective-ending": "adjectives are weak, mixed or strong after their determiner",
    "weak-noun": "weak nouns take -n outside the nominative singular",
    "dative-plural": "nouns take -n in the dative plural",
    "noun-form": "the noun has the form of its number and case",
    "genitive": "a noun that belongs to another stands in the genitive",
    "subject-case": "the subject stands in the nominative",
    "accusative-object": "a direct object stands in the accusative",
    "dative-object": "indirect objects and objects of dative verbs stand in the dative",
    "time-case": "time phrases without preposition stand in the accusative",
    "preposition-case": "prepositions govern their case",
    "two-way-preposition": "place is dative, direction accusative",
    "contraction": "im, ins, am, zum, zur and vom contract",
    "agreement": "the finite verb agrees with its subject",
    "complements": "a verb has the phrases it needs and no more",
    "finite-verb": "a clause has one finite verb",
    "auxiliary": "the perfect takes haben or sein as the verb wants",
    "verb-form": "haben and sein take a participle, werden and modals an infinitive",
    "verb-second": "the finite verb is second in a main clause",
    "verb-last": "the finite verb is last in a subordinate clause",
    "participle-last": "the participle closes its clause",
    "infinitive-last": "the infinitive closes its clause",
    "prefix": "a separable prefix closes the main clause and is joined elsewhere",
    "middle-field": "pronouns, time, objects, manner, place follow each other in this order",
    "negation": "nicht stands in its place, kein negates indefinite phrases, and one negation is enough",
    "relative-pronoun": "the relative pronoun has the gender and number of its noun and the case of its role",
    "pronoun-gender": "er, sie and es have the gender of a noun before them that fits",
    "als-wenn": "als stands with the past, wenn otherwise",
}


PLACE: tuple[Case, ...] = ("acc", "dat")  # what prepositions of place govern
DIRECTIONS = ("zu", "aus", "durch", "um")  # these go with verbs of motion alone


@dataclass(frozen=True)
class Violation:
    """One broken rule and the words that break it."""

    rule: str
    detail: str


@dataclass(frozen=True)
class Report:
    """What `inspect` found: broken rules, and how many of the words an inflection or order rule looked at."""

    violations: tuple[Violation, ...]
    num_words: int
    num_checked: int


@dataclass
class Phrase:
    """A noun phrase, a pronoun or a relative pronoun."""

    words: list[str]
    noun: Noun | None = None
    surface: str = ""
    determiner: str = ""
    adjectives: list[str] = field(default_factory=list)
    genitive: Phrase | None = None
    conjunct: Phrase | None = None
    pronoun: Pronoun | None = None
    antecedent: Phrase | None = None
    is_relative: bool = False
    number: Number = "sg"  # set when the clause has been read

    @property
    def text(self) -> str:
        return " ".join(self.words)


ItemKind = Literal[
    "phrase", "time", "frequency", "manner", "place", "comment", "preposition", "verb", "prefix", "nicht", "adjective"
]


@dataclass
class Item:
    """One constituent of a clause."""

    kind: ItemKind
    words: list[str]
    phrase: Phrase | None = None
    preposition: str = ""
    position: int = 0  # of its first word, punctuation counted


@dataclass
class Clause:
    """A clause with its constituents in order; `opener` is the subordinator of a subordinate clause."""

    kind: Literal["main", "subordinate", "relative"]
    items: list[Item] = field(default_factory=list)
    opener: str = ""
    is_first: bool = False
    has_clause_in_front: bool = False
    has_that_clause: bool = False
    parent: Clause | None = None

    @property
    def has_verb(self) -> bool:
        return any(item.kind == "verb" for item in self.items)


class Choices:
    """Replays a list of decisions and takes the first option beyond it, so that a parser can be run again."""

    def __init__(self, given: list[int]) -> None:
        self.taken: list[tuple[int, int]] = []
        self._given = given

    def pick(self, options: int) -> int:
        position = len(self.taken)
        choice = self._given[position] if position < len(self._given) else 0
        self.taken.append((choice, options))
        return choice

    def following(self) -> list[int] | None:
        """The next list of decisions in depth-first order, None after the last."""
        taken = list(self.taken)
        while taken:
            choice, options = taken.pop()
            if choice + 1 < options:
                return [chosen for chosen, _ in taken] + [choice + 1]
        return None


# --- from words to clauses ---------------------------------------------------------------------------------------


class Parser:
    """One reading of a sentence: `clauses` in the order in which they open, and what was wrong on the way."""

    def __init__(self, tokens: list[str], choices: Choices) -> None:
        self.tokens = tokens
        self.choices = choices
        self.position = 0
        self.clauses: list[Clause] = []
        self.violations: list[Violation] = []

    def report(self, rule: str, detail: str) -> None:
        assert rule in RULES
        self.violations.append(Violation(rule, detail))

    def word(self, position: int) -> str:
        """The word as the lexicon writes it: the first word of the sentence loses its capital unless it is a noun."""
        if position >= len(self.tokens):
            return ""
        token = self.tokens[position]
        if position:
            return token
        is_noun = token in NOUNS and token.lower() not in ADVERB_KINDS
        is_before_noun = len(self.tokens) > 1 and self.tokens[1][0].isupper()  # "Junge Onkel": young, not the boy
        return token if is_noun and not (is_before_noun and token.lower() in ADJECTIVES) else token.lower()

    def open(self, clause: Clause) -> None:
        self.clauses.append(clause)
        self.clause = clause

    def parse(self) -> None:
        """Read all tokens."""
        self.open(Clause("main"))
        if self.word(0) in SUBORDINATORS:
            self.clauses.clear()
            self.open(Clause("subordinate", opener=self.word(0), is_first=True))
            self.position = 1
        while self.position < len(self.tokens):
            word = self.word(self.position)
            if word == ".":
                if self.position + 1 != len(self.tokens):
                    self.report("comma", "full stop inside the sentence")
                self.position += 1
            elif word == ",":
                self.read_comma()
            elif word in ("und", "aber"):
                self.join_clause(word, after_comma=False)
            elif word in SUBORDINATORS:
                self.report("comma", f"no comma before {word}")
                self.open_subordinate()
            else:
                self.read_item()

    def read_comma(self) -> None:
        self.position += 1
        word = self.word(self.position)
        if word in SUBORDINATORS:
            self.open_subordinate()
        elif word in ("und", "aber"):
            self.join_clause(word, after_comma=True)
        elif self.can_open_relative(word) and self.choices.pick(2) == 0:
            self.open_relative()
        else:
            self.continue_clause()

    def open_subordinate(self) -> None:
        opener = self.word(self.position)
        if opener == "dass":
            self.clause.has_that_clause = True
        self.open(Clause("subordinate", opener=opener))
        self.position += 1

    def join_clause(self, word: str, after_comma: bool) -> None:
        """und or aber before a main clause; und takes a comma only where a subordinate clause ends."""
        wants_comma = word == "aber" or self.clause.kind != "main"
        if wants_comma != after_comma:
            self.report("comma", f"{'no ' if wants_comma else ''}comma before {word}")
        self.open(Clause("main"))
        self.position += 1

    def can_open_relative(self, word: str) -> bool:
        has_noun = any(item.kind == "phrase" and item.phrase and item.phrase.noun for item in self.clause.items)
        return word in RELATIVE.values() and has_noun and self.clause.kind != "relative"

    def open_relative(self) -> None:
        """The noun is the one before the comma, otherwise the last object of the clause."""
        phrases = [item.phrase for item in self.clause.items if item.kind == "phrase" and item.phrase]
        antecedent = [phrase for phrase in phrases if phrase.noun][-1]
        surface = self.word(self.position)
        phrase = Phrase([surface], surface=surface, antecedent=antecedent, is_relative=True)
        self.open(Clause("relative", [Item("phrase", [surface], phrase)], parent=self.clause))
        self.position += 1

    def continue_clause(self) -> None:
        """What follows a comma without a new clause word: the rest of the clause before, or the main clause."""
        clause: Clause | None = self.clause
        if clause and clause.kind == "relative":
            clause = clause.parent
            if clause and not (clause.kind == "subordinate" and clause.has_verb):
                self.clause = clause
                return
        if clause and clause.is_first and clause.kind == "subordinate":
            self.open(Clause("main", has_clause_in_front=True))
            return
        self.report("comma", f"comma before {self.word(self.position)}")

    # --- constituents --------------------------------------------------------------------------------------------

    def read_item(self) -> None:
        """Read one constituent into the open clause, or report the word and go on."""
        start = self.position
        item = self.adverbial() or self.prepositional() or self.noun_item() or self.adjective() or self.verb()
        if item:
            item.position = start
            self.clause.items.append(item)
            return
        self.position = start + 1
        word = self.word(start)
        if word in PREFIXES:
            self.clause.items.append(Item("prefix", [word]))
        elif is_known(word):
            self.report("fragment", word)
        elif self.tokens[start] != word.lower() and is_known(word.lower()):
            self.report("capital", word)
            self.tokens = [*self.tokens[:start], word.lower(), *self.tokens[start + 1 :]]
            self.position = start
        else:
            self.report("unknown-word", word)

    def is_end(self, position: int) -> bool:
        return self.word(position) in ("", ".", ",", "und", "aber")

    def take(self, count: int) -> list[str]:
        words = [self.word(i) for i in range(self.position, self.position + count)]
        self.position += count
        return words

    def adverbial(self) -> Item | None:
        word, after = self.word(self.position), self.word(self.position + 1)
        if word == "nicht":
            return Item("nicht", self.take(1))
        if (word, after) == ("zu", "Hause"):
            return Item("place", self.take(2))
        if word in PREFIXES and self.is_end(self.position + 1):
            return Item("prefix", self.take(1))
        kinds: dict[str, ItemKind] = {k: k for k in ("time", "frequency", "place", "comment")}
        kind = kinds.get(ADVERB_KINDS.get(word, ""))
        return Item(kind, self.take(1)) if kind else None

    def prepositional(self) -> Item | None:
        """A preposition, contracted or not, with its phrase."""
        start = self.position
        word = self.word(start)
        if word in CONTRACTIONS:
            preposition, article = CONTRACTIONS[word]
            self.position += 1
            phrase = self.noun_phrase(article)
        elif word in PREPOSITIONS:
            preposition = word
            self.position += 1
            contracted = (word, self.word(self.position)) in CONTRACTIONS.values()
            phrase = self.personal_pronoun() or self.noun_phrase()
            if phrase and contracted:
                self.report("contraction", f"{word} {phrase.determiner}")
        else:
            return None
        if phrase is None:
            self.position = start
            return None
        words = [self.word(i) for i in range(start, self.position)]
        is_time = phrase.noun is not None and phrase.noun.kind == "time"
        return Item("time" if is_time else "preposition", words, phrase, preposition)

    def personal_pronoun(self) -> Phrase | None:
        word = self.word(self.position)
        if word not in PRONOUNS:
            return None
        if word == "ihr" and self.starts_noun(self.position + 1) and self.choices.pick(2) == 0:
            return None  # "her" before a noun
        return Phrase(self.take(1), surface=word, pronoun=PRONOUNS[word])

    def starts_noun(self, position: int) -> bool:
        word = self.word(position)
        return word in NOUNS or word in ADJECTIVES or word == "sehr" or word.capitalize() in NOUNS

    def noun_item(self) -> Item | None:
        phrase = self.personal_pronoun() or self.noun_phrase()
        if phrase is None:
            return None
        is_time = phrase.noun is not None and phrase.noun.kind == "time"
        return Item("time" if is_time else "phrase", phrase.words, phrase)

    def noun_phrase(self, article: str = "", may_extend: bool = True) -> Phrase | None:
        """(determiner) (sehr) adjectives noun, then perhaps a genitive and perhaps "und" with a second phrase."""
        start = position = self.position
        phrase = Phrase([], determiner=article)
        if not article and self.word(position) in DETERMINERS:
            phrase.determiner = self.word(position)
            position += 1
        if self.word(position) == "sehr" and self.word(position + 1) in ADJECTIVES:
            position += 1
        while is_adjective(self.word(position)) and self.starts_noun(position + 1):
            phrase.adjectives.append(self.word(position))
            position += 1
        noun_word = self.word(position)
        is_small = noun_word not in NOUNS and noun_word.capitalize() in NOUNS
        if noun_word not in NOUNS and not (is_small and (phrase.determiner or not is_known(noun_word))):
            return None
        if is_small:
            self.report("capital", noun_word)
        phrase.surface = noun_word.capitalize() if is_small else noun_word
        phrase.noun = NOUNS[phrase.surface][0]
        self.position = position + 1
        if may_extend:
            self.extend(phrase)
        phrase.words = [self.word(i) for i in range(start, self.position)]
        return phrase

    def extend(self, phrase: Phrase) -> None:
        start = self.position
        if self.word(start) in DETERMINERS and phrase.noun and phrase.noun.kind not in ("time", "name"):
            is_sure = self.word(start).endswith("es") or self.word(start) == "des"
            if self.choices.pick(2) == (0 if is_sure else 1):
                phrase.genitive = self.noun_phrase(may_extend=False)
                if phrase.genitive is None:
                    self.position = start
        if self.word(start) == "und" and self.choices.pick(2) == 1:
            self.position += 1
            phrase.conjunct = self.noun_phrase(may_extend=False)
            if phrase.conjunct is None:
                self.position = start

    def adjective(self) -> Item | None:
        """A predicate or manner word, with or without "sehr" or "zu"."""
        start = self.position
        degree = 1 if self.word(start) in ("sehr", "zu") else 0
        word = self.word(start + degree)
        is_manner = ADVERB_KINDS.get(word) == "manner"
        if word not in ADJECTIVE_KINDS and not is_manner:
            return None
        if word in VERB_FORMS and not degree and self.choices.pick(2) == 1:
            return None  # "weiß": white, or knows
        return Item("manner" if is_manner else "adjective", self.take(degree + 1))

    def verb(self) -> Item | None:
        return Item("verb", self.take(1)) if self.word(self.position) in VERB_FORMS else None


def is_adjective(word: str) -> bool:
    return word in ADJECTIVES or word in ADJECTIVE_KINDS


def is_known(word: str) -> bool:
    """Whether the word stands anywhere in the lexicon."""
    return (
        any(word in words for words in (NOUNS, DETERMINERS, VERB_FORMS, ADVERB_KINDS, PREPOSITIONS, CONTRACTIONS))
        or any(word in words for words in (PRONOUNS, PREFIXES, SUBORDINATORS, RELATIVE.values()))
        or is_adjective(word)
        or word in ("nicht", "sehr", "zu", "und", "aber", "Hause", ",", ".")
    )


# --- from clauses to broken rules --------------------------------------------------------------------------------


def fewest(readings: list[list[Violation]]) -> list[Violation]:
    return min(readings, key=lambda found: len(found))


def declension(phrase: Phrase, case: Case, number: Number) -> list[Violation]:
    """What is wrong inside a noun phrase that is meant to stand in this case and number."""
    noun = phrase.noun
    assert noun is not None
    slot, found = noun.slot(number), []
    determiner = DETERMINERS.get(phrase.determiner)
    if determiner and determiner.form(slot, case) != phrase.determiner:
        found.append(Violation("article", phrase.text))
    is_marked = determiner is not None or (noun.kind == "time" and phrase.adjectives)  # "letzte Woche"
    if noun.plural and number == "sg" and not is_marked:
        found.append(Violation("article", f"{phrase.text} without article"))
    ending = determiner.adjective_ending(slot, case) if determiner else STRONG[slot, case]
    for surface in phrase.adjectives:
        word = ADJECTIVES.get(surface, surface)
        if surface != ADJECTIVE_STEMS.get(word, word) + ending:
            found.append(Violation("adjective-ending", phrase.text))
    if phrase.surface not in noun.forms(case, number):
        rule = "weak-noun" if noun.is_weak else {"dat": "dative-plural", "gen": "genitive"}.get(case, "noun-form")
        found.append(Violation(rule, phrase.text))
    if phrase.genitive and not (is_declined(phrase.genitive, "gen") and shows_genitive(phrase.genitive)):
        found.append(Violation("genitive", phrase.genitive.text))
    return found


def shows_genitive(phrase: Phrase) -> bool:
    """A genitive shows in its determiner: "der Junge zwei Gäste" is none."""
    determiner = DETERMINERS.get(phrase.determiner)
    return determiner is not None and determiner.endings != "none"


def is_declined(phrase: Phrase, case: Case) -> bool:
    return any(not declension(phrase, case, number) for number in numbers_of(phrase))


def numbers_of(phrase: Phrase) -> tuple[Number, ...]:
    """The numbers to try: after an article its noun may have the form of the wrong one ("den Vögel")."""
    assert phrase.noun is not None
    own = phrase.noun.numbers(phrase.surface)
    other = tuple(n for n in NUMBERS if n not in own and (n == "sg" or phrase.noun.plural))
    return other + own if phrase.determiner else own


def in_role(phrase: Phrase, case: Case, number: Number, rule: str) -> list[Violation]:
    """What is wrong with a phrase in a role: inside it, or, if it is sound in another case, its case."""
    if phrase.is_relative:
        assert phrase.antecedent is not None and phrase.antecedent.noun is not None
        right = RELATIVE[phrase.antecedent.noun.slot(number), case] == phrase.surface
        return [] if right else [Violation("relative-pronoun", phrase.surface)]
    if phrase.pronoun:
        return [] if case in phrase.pronoun.cases else [Violation(rule, phrase.surface)]
    found = declension(phrase, case, number)
    if found and any(not declension(phrase, other, number) for other in CASES[:3]):
        found = [Violation(rule, phrase.text)]
    if phrase.conjunct:
        numbers = numbers_of(phrase.conjunct)
        found += fewest([in_role(phrase.conjunct, case, n, rule) for n in numbers])
    return found


def best_number(phrase: Phrase, case: Case, rule: str) -> list[Violation]:
    """The fewest violations over the numbers the phrase may have; remembers the number."""
    if phrase.is_relative or phrase.pronoun:
        assert phrase.pronoun or phrase.antecedent
        if phrase.antecedent:
            phrase.number = phrase.antecedent.number
        return in_role(phrase, case, phrase.number, rule)
    options = [(in_role(phrase, case, number, rule), number) for number in numbers_of(phrase)]
    # "dankt den Arzt" is a wrong case rather than a wrong plural
    found, phrase.number = min(options, key=lambda option: (len(option[0]), all(v.rule != rule for v in option[0])))
    return found


def person_of(phrase: Phrase) -> set[str]:
    """The persons a subject may have: "sie" is she and they."""
    if phrase.pronoun:
        return {"3sg", "3pl"} if phrase.pronoun.person == "3" else {phrase.pronoun.person}
    return {"3pl"} if phrase.conjunct or phrase.number == "pl" else {"3sg"}


@dataclass
class Verbs:
    """The verbs of a clause in one reading."""

    finite: VerbForm
    finite_item: Item
    rest: list[tuple[Item, VerbForm]]

    @property
    def main(self) -> Verb:
        return self.rest[0][1].verb if self.rest else self.finite.verb


class ClauseCheck:
    """All rules on one clause, for one reading of its verbs and one frame of the main verb."""

    def __init__(self, clause: Clause, verbs: Verbs, frame: Frame) -> None:
        self.clause = clause
        self.items = clause.items
        self.verbs = verbs
        self.frame = frame
        self.found: list[Violation] = []

    def report(self, rule: str, detail: str) -> None:
        assert rule in RULES
        self.found.append(Violation(rule, detail))

    def run(self) -> list[Violation]:
        self.check_verb_forms()
        self.check_prefix()
        self.check_order()
        self.check_roles()
        self.check_prepositions()
        self.check_opener()
        return self.found

    def check_verb_forms(self) -> None:
        """The finite verb and what it wants: participle, infinitive or nothing."""
        helper, rest = self.verbs.finite.verb, self.verbs.rest
        if len(rest) > 1:
            self.report("verb-form", rest[1][0].words[0])
        is_modal = not helper.auxiliary
        if is_modal and not (rest and rest[0][1].role == "infinitive"):
            self.report("verb-form", f"{self.verbs.finite_item.words[0]} without infinitive")
        elif rest and not is_modal:
            item, form = rest[0]
            if helper.infinitive not in ("haben", "sein") or form.role != "participle" or self.verbs.finite.is_past:
                self.report("verb-form", f"{self.verbs.finite_item.words[0]} with {item.words[0]}")
            elif form.verb.auxiliary != helper.infinitive:
                self.report("auxiliary", f"{helper.infinitive} with {item.words[0]}")

    def check_prefix(self) -> None:
        """Joined to the verb at the end of a clause, apart and last in a main clause."""
        found = [item.words[0] for item in self.items if item.kind == "prefix"]
        finite, is_main = self.verbs.finite, self.clause.kind == "main"
        wanted = [finite.verb.prefix] if finite.verb.prefix and is_main else []
        is_torn = bool(finite.verb.prefix) and finite.is_joined == is_main
        if found != wanted or is_torn:
            self.report("prefix", " ".join([self.verbs.finite_item.words[0], *found]))
        elif found and self.items[-1].kind != "prefix":
            self.report("prefix", f"{found[0]} is not last")

    def check_order(self) -> None:
        """Verb second or last, and the other verb forms at the end."""
        finite_at = self.items.index(self.verbs.finite_item)
        closing = self.items
        if self.clause.kind == "main":
            if finite_at + self.clause.has_clause_in_front != 1:
                self.report("verb-second", self.verbs.finite_item.words[0])
        else:
            if self.items[-1] is not self.verbs.finite_item:
                self.report("verb-last", self.verbs.finite_item.words[0])
            closing = [item for item in self.items if item is not self.verbs.finite_item]
        for item, form in self.verbs.rest[:1]:
            if closing[-1] is not item:
                self.report(f"{form.role}-last", item.words[0])
        for item in self.items:
            if item.kind == "comment" and item is not self.items[0]:
                self.report("middle-field", item.words[0])

    def check_roles(self) -> None:
        """Subject and objects: their number, their cases, their order, and the agreement of the verb."""
        phrases = [item.phrase for item in self.items if item.kind == "phrase" and item.phrase]
        for item in self.items:
            if item.kind == "time" and item.phrase and not item.preposition:
                self.found += best_number(item.phrase, "acc", "time-case")
        roles: list[tuple[Case, str]] = [("nom", "subject-case")]
        for case in FRAME_CASES[self.frame]:
            roles.append((case, "accusative-object" if case == "acc" else "dative-object"))
        if len(phrases) != len(roles):
            self.found += [Violation("complements", self.verbs.main.infinitive)] * (2 * abs(len(phrases) - len(roles)))
        phrases, roles = phrases[: len(roles)], roles[: len(phrases)]
        best: list[Violation] | None = None
        best_order = roles
        for order in itertools.permutations(roles):
            found = self.read_roles(phrases, list(order))
            if list(order) != roles and self.clause.kind != "relative":  # a relative pronoun comes first in any role
                found.append(Violation("middle-field", " ".join(phrase.text for phrase in phrases)))
            subjects = [phrase for phrase, (case, _) in zip(phrases, order, strict=True) if case == "nom"]
            found += self.middle_field(subjects) + self.negation(subjects)
            if best is None or len(found) < len(best):
                best, best_order = found, list(order)
        self.found += best or []
        self.read_roles(phrases, best_order)  # once more, so that the phrases remember their numbers
        self.check_predicate()

    def read_roles(self, phrases: list[Phrase], roles: list[tuple[Case, str]]) -> list[Violation]:
        found: list[Violation] = []
        for phrase, (case, rule) in zip(phrases, roles, strict=True):
            found += best_number(phrase, case, rule)
            if case == "nom" and not person_of(phrase) & self.verbs.finite.persons:
                found.append(Violation("agreement", f"{phrase.text} {self.verbs.finite_item.words[0]}"))
        return found

    def check_predicate(self) -> None:
        """Predicate adjectives and that-clauses go with the verbs that want them, and with no others."""
        adjectives = [item for item in self.items if item.kind == "adjective"]
        manners = [item for item in self.items if item.kind == "manner"]
        places = [item for item in self.items if item.kind == "place" or PREPOSITIONS.get(item.preposition) == PLACE]
        goals = [item.preposition for item in self.items if item.preposition in DIRECTIONS and item.kind != "time"]
        if goals and self.frame != "motion":
            self.report("complements", f"{goals[0]} with {self.verbs.main.infinitive}")
        if self.frame == "predicate":
            adjectives += manners
            if len(adjectives) != 1 and not (places and not adjectives):
                self.report("complements", f"{len(adjectives)} predicates")
        elif adjectives:
            self.report("complements", adjectives[0].words[-1])
        if (self.frame == "that") != self.clause.has_that_clause:
            self.report("complements", f"{self.verbs.main.infinitive} and dass")
        if self.frame == "placing" and not places:
            self.report("complements", f"{self.verbs.main.infinitive} without place")

    def check_prepositions(self) -> None:
        for item in self.items:
            if item.preposition and item.phrase:
                cases, rule = self.preposition_cases(item)
                self.found += fewest([best_number(item.phrase, case, rule) for case in cases])

    def preposition_cases(self, item: Item) -> tuple[tuple[Case, ...], str]:
        """The cases a preposition takes here, and the rule that says so."""
        cases, verb = PREPOSITIONS[item.preposition], self.verbs.main
        if len(cases) == 1:
            return cases, "preposition-case"
        if item.preposition == verb.preposition and item.phrase:
            kind = item.phrase.noun.kind if item.phrase.noun else "person"
            is_spot = kind not in verb.object_kinds and kind != "name" and item.preposition == "auf"
            return (("dat",) if is_spot else ("acc",)), "preposition-case"
        is_fronted = self.clause.kind == "main" and item is self.items[0]
        is_direction = self.frame in ("motion", "placing") and item.kind != "time" and not is_fronted
        return (("acc",) if is_direction else ("dat",)), "two-way-preposition"

    def rank(self, item: Item, subjects: list[Phrase]) -> int:
        """The place of a constituent in the middle field."""
        if item.kind == "phrase":
            assert item.phrase is not None
            if item.phrase.is_relative or any(item.phrase is subject for subject in subjects):
                return 0
            return 1 if item.phrase.pronoun else 4
        if item.kind == "preposition":
            if item.preposition == self.verbs.main.preposition and PREPOSITIONS[item.preposition] != ("dat",):
                return 8 if self.preposition_cases(item)[0] == ("acc",) else 10
            return {"von": 8, "mit": 9, "ohne": 9, "für": 9}.get(item.preposition, 10)
        ranks = {"time": 2, "frequency": 3, "nicht": 6, "manner": 7, "place": 10, "adjective": 11}
        if item.kind == "manner" and self.frame == "predicate":
            return 11
        return ranks.get(item.kind, 12)

    def middle_field(self, subjects: list[Phrase]) -> list[Violation]:
        """Pronouns, time, frequency, objects, nicht, manner, prepositional object, companion, place, predicate."""
        items = [item for item in self.items if item.kind not in ("verb", "prefix", "comment")]
        if self.clause.kind == "main" and not self.clause.has_clause_in_front:
            items = items[1:]
        found: list[Violation] = []
        for left, right in itertools.pairwise(items):
            if self.rank(left, subjects) > self.rank(right, subjects):
                rule = "negation" if "nicht" in (left.kind, right.kind) else "middle-field"
                found.append(Violation(rule, " ".join(left.words + right.words)))
        return found

    def negation(self, subjects: list[Phrase]) -> list[Violation]:
        """One negation a clause, and kein instead of nicht with an indefinite object."""
        words = [word for item in self.items for word in item.words]
        negations = [w for w in words if w in ("nicht", "nie") or w.startswith("kein")]
        found = [Violation("negation", " ".join(negations))] if len(negations) > 1 else []
        phrases = [item.phrase for item in self.items if item.kind == "phrase" and item.phrase]
        objects = [phrase for phrase in phrases if not any(phrase is subject for subject in subjects)]
        last = objects[-1] if objects else None
        if "nicht" in words and last and last.noun and last.noun.kind != "name":
            determiner = DETERMINERS.get(last.determiner)
            if determiner is None or determiner.lemma == "ein":
                found.append(Violation("negation", f"nicht with {last.text}"))
        return found

    def check_opener(self) -> None:
        finite, opener = self.verbs.finite, self.clause.opener
        is_perfect = any(form.role == "participle" for _, form in self.verbs.rest)
        if (opener == "als" and not (finite.is_past or is_perfect)) or (opener == "wenn" and finite.is_past):
            self.report("als-wenn", f"{opener} {self.verbs.finite_item.words[0]}")


def verb_readings(clause: Clause) -> Iterator[Verbs]:
    """Every way to read the verbs of a clause with exactly one of them finite."""
    items = [item for item in clause.items if item.kind == "verb"]
    for forms in itertools.product(*(VERB_FORMS[item.words[0]] for item in items)):
        pairs = list(zip(items, forms, strict=True))
        finite = [pair for pair in pairs if pair[1].role == "finite"]
        if len(finite) == 1:
            item, form = finite[0]
            yield Verbs(form, item, [pair for pair in pairs if pair[1].role != "finite"])


def check_clause(clause: Clause) -> tuple[list[Violation], Verbs | None]:
    """The fewest violations over the readings of the verbs and the frames of the main verb."""
    best: tuple[list[Violation], Verbs | None] = ([Violation("finite-verb", clause.opener or clause.kind)] * 4, None)
    for verbs in verb_readings(clause):
        for frame in verbs.main.frames or VERBS["sehen"].frames:
            found = ClauseCheck(clause, verbs, frame).run()
            if best[1] is None or len(found) < len(best[0]):
                best = (found, verbs)
    if best[1]:  # the numbers of the phrases are those of the last reading: set them to the best one's
        for frame in best[1].main.frames:
            if len(ClauseCheck(clause, best[1], frame).run()) == len(best[0]):
                break
    return best


def things_named(clause: Clause) -> list[Phrase]:
    """The phrases of a clause a later er, sie or es may stand for: singular and no person."""
    found: list[Phrase] = []
    for phrase in (item.phrase for item in clause.items if item.phrase):
        found += [phrase] if phrase.number == "sg" else []
        for further in (phrase.genitive, phrase.conjunct):
            if further and further.noun and further.noun.numbers(further.surface)[0] == "sg":
                found.append(further)
    return [phrase for phrase in found if phrase.noun and phrase.noun.kind not in ("person", "name", "time")]


def of_kinds(phrases: list[Phrase], wanted: frozenset[str]) -> list[Phrase]:
    return [phrase for phrase in phrases if phrase.noun and (not wanted or phrase.noun.kind in wanted)]


def kinds_wanted(phrase: Phrase, clause: Clause, verbs: Verbs) -> frozenset[str]:
    """The kinds of thing a pronoun may stand for by its predicate or its verb; empty when anything will do."""
    phrases = [item.phrase for item in clause.items if item.kind == "phrase"]
    if not (phrase is phrases[0] or (phrases[0] and phrases[0].is_relative and phrase is phrases[1])):
        return verbs.main.object_kinds
    if "predicate" not in verbs.main.frames:
        return frozenset({"animal", "person", "vehicle"} if verbs.main in ARRIVING else {"animal", "person"})
    predicates = [item.words[-1] for item in clause.items if item.kind in ("adjective", "manner")]
    return ADJECTIVE_KINDS.get(predicates[0], frozenset()) if predicates else frozenset()


ARRIVING = (VERBS["ankommen"], VERBS["fahren"])  # what vehicles do


def check_pronouns(clauses: list[tuple[Clause, Verbs | None]]) -> list[Violation]:
    """er, sie, es that can only stand for a thing need such a noun of their gender in an earlier clause."""
    found: list[Violation] = []
    before: list[Phrase] = []
    for clause, verbs in clauses:
        for phrase in (item.phrase for item in clause.items if item.kind == "phrase" and item.phrase):
            if not (phrase.pronoun and phrase.pronoun.gender and verbs):
                continue
            wanted = kinds_wanted(phrase, clause, verbs)
            is_several = phrase.surface == "sie" and (
                wanted is verbs.main.object_kinds or "3pl" in verbs.finite.persons
            )
            may_be_person = not wanted or "person" in wanted or is_several
            needs_noun = phrase.surface == "es" or not may_be_person
            genders = {fit.noun.gender for fit in of_kinds(before, wanted) if fit.noun}
            if needs_noun and phrase.pronoun.gender not in genders:
                found.append(Violation("pronoun-gender", phrase.surface))
        before += things_named(clause)
    return found


# --- the sentence ------------------------------------------------------------------------------------------------


MAX_READINGS = 300  # sentences of the corpus have a few dozen at most


def readings(tokens: list[str]) -> Iterator[Parser]:
    """The readings of a sentence, the likeliest first."""
    given: list[int] = []
    for _ in range(MAX_READINGS):
        parser = Parser(tokens, Choices(given))
        parser.parse()
        yield parser
        following = parser.choices.following()
        if following is None:
            return
        given = following


def read(tokens: list[str]) -> tuple[list[Violation], list[Clause]]:
    """The reading with the fewest violations."""
    best: tuple[list[Violation], list[Clause]] | None = None
    for parser in readings(tokens):
        checked = [(clause, *check_clause(clause)) for clause in parser.clauses]
        found = parser.violations + [violation for _, violations, _ in checked for violation in violations]
        found += check_pronouns([(clause, verbs) for clause, _, verbs in checked])
        if best is None or len(found) < len(best[0]):
            best = (found, parser.clauses)
        if not found:
            break
    assert best is not None
    return best


def is_clean(tokens: list[str]) -> bool:
    """Whether some reading breaks no rule of its clauses; faster than `read`, and blind to pronouns."""
    return any(
        not parser.violations and all(not check_clause(clause)[0] for clause in parser.clauses)
        for parser in readings(tokens)
    )


def with_commas_moved(tokens: list[str]) -> Iterator[list[str]]:
    """The sentence with one comma less, one more, or two more."""
    for i, token in enumerate(tokens):
        if token == ",":
            yield tokens[:i] + tokens[i + 1 :]
    gaps = [i for i in range(1, len(tokens) - 1) if "," not in tokens[i - 1 : i + 1]]
    for i in gaps:
        yield [*tokens[:i], ",", *tokens[i:]]
    if len(gaps) < 14:
        for i, j in itertools.combinations(gaps, 2):
            yield [*tokens[:i], ",", *tokens[i:j], ",", *tokens[j:]]


CHECKED_KINDS = ("verb", "prefix", "nicht")  # besides everything with a noun or pronoun in it


def inspect(german: str) -> Report:
    """Check a sentence and count the words that were checked."""
    tokens = re.findall(r"\w+|[^\w\s]", german)
    violations, clauses = read(tokens)
    if tokens and not tokens[0][0].isupper():
        violations = [*violations, Violation("capital", tokens[0])]
    if not tokens or tokens[-1] != ".":
        violations = [*violations, Violation("comma", "no full stop")]
    if len(violations) > 1 and any(map(is_clean, with_commas_moved(tokens))):
        violations = [Violation("comma", german)]
    words = [token for token in tokens if token[0].isalpha()]
    checked = sum(
        len(item.words) for clause in clauses for item in clause.items if item.phrase or item.kind in CHECKED_KINDS
    )
    return Report(tuple(violations), len(words), checked)


def phrases_meant(german: str, position: int) -> list[Phrase]:
    """What the pronoun at this position (punctuation counted) may mean by its sense, of all that is named before."""
    _, clauses = read(re.findall(r"\w+|[^\w\s]", german))
    before: list[Phrase] = []
    for clause in clauses:
        verbs = check_clause(clause)[1]
        for item in clause.items:
            if item.position == position and item.phrase and item.phrase.pronoun and verbs:
                return of_kinds(before, kinds_wanted(item.phrase, clause, verbs))
        before += things_named(clause)
    raise ValueError(f"no pronoun at word {position} of: {german}")


def check(german: str) -> list[Violation]:
    """The rules a German sentence breaks; none for a right one."""
    return list(inspect(german).violations)
