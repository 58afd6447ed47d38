"""The word list of `docs/grammar.md`, made from the lexicon; a test keeps the two in step."""

from clearhead.data.grammar import lexicon as lex
from clearhead.data.grammar.nouns import NAMES, NOUN_TABLES

ARTICLES = {"m": "der", "f": "die", "n": "das"}


def _noun(noun: lex.Noun) -> str:
    plural = "no plural" if noun.mass else f"{noun.plural}: {noun.german_plural}"
    genitive = "" if noun.gender == "f" else f", des {noun.genitive}"
    weak = ", weak" if noun.weak else ""
    return f"{noun.english}: {ARTICLES[noun.gender]} {noun.german}{genitive} ({plural}{weak})"


def _verb(verb: lex.Verb) -> str:
    auxiliary = "ist" if verb.uses_sein else "hat"
    prefix = f"{verb.prefix}|" if verb.prefix else ""
    separated = f" {verb.prefix}" if verb.prefix else ""
    fits = f"; subject {' '.join(sorted(verb.subjects))}"
    if verb.objects:
        fits += f"; object {' '.join(sorted(verb.objects))}"
    if verb.names:
        fits += f" ({' '.join(sorted(verb.names))})"
    forms = f"{prefix}{verb.infinitive}, {verb.third}{separated}, {auxiliary} {verb.german_participle}"
    return f"{verb.stem} ({verb.past}, {verb.participle}): {forms}{fits}"


def _case(preposition: lex.Preposition) -> str:
    return f"{preposition.stem}: {preposition.german} + {preposition.case} ({preposition.use})"


def word_list() -> str:
    """Every word with its German lemma, one line each, in Markdown."""
    lines: list[str] = []
    for kind in NOUN_TABLES:
        lines += [f"\n### Nouns: {kind}\n", *(f"- {_noun(noun)}" for noun in lex.NOUNS if noun.kind == kind)]
    for frame, verbs in lex.VERBS_BY_FRAME.items():
        lines += [f"\n### Verbs: {frame}\n", *(f"- {_verb(verb)}" for verb in verbs)]
    lines += ["\n### Adjectives, with the kinds they fit\n"]
    for word in lex.ADJECTIVES:
        stem = "" if word.inflected == word.german.removesuffix("e") else f" ({word.inflected}-)"
        lines.append(f"- {word.english}: {word.german}{stem}; {' '.join(sorted(word.kinds))}")
    lines += ["\n### Adverbials\n"]
    lines += [f"- {word.stem}: {' '.join(word.german)} ({word.role})" for word in lex.ADVERBS]
    lines += ["\n### Prepositions\n", *(f"- {_case(entry)}" for entry in lex.PREPOSITIONS)]
    lines += ["\n### Determiners\n"]
    for det in lex.DETERMINERS:
        forms = " / ".join(dict.fromkeys(form for form in (det.english, det.plural) if form))
        lines.append(f"- {forms}: {det.german}-, {det.declension}")
    lines += ["\n### Pronouns, names, modals, conjunctions\n"]
    for entry in lex.PERSONALS:
        german = ", ".join((entry.nominative, entry.accusative, entry.dative))
        lines.append(f"- {entry.english} (object: {entry.english_object}): {german}")
    lines.append(f"- names: {', '.join(NAMES)} (same in German, no endings)")
    for modal in lex.MODALS:
        past = f", past {' '.join(modal.past)}: {modal.german_past}" if modal.past else ""
        lines.append(f"- {' '.join(modal.english)}: {modal.infinitive} ({modal.present}){past}")
    conjunctions = {**lex.SUBORDINATORS, **lex.COORDINATORS, **lex.INTENSIFIERS}
    lines += [f"- {english}: {german}" for english, german in conjunctions.items()]
    return "\n".join(lines).strip() + "\n"
