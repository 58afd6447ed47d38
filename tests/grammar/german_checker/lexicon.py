"""Indexes from each German word form, correct in its context or not, to the words that it may belong to."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Literal

from .inflection import (
    ADJECTIVE_ENDINGS,
    CASES,
    FRAME_CASES,
    NUMBERS,
    SLOTS,
    Determiner,
    Frame,
    Gender,
    Noun,
    Verb,
    VerbForm,
)
from .words import (
    ADJECTIVE_STEMS,
    ADJECTIVE_TABLE,
    ADVERBS,
    DETERMINER_TABLE,
    KIND_GROUPS,
    MODALS,
    NOUN_TABLE,
    VERB_TABLE,
)


def _nouns() -> dict[str, list[Noun]]:
    index: dict[str, list[Noun]] = defaultdict(list)
    genders: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}
    for kind, table in NOUN_TABLE.items():
        for entry in table.split(";"):
            article, lemma, plural, *weak = entry.split()
            noun = Noun(lemma, genders[article], plural.replace("-", ""), kind, bool(weak))
            for form in {form for case in CASES for number in NUMBERS for form in noun.forms(case, number)}:
                index[form].append(noun)
    return dict(index)


def _determiners() -> dict[str, Determiner]:
    forms = ((word, word.form(slot, case)) for word in DETERMINER_TABLE for slot in SLOTS for case in CASES)
    return {form: word for word, form in forms if form}


def _adjectives() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Return the word of each inflected form, and the accepted kinds of each word."""
    forms: dict[str, str] = {}
    kinds: dict[str, frozenset[str]] = {}
    for entry in ADJECTIVE_TABLE.split(";"):
        word, _, fits = (part.strip() for part in entry.partition(":"))
        kinds[word] = frozenset(fits.split())
        forms |= {ADJECTIVE_STEMS.get(word, word) + ending: word for ending in ADJECTIVE_ENDINGS}
    return forms, kinds


def _verb(row: str) -> Verb:
    infinitive, present, participle, auxiliary, frames, preposition, *kinds = row.split()
    prefix, _, _ = infinitive.rpartition("|")
    expanded = {k for kind in kinds for k in KIND_GROUPS.get(kind, {kind})}
    typed: list[Frame] = [f for f in FRAME_CASES for code in frames.split("/") if f == code.replace("+", " ")]
    helper: Literal["haben", "sein"] = "sein" if auxiliary == "sein" else "haben"
    word = infinitive.replace("|", "")
    governed = preposition.replace("-", "")
    return Verb(word, prefix, present, participle, helper, tuple(typed), governed, frozenset(expanded))


def _present(verb: Verb) -> dict[str, set[str]]:
    """Return the finite forms of the present, without the separable prefix, with their persons."""
    if verb.infinitive == "sein":
        return {"bin": {"1sg"}, "ist": {"3sg"}, "sind": {"1pl", "3pl"}}
    plural = verb.infinitive.removeprefix(verb.prefix)
    first = "weiß" if verb.infinitive == "wissen" else re.sub(r"e?n$", "", plural) + "e"
    forms: dict[str, set[str]] = defaultdict(set)
    for form, person in ((first, "1sg"), (verb.present, "3sg"), (plural, "1pl"), (plural, "3pl")):
        forms[form].add(person)
    return forms


def _full_verb_forms(verb: Verb) -> list[tuple[str, VerbForm]]:
    forms = [
        (verb.participle, VerbForm(verb, "participle")),
        (verb.infinitive, VerbForm(verb, "infinitive")),
    ]
    for form, persons in _present(verb).items():
        if verb.prefix:
            forms.append((form, VerbForm(verb, "finite", frozenset(persons), is_joined=False)))
        forms.append((verb.prefix + form, VerbForm(verb, "finite", frozenset(persons))))
    return forms


def _helper_forms() -> list[tuple[str, VerbForm]]:
    """Return the forms of werden, the modals and the past of sein and haben."""
    singular, plural = frozenset({"1sg", "3sg"}), frozenset({"1pl", "3pl"})
    future = Verb("werden", "", "wird", "", "", (), "", frozenset())
    forms = [
        ("werde", VerbForm(future, "finite", frozenset({"1sg"}))),
        ("wird", VerbForm(future, "finite", frozenset({"3sg"}))),
        ("werden", VerbForm(future, "finite", plural)),
    ]
    shall = Verb("sollen", "", "soll", "", "", (), "", frozenset())
    forms += [("sollte", VerbForm(shall, "finite", singular)), ("sollten", VerbForm(shall, "finite", plural))]
    for infinitive, (present, past) in MODALS.items():
        modal = Verb(infinitive, "", present, "", "", (), "", frozenset())
        forms += [(present, VerbForm(modal, "finite", singular)), (infinitive, VerbForm(modal, "finite", plural))]
        forms.append((past, VerbForm(modal, "finite", singular, is_past=True)))
        forms.append((past + "n", VerbForm(modal, "finite", plural, is_past=True)))
    for infinitive, past, ending in (("sein", "war", "en"), ("haben", "hatte", "n")):
        forms.append((past, VerbForm(VERBS[infinitive], "finite", singular, is_past=True)))
        forms.append((past + ending, VerbForm(VERBS[infinitive], "finite", plural, is_past=True)))
    return forms


def _verb_forms() -> dict[str, list[VerbForm]]:
    index: dict[str, list[VerbForm]] = defaultdict(list)
    for verb in VERBS.values():
        for form, reading in _full_verb_forms(verb):
            index[form].append(reading)
    for form, reading in _helper_forms():
        index[form].append(reading)
    return dict(index)


NOUNS = _nouns()
DETERMINERS = _determiners()
ADJECTIVES, ADJECTIVE_KINDS = _adjectives()
VERBS = {verb.infinitive: verb for verb in map(_verb, VERB_TABLE.strip().splitlines())}
PREFIXES = {verb.prefix for verb in VERBS.values()} - {""}
VERB_FORMS = _verb_forms()
ADVERB_KINDS = {word: kind for kind, words in ADVERBS.items() for word in words}
