"""The verb group of a clause in both languages: which words, which of them German puts at the end."""

from typing import NamedTuple

from clearhead.grammar import english, german
from clearhead.grammar.lexicon import BE, HAVE
from clearhead.grammar.syntax import Clause

Token = tuple[str, int]
Tokens = list[Token]


class VerbGroup(NamedTuple):
    """English words in order; German finite form, separable prefix, non-finite end, and the finite form verb-last."""

    source: Tokens
    finite: Token
    prefix: Tokens
    tail: Tokens
    last: Token


class Units(NamedTuple):
    """The units of the meaning, of tense and person, and of the negation."""

    main: int
    finite: int
    negation: int


def english_group(tree: Clause, person: str, units: Units, frequency: Tokens) -> Tokens:
    """The English words from the first auxiliary to the main verb, with "not" and the frequency adverb."""
    main, finite, negation = units
    verb, tense = tree.verb, tree.tense
    negated: Tokens = [("not", negation)] if tree.is_negated else []
    if tree.modal:
        head, rest = english.modal(tree.modal, tense, person, tree.is_negated)
        masks = {"not": negation, "cannot": finite | negation}
        if tree.is_negated and head[0] in ("do", "does", "did"):
            masks[head[0]] = finite | negation
        first: Tokens = [(word, masks.get(word, finite)) for word in head]
        return [*first, *frequency, *((word, finite) for word in rest), (verb.english, main)]
    if tense == "future":
        return [("will", finite), *negated, *frequency, (verb.english, main)]
    if tense == "perfect":
        return [(english.has_form(person), finite), *negated, *frequency, (verb.participle, main)]
    if verb is BE:
        return [(english.simple(verb, tense, person), main | finite), *negated, *frequency]
    if tree.is_negated:
        return [(english.do_form(tense, person), finite | negation), *negated, (verb.english, main)]
    return [*frequency, (english.simple(verb, tense, person), main | finite)]


def verb_group(tree: Clause, person: str, units: Units, frequency: Tokens) -> VerbGroup:
    """Both sides of the verb group; the position of nicht is the clause's business."""
    main, finite, _ = units
    verb, tense = tree.verb, tree.tense
    source = english_group(tree, person, units, frequency)
    infinitive: Token = (verb.prefix + verb.infinitive, main)
    if tree.modal:
        word: Token = (german.modal(tree.modal, tense, person), finite)
        return VerbGroup(source, word, [], [infinitive], word)
    if tense == "future":
        word = (german.werden(person), finite)
        return VerbGroup(source, word, [], [infinitive], word)
    if tense == "present":
        form = german.present(verb, person)
        prefix: Tokens = [(verb.prefix, main)] if verb.prefix else []
        return VerbGroup(source, (form, main | finite), prefix, [], (verb.prefix + form, main | finite))
    if verb is BE or verb is HAVE:
        word = (german.preterite(verb, person), main | finite)
        return VerbGroup(source, word, [], [], word)
    word = (german.auxiliary(verb, person), finite)
    return VerbGroup(source, word, [], [(verb.german_participle, main)], word)
