"""German inflection: articles, adjective endings, nouns, verbs, contractions; knows words, nothing of clauses."""

from clearhead.grammar.lexicon import BE, HAVE, NOUNS, Determiner, Modal, Noun, Verb

CASES = ("nominative", "accusative", "dative", "genitive")

# Rows in the order of CASES; columns masculine, feminine, neuter, plural; `-` is no ending.
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


def determiner(det: Determiner, case: str, gender: str) -> str:
    """The inflected determiner; gender is m, f, n or p (plural)."""
    if det.german == "d":
        return "d" + ENDINGS["article"][case, gender]
    if det.german in ("zwei", "drei"):
        return det.german
    return det.german + ENDINGS["ein" if det.declension == "mixed" else "der"][case, gender]


def relative_pronoun(case: str, gender: str) -> str:
    """The relative pronoun; it is the article but for the dative plural."""
    return "denen" if (case, gender) == ("dative", "p") else "d" + ENDINGS["article"][case, gender]


def _first_person(verb: Verb) -> str:
    if verb.infinitive == "wissen":
        return "weiß"
    return verb.infinitive[:-1] + ("e" if verb.infinitive.endswith("ern") else "")


def present(verb: Verb, person: str) -> str:
    """The present form without its separable prefix."""
    if verb is BE:
        return _SEIN[person]
    if person == "p":
        return verb.infinitive
    return verb.third if person == "3s" else _first_person(verb)


def preterite(verb: Verb, person: str) -> str:
    """The past form; only sein and haben have one here."""
    assert verb is BE or verb is HAVE
    if verb is BE:
        return "waren" if person == "p" else "war"
    return "hatten" if person == "p" else "hatte"


def auxiliary(verb: Verb, person: str) -> str:
    """The form of haben or sein that makes the verb's perfect."""
    return (_SEIN if verb.uses_sein else _HABEN)[person]


def werden(person: str) -> str:
    """The form of werden that makes the future."""
    return _WERDEN[person]


def modal(entry: Modal, tense: str, person: str) -> str:
    """The present or past form of a modal verb."""
    if tense == "past":
        return entry.german_past + "n" * (person == "p")
    if person != "p":
        return entry.present
    return "sollten" if entry.present == "sollte" else entry.infinitive
