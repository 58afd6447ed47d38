"""Rules, phrases and clauses of the German checker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .inflection import Noun, Number, Pronoun

RULES = {
    "unknown-word": "every word is German and in the lexicon",
    "fragment": "every word belongs to a phrase",
    "capital": "nouns, names and the first word are capitalised, nothing else is",
    "comma": "commas enclose subordinate and relative clauses and precede aber, nothing else",
    "article": "the determiner agrees with its noun in gender, number and case",
    "adjective-ending": "adjectives are weak, mixed or strong after their determiner",
    "weak-noun": "weak nouns take -n outside the nominative singular",
    "dative-plural": "nouns take -n in the dative plural",
    "noun-form": "the noun has the form of its number and case",
    "genitive": "a noun that modifies another is in the genitive",
    "subject-case": "the subject is in the nominative",
    "accusative-object": "a direct object is in the accusative",
    "dative-object": "indirect objects and objects of dative verbs are in the dative",
    "time-case": "time phrases without preposition are in the accusative",
    "preposition-case": "prepositions govern their case",
    "two-way-preposition": "place is dative, direction accusative",
    "contraction": "im, ins, am, zum, zur and vom contract",
    "agreement": "the finite verb agrees with its subject",
    "complements": "a verb has exactly the complements of its frame",
    "finite-verb": "a clause has one finite verb",
    "auxiliary": "the perfect takes haben or sein, depending on the verb",
    "verb-form": "haben and sein take a participle, werden and modals an infinitive",
    "verb-second": "the finite verb is second in a main clause",
    "verb-last": "the finite verb is last in a subordinate clause",
    "participle-last": "the participle closes its clause",
    "infinitive-last": "the infinitive closes its clause",
    "prefix": "a separable prefix closes the main clause and is joined elsewhere",
    "middle-field": "the order is pronouns, time, objects, manner, place",
    "negation": "nicht is in its position, kein negates indefinite phrases, and a clause has one negation",
    "relative-pronoun": "the relative pronoun has the gender and number of its noun and the case of its role",
    "pronoun-gender": "er, sie and es have the gender of a possible antecedent",
    "als-wenn": "als is used with the past, wenn otherwise",
}


@dataclass(frozen=True)
class Violation:
    """Broken rule and the words that break it."""

    rule: str
    detail: str


@dataclass(frozen=True)
class Report:
    """Result of `inspect`: broken rules, and the number of words covered by a rule of inflection or order."""

    violations: tuple[Violation, ...]
    num_words: int
    num_checked: int


@dataclass
class Phrase:
    """Noun phrase, pronoun or relative pronoun."""

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
    number: Number = "sg"  # set when the clause has been parsed

    @property
    def text(self) -> str:
        return " ".join(self.words)


ItemKind = Literal[
    "phrase", "time", "frequency", "manner", "place", "comment", "preposition", "verb", "prefix", "nicht", "adjective"
]


@dataclass
class Item:
    """Constituent of a clause."""

    kind: ItemKind
    words: list[str]
    phrase: Phrase | None = None
    preposition: str = ""
    position: int = 0  # token index of its first word


@dataclass
class Clause:
    """Clause with its constituents in order; `opener` is the subordinator of a subordinate clause."""

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
