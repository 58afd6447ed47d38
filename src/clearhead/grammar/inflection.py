"""Inflection in both languages: articles, endings, verb forms, and the verb group of a clause."""

from typing import NamedTuple

from clearhead.grammar.lexicon import BE, HAVE, NOUNS, VERBS, Determiner, Modal, Noun, Verb, add_s
from clearhead.grammar.syntax import Clause

THIRD_PERSON = {verb.english: add_s(verb.english) for verb in VERBS} | {"have": "has", "be": "is"}
_BE_PRESENT = {"1s": "am", "3s": "is", "p": "are"}


def indefinite_article(following: str) -> str:
    """Return "a" or "an", depending on the first letter of the following word."""
    return "an" if following[0] in "aeiou" and not following.startswith("use") else "a"


def english_simple(verb: Verb, tense: str, person: str) -> str:
    """Return the one-word present or past form."""
    if verb is BE:
        if tense == "past":
            return "were" if person == "p" else "was"
        return _BE_PRESENT[person]
    if tense == "past":
        return verb.past
    return THIRD_PERSON[verb.english] if person == "3s" else verb.english


def english_modal(entry: Modal, tense: str, person: str, is_negated: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a modal before and after the position of a frequency adverb; "not" precedes it."""
    if entry.english == ("want", "to"):
        if is_negated:
            return ((do_auxiliary(tense, person), "not"), entry.english)
        return ((), entry.past if tense == "past" else entry.third if person == "3s" else entry.english)
    form = entry.past if tense == "past" else entry.english
    if is_negated:
        return (("cannot",) if form == ("can",) else (*form, "not")), ()
    return ((), form) if len(form) == 2 else (form, ())


def do_auxiliary(tense: str, person: str) -> str:
    """Return "do", "does" or "did"."""
    if tense == "past":
        return "did"
    return "does" if person == "3s" else "do"


def has_auxiliary(person: str) -> str:
    """Return "has" or "have", the auxiliary of the perfect."""
    return "has" if person == "3s" else "have"


def has_form(verb: Verb, tense: str, is_negated: bool) -> bool:
    """Return whether the grammar has the form: no "has been", no "has had", no past identical to the present."""
    if tense == "perfect":
        return verb is not BE and verb is not HAVE
    return tense != "past" or is_negated or verb.past != verb.english


CASES = ("nominative", "accusative", "dative", "genitive")

# Rows follow CASES; columns are masculine, feminine, neuter, plural; `-` is the empty ending.
_ENDINGS = {
    "article": "er ie as ie|en ie as ie|em er em en|es er es er",
    "der": "er e es e|en e es e|em er em en|es er es er",
    "ein": "- e - e|en e - e|em er em en|es er es er",
    "weak": "e e e en|en e e en|en en en en|en en en en",
    "mixed": "er e es en|en e es en|en en en en|en en en en",
    "strong": "er e es e|en e es e|em er em en|en er en er",
}
ENDINGS: dict[str, dict[tuple[str, str], str]] = {
    name: {
        (case, gender): ending.strip("-")
        for case, row in zip(CASES, table.split("|"), strict=True)
        for gender, ending in zip("mfnp", row.split(), strict=True)
    }
    for name, table in _ENDINGS.items()
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}
IT_FORMS = {
    "nominative": {"m": "er", "f": "sie", "n": "es"},
    "accusative": {"m": "ihn", "f": "sie", "n": "es"},
}
_SEIN = {"1s": "bin", "3s": "ist", "p": "sind"}
_HABEN = {"1s": "habe", "3s": "hat", "p": "haben"}
_WERDEN = {"1s": "werde", "3s": "wird", "p": "werden"}


def _noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        needs_n = case == "dative" and noun.german_plural[-1] not in "ns"
        return noun.german_plural + "n" * needs_n
    if case == "genitive":
        return noun.genitive
    return noun.german_plural if noun.weak and case != "nominative" else noun.german


NOUN_FORMS: dict[tuple[str, str, bool], str] = {
    (noun.german, case, plural): _noun_form(noun, case, plural)
    for noun in NOUNS
    for case in CASES
    for plural in ((False,) if noun.mass else (False, True))
}


def german_determiner(det: Determiner, case: str, gender: str) -> str:
    """Return the inflected determiner; `gender` is m, f, n or p (plural)."""
    if det.german == "d":
        return "d" + ENDINGS["article"][case, gender]
    if det.german in ("zwei", "drei"):
        return det.german
    return det.german + ENDINGS["ein" if det.declension == "mixed" else "der"][case, gender]


def german_relative_pronoun(case: str, gender: str) -> str:
    """Return the relative pronoun, which equals the article except in the dative plural."""
    return "denen" if (case, gender) == ("dative", "p") else "d" + ENDINGS["article"][case, gender]


def _first_person(verb: Verb) -> str:
    if verb.infinitive == "wissen":
        return "weiß"
    return verb.infinitive[:-1] + ("e" if verb.infinitive.endswith("ern") else "")


def german_present(verb: Verb, person: str) -> str:
    """Return the present form without its separable prefix."""
    if verb is BE:
        return _SEIN[person]
    if person == "p":
        return verb.infinitive
    return verb.third if person == "3s" else _first_person(verb)


def german_preterite(verb: Verb, person: str) -> str:
    """Return the preterite of sein or haben; other verbs form their past with the perfect."""
    assert verb is BE or verb is HAVE
    if verb is BE:
        return "waren" if person == "p" else "war"
    return "hatten" if person == "p" else "hatte"


def perfect_auxiliary(verb: Verb, person: str) -> str:
    """Return the form of haben or sein used in the verb's perfect."""
    return (_SEIN if verb.uses_sein else _HABEN)[person]


def future_auxiliary(person: str) -> str:
    """Return the form of werden used in the future."""
    return _WERDEN[person]


def german_modal(entry: Modal, tense: str, person: str) -> str:
    """Return the present or past form of a modal verb."""
    if tense == "past":
        return entry.german_past + "n" * (person == "p")
    if person != "p":
        return entry.present
    return "sollten" if entry.present == "sollte" else entry.infinitive


Token = tuple[str, int]
Tokens = list[Token]


class VerbGroup(NamedTuple):
    """Verb group of a clause: English words in order (`source`) and the parts of the German one.

    `finite` is the form in a main clause, followed by `prefix` and the non-finite `tail` at the end of the clause;
    `last` is the finite form of a verb-last clause.
    """

    source: Tokens
    finite: Token
    prefix: Tokens
    tail: Tokens
    last: Token


class Units(NamedTuple):
    """Alignment units of the main verb, of tense and person, and of the negation."""

    main: int
    finite: int
    negation: int


def english_group(tree: Clause, person: str, units: Units, frequency: Tokens) -> Tokens:
    """Return the English words from the first auxiliary to the main verb, with "not" and the frequency adverb."""
    main, finite, negation = units
    verb, tense = tree.verb, tree.tense
    negated: Tokens = [("not", negation)] if tree.is_negated else []
    if tree.modal:
        head, rest = english_modal(tree.modal, tense, person, tree.is_negated)
        masks = {"not": negation, "cannot": finite | negation}
        if tree.is_negated and head[0] in ("do", "does", "did"):
            masks[head[0]] = finite | negation
        first: Tokens = [(word, masks.get(word, finite)) for word in head]
        return [*first, *frequency, *((word, finite) for word in rest), (verb.english, main)]
    if tense == "future":
        return [("will", finite), *negated, *frequency, (verb.english, main)]
    if tense == "perfect":
        return [(has_auxiliary(person), finite), *negated, *frequency, (verb.participle, main)]
    if verb is BE:
        return [(english_simple(verb, tense, person), main | finite), *negated, *frequency]
    if tree.is_negated:
        return [(do_auxiliary(tense, person), finite | negation), *negated, (verb.english, main)]
    return [*frequency, (english_simple(verb, tense, person), main | finite)]


def verb_group(tree: Clause, person: str, units: Units, frequency: Tokens) -> VerbGroup:
    """Return the verb group in both languages, without nicht, whose position depends on the clause."""
    main, finite, _ = units
    verb, tense = tree.verb, tree.tense
    source = english_group(tree, person, units, frequency)
    infinitive: Token = (verb.prefix + verb.infinitive, main)
    if tree.modal:
        word: Token = (german_modal(tree.modal, tense, person), finite)
        return VerbGroup(source, word, [], [infinitive], word)
    if tense == "future":
        word = (future_auxiliary(person), finite)
        return VerbGroup(source, word, [], [infinitive], word)
    if tense == "present":
        form = german_present(verb, person)
        prefix: Tokens = [(verb.prefix, main)] if verb.prefix else []
        return VerbGroup(source, (form, main | finite), prefix, [], (verb.prefix + form, main | finite))
    if verb is BE or verb is HAVE:
        word = (german_preterite(verb, person), main | finite)
        return VerbGroup(source, word, [], [], word)
    word = (perfect_auxiliary(verb, person), finite)
    return VerbGroup(source, word, [], [(verb.german_participle, main)], word)
