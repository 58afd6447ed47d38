"""English forms: verbs, the article a/an, what "not" and adverbs do to the verb group; knows nothing of German."""

from clearhead.grammar.lexicon import BE, HAVE, VERBS, Modal, Verb, add_s

THIRD = {verb.english: add_s(verb.english) for verb in VERBS} | {"have": "has", "be": "is"}
_BE_PRESENT = {"1s": "am", "3s": "is", "p": "are"}


def indefinite(following: str) -> str:
    """a or an, by the first letter of the next word."""
    return "an" if following[0] in "aeiou" and not following.startswith("use") else "a"


def simple(verb: Verb, tense: str, person: str) -> str:
    """The one-word present or past form."""
    if verb is BE:
        if tense == "past":
            return "were" if person == "p" else "was"
        return _BE_PRESENT[person]
    if tense == "past":
        return verb.past
    return THIRD[verb.english] if person == "3s" else verb.english


def modal(entry: Modal, tense: str, person: str, is_negated: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modal's words before and after the place of a frequency adverb; "not" is among the first."""
    if entry.english == ("want", "to"):
        if is_negated:
            return ((do_form(tense, person), "not"), entry.english)
        return ((), entry.past if tense == "past" else entry.third if person == "3s" else entry.english)
    form = entry.past if tense == "past" else entry.english
    if is_negated:
        return (("cannot",) if form == ("can",) else (*form, "not")), ()
    return ((), form) if len(form) == 2 else (form, ())


def do_form(tense: str, person: str) -> str:
    """do, does or did."""
    if tense == "past":
        return "did"
    return "does" if person == "3s" else "do"


def has_form(person: str) -> str:
    """has or have, as the auxiliary of the perfect."""
    return "has" if person == "3s" else "have"


def allows(verb: Verb, tense: str, is_negated: bool) -> bool:
    """Whether the form exists: no "has been", "has had", and no simple past that looks like the present."""
    if tense == "perfect":
        return verb is not BE and verb is not HAVE
    return tense != "past" or is_negated or verb.past != verb.english
