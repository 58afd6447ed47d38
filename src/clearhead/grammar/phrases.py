"""Noun phrases, pronouns and adverbials in both languages, with the units that align their words.

Each token consists of a word and a bit set of units. A source word and a target word are aligned if they share a
unit, so the alignment is set when the words are generated and is not affected by reordering.
"""

from clearhead.grammar import inflection
from clearhead.grammar.inflection import Token, Tokens, indefinite_article
from clearhead.grammar.lexicon import DETERMINER, Adverb, PersonalPronoun
from clearhead.grammar.syntax import Coordination, Gap, It, Name, Nominal, NounPhrase, PrepositionPhrase

TokenPair = tuple[Tokens, Tokens]
COMMA: Token = (",", 0)


def person_of(nominal: Nominal) -> str:
    """Return the person that the verb agrees with: 1s, 3s or p."""
    if isinstance(nominal, PersonalPronoun):
        return nominal.person
    if isinstance(nominal, NounPhrase | Gap):
        return "p" if nominal.plural else "3s"
    return "p" if isinstance(nominal, Coordination) else "3s"


class PhraseBuilder:
    """Builder of phrases; records the stems, the stem combinations and the unit of each noun."""

    def __init__(self) -> None:
        self.unit = 1
        self.stems: list[str] = []
        self.combinations: list[tuple[str, str]] = []
        self.heads: dict[int, int] = {}
        self.it: It | None = None
        self.it_unit = 0

    def new_unit(self, stem: str) -> int:
        """Record a stem and return a new alignment unit for it."""
        self.unit <<= 1
        self.stems.append(stem)
        return self.unit

    def noun_phrase(self, tree: NounPhrase, case: str, negation: int = 0) -> TokenPair:
        """Return the phrase without its relative clause; a nonzero negation unit replaces the determiner by kein."""
        noun, plural = tree.noun, tree.plural
        gender = "p" if plural else noun.gender
        source: Tokens = []
        target: Tokens = []
        det = tree.determiner
        if det.english:
            mask = self.new_unit(det.english)
            source.append((det.plural if plural else det.english, mask))
            negation |= mask if negation else 0
        if negation:
            det = DETERMINER["no"]
            target.append((inflection.german_determiner(det, case, gender), negation))
        elif det.english:
            target.append((inflection.german_determiner(det, case, gender), mask))
        if tree.very:
            mask = self.new_unit("very")
            source.append(("very", mask))
            target.append(("sehr", mask))
        ending = inflection.ENDINGS[det.declension][case, gender]
        for adjective in tree.adjectives:
            mask = self.new_unit(adjective.english)
            self.combinations.append((adjective.english, noun.english))
            source.append((adjective.english, mask))
            target.append((adjective.inflected + ending, mask))
        mask = self.new_unit(noun.english)
        self.heads[id(tree)] = mask
        source.append((noun.plural if plural else noun.english, mask))
        target.append((inflection.NOUN_FORMS[noun.german, case, plural], mask))
        if source[0][0] == "a":
            source[0] = (indefinite_article(source[1][0]), source[0][1])
        if tree.genitive:
            self.add_genitive(tree.genitive, source, target)
        return source, target

    def add_genitive(self, tree: NounPhrase, source: Tokens, target: Tokens) -> None:
        """Append a genitive ("of the house": "des Hauses"); "of" is aligned with the German determiner."""
        of = self.new_unit("of")
        inner_source, inner_target = self.noun_phrase(tree, "genitive")
        source.append(("of", of))
        source += inner_source
        word, mask = inner_target[0]
        target.append((word, mask | of))
        target += inner_target[1:]

    def nominal(self, tree: Nominal, case: str, negation: int = 0) -> TokenPair:
        """Return a nominal in the given case, without its relative clause."""
        if isinstance(tree, NounPhrase):
            return self.noun_phrase(tree, case, negation)
        if isinstance(tree, Coordination):
            first = self.noun_phrase(tree.first, case)
            mask = self.new_unit("and")
            second = self.noun_phrase(tree.second, case)
            return [*first[0], ("and", mask), *second[0]], [*first[1], ("und", mask), *second[1]]
        if isinstance(tree, PersonalPronoun):
            mask = self.new_unit(tree.english)
            word = tree.english if case == "nominative" else tree.english_object
            forms = {"nominative": tree.nominative, "accusative": tree.accusative, "dative": tree.dative}
            return [(word, mask)], [(forms[case], mask)]
        if isinstance(tree, Name):
            mask = self.new_unit(tree.name)
            return [(tree.name, mask)], [(tree.name, mask)]
        if isinstance(tree, It):
            mask = self.it_unit = self.new_unit("it")
            self.it = tree
            return [("it", mask)], [(inflection.IT_FORMS[case][tree.antecedent.noun.gender], mask)]
        return self.relative_pronoun(tree, case)

    def relative_pronoun(self, tree: Gap, case: str) -> TokenPair:
        """Return the relative pronoun: "who" or "whom" for persons, otherwise "that"."""
        is_person = tree.noun.kind == "person"
        mask = self.new_unit("who" if is_person else "that")
        word = "that" if not is_person else "who" if case == "nominative" else "whom"
        return [(word, mask)], [
            (inflection.german_relative_pronoun(case, "p" if tree.plural else tree.noun.gender), mask)
        ]

    def preposition_phrase(self, tree: PrepositionPhrase) -> TokenPair:
        """Return a preposition with its phrase; preposition and German article are contracted where possible."""
        preposition = tree.preposition
        mask = self.new_unit(preposition.stem)
        case = preposition.case
        if case == "two-way":
            case = "accusative" if tree.is_direction else "dative"
        source, target = self.nominal(tree.nominal, case)
        words: Tokens = [(word, mask) for word in preposition.english]
        return [*words, *source], contract((preposition.german, mask), target)

    def adverbial(self, tree: PrepositionPhrase | Adverb | None) -> TokenPair:
        """Return an adverb or a prepositional phrase; two empty lists for None."""
        if tree is None:
            return [], []
        if isinstance(tree, PrepositionPhrase):
            return self.preposition_phrase(tree)
        mask = self.new_unit(tree.stem)
        return [(word, mask) for word in tree.english], [(word, mask) for word in tree.german]


def contract(preposition: Token, target: Tokens) -> Tokens:
    """Contract preposition and article ("in dem Haus": "im Haus"); the contraction has the units of both."""
    contraction = inflection.CONTRACTIONS.get((preposition[0], target[0][0]))
    if contraction is None:
        return [preposition, *target]
    return [(contraction, preposition[1] | target[0][1]), *target[1:]]
