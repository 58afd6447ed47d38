"""How much the grammar can say: a lower bound, counted over one family of sentences.

The word list of `docs/grammar.md`, made from the lexicon; a test keeps the two in step.
"""

from collections.abc import Iterable

from clearhead.grammar import english
from clearhead.grammar import lexicon as lex
from clearhead.grammar.collocations import ADJECTIVES_BY_KIND, SINGULAR, nouns_of, object_nouns
from clearhead.grammar.lexicon import VERBS_BY_FRAME, Noun
from clearhead.grammar.nouns import NAMES, NOUN_TABLES

TENSES = ("present", "past", "perfect", "future")


def _phrases(nouns: Iterable[Noun]) -> int:
    """Singular noun phrases with at most one adjective: determiner, adjective or none, noun."""
    determiners = len(set(SINGULAR))
    return sum(determiners * (1 + len(ADJECTIVES_BY_KIND[noun.kind])) for noun in nouns if not noun.mass)


def pair_count() -> int:
    """A lower bound of the number of pairs: subject, verb with one object, and nothing else.

    Each choice shows in the English sentence, so no two of the counted sentences are the same.
    """
    total = 0
    for verb in VERBS_BY_FRAME["accusative"]:
        tenses = sum(english.allows(verb, tense, is_negated=False) for tense in TENSES)
        total += _phrases(nouns_of(verb.subjects)) * _phrases(object_nouns(verb)) * tenses
    return total


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
