"""German parts of speech and their inflection, tabulated from school grammar: `Noun.forms`, `Determiner.form`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Case = Literal["nom", "acc", "dat", "gen"]
Number = Literal["sg", "pl"]
Gender = Literal["m", "f", "n"]
Slot = Literal["m", "f", "n", "pl"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
SLOTS: tuple[Slot, ...] = ("m", "f", "n", "pl")
NUMBERS: tuple[Number, ...] = ("sg", "pl")


def _table(*rows: str) -> dict[tuple[Slot, Case], str]:
    """Return a table from four rows (m, f, n, pl) of four endings (nom, acc, dat, gen); "-" is the empty ending."""
    cells = [row.split() for row in rows]
    return {(s, c): cells[i][j].replace("-", "") for i, s in enumerate(SLOTS) for j, c in enumerate(CASES)}


ARTICLE = _table("der den dem des", "die die der der", "das das dem des", "die die den der")
DER_ENDINGS = _table("er en em es", "e e er er", "es es em es", "e e en er")  # dieser, jeder, welcher
EIN_ENDINGS = _table("- en em es", "e e er er", "- - em es", "e e en er")  # ein, kein, mein
WEAK = _table("e en en en", "e e en en", "e e en en", "en en en en")  # after der-words
MIXED = _table("er en en en", "e e en en", "es es en en", "en en en en")  # after ein-words
STRONG = _table("er en em en", "e e er er", "es es em en", "e e en er")  # without determiner, after numbers and "viele"
RELATIVE = ARTICLE | {("m", "gen"): "dessen", ("f", "gen"): "deren", ("n", "gen"): "dessen", ("pl", "gen"): "deren"}
RELATIVE = RELATIVE | {("pl", "dat"): "denen"}
ADJECTIVE_ENDINGS = ("e", "er", "es", "em", "en")


@dataclass(frozen=True)
class Noun:
    """Noun: gender, plural ("" for mass nouns and names), kind (semantic class), declension class."""

    lemma: str
    gender: Gender
    plural: str
    kind: str
    is_weak: bool = False

    def forms(self, case: Case, number: Number) -> tuple[str, ...]:
        """Return the correct forms, usually one: weak nouns take -n except in the nominative, dative plurals -n."""
        if number == "pl":
            if not self.plural:
                return ()
            return (self.plural + "n" if case == "dat" and self.plural[-1] not in "ns" else self.plural,)
        if self.is_weak and case != "nom":
            return (self.plural,)
        return self.genitives() if case == "gen" else (self.lemma,)

    def genitives(self) -> tuple[str, ...]:
        """Return the genitive singulars: -s after an unstressed syllable, -es after a sibilant, otherwise both."""
        if self.gender == "f" or self.kind == "name":
            return (self.lemma,)
        if re.search(r"(s|ß|z|x|sch)$", self.lemma):
            return ("Busses",) if self.lemma == "Bus" else (self.lemma + "es",)
        syllables = len(re.findall(r"[aeiouäöü]+", self.lemma.lower()))
        if self.lemma[-1] in "aeo" or (syllables > 1 and re.search(r"(er|el|en|um|ig|ich)$", self.lemma)):
            return (self.lemma + "s",)
        return (self.lemma + "s", self.lemma + "es")

    def numbers(self, surface: str) -> tuple[Number, ...]:
        """Return the numbers that the form can have in any case."""
        return tuple(n for n in NUMBERS if any(surface in self.forms(c, n) for c in CASES))

    def slot(self, number: Number) -> Slot:
        """Return the row of the declension tables for this noun."""
        return "pl" if number == "pl" else self.gender


@dataclass(frozen=True)
class Determiner:
    """Article word: its stem, the table of its endings and the table of the adjective endings after it."""

    lemma: str
    endings: Literal["article", "der", "ein", "none"]
    adjectives: Literal["weak", "mixed", "strong"]
    number: Number | None = None

    def form(self, slot: Slot, case: Case) -> str | None:
        """Return the correct form, or None if it does not exist ("ein" in the plural)."""
        if self.number and (slot == "pl") != (self.number == "pl"):
            return None
        if self.endings == "none":
            return self.lemma
        if self.endings == "article":
            return ARTICLE[slot, case]
        ending = (DER_ENDINGS if self.endings == "der" else EIN_ENDINGS)[slot, case]
        stem = "eur" if self.lemma == "euer" and ending else self.lemma
        return stem + ending

    def adjective_ending(self, slot: Slot, case: Case) -> str:
        """Return the ending of an adjective after this word."""
        return {"weak": WEAK, "mixed": MIXED, "strong": STRONG}[self.adjectives][slot, case]


Frame = Literal["none", "acc", "dat", "dat acc", "motion", "placing", "that", "predicate"]
FRAME_CASES: dict[Frame, tuple[Case, ...]] = {
    "none": (),
    "acc": ("acc",),
    "dat": ("dat",),
    "dat acc": ("dat", "acc"),
    "motion": (),
    "placing": ("acc",),
    "that": (),
    "predicate": (),
}


@dataclass(frozen=True)
class Verb:
    """Verb: principal parts, auxiliary, frames, governed preposition and accepted kinds of object."""

    infinitive: str
    prefix: str
    present: str  # third person singular, without a separable prefix
    participle: str
    auxiliary: Literal["haben", "sein", ""]
    frames: tuple[Frame, ...]
    preposition: str
    object_kinds: frozenset[str]


@dataclass(frozen=True)
class VerbForm:
    """One analysis of a verb form."""

    verb: Verb
    role: Literal["finite", "participle", "infinitive"]
    persons: frozenset[str] = frozenset()  # of "1sg", "3sg", "1pl", "3pl"
    is_past: bool = False
    is_joined: bool = True  # False: a separable verb whose prefix is at the end of the clause


@dataclass(frozen=True)
class Pronoun:
    """Form of a personal pronoun: person and number, possible cases, gender in the third person singular."""

    person: str
    cases: tuple[Case, ...]
    gender: Gender | None = None
