"""Realization of a tree as sentences: word order and commas of both languages, alignment, the antecedent of "it"."""

from typing import NamedTuple

from clearhead.grammar.examples import Example, Pronoun
from clearhead.grammar.inflection import Tokens, Units, verb_group
from clearhead.grammar.lexicon import COORDINATORS, INTENSIFIERS, SUBORDINATORS, PersonalPronoun
from clearhead.grammar.phrases import COMMA, PhraseBuilder, TokenPair, contract, person_of
from clearhead.grammar.syntax import Clause, ConjoinedClause, Gap, It, Nominal, NounPhrase, Sentence, uses_kein


class MiddleField(NamedTuple):
    """Words after the subject: English after the verb group, the German middle field, and the German postfield."""

    source: Tokens
    target: Tokens
    postfield: Tokens


class SentenceBuilder(PhraseBuilder):
    """Builder of one sentence."""

    def sentence(self, tree: Sentence) -> TokenPair:
        """Return both sides of a sentence, with the full stop."""
        source: Tokens = []
        target: Tokens = []
        if tree.before:
            self.add(source, target, self.subordinate(tree.before))
            self.add_punctuation(",", source, target)
        self.add(source, target, self.clause(tree.main, "inverted" if tree.before else "main"))
        for part in tree.conjuncts:
            if part.conjunction == "but":
                self.add_punctuation(",", source, target)
            unit = self.new_unit(part.conjunction)
            source.append((part.conjunction, unit))
            target.append((COORDINATORS[part.conjunction], unit))
            self.add(source, target, self.clause(part.clause, "main"))
        if tree.after:
            target.append(COMMA)
            self.add(source, target, self.subordinate(tree.after))
        self.add_punctuation(".", source, target)
        return source, target

    def add_punctuation(self, sign: str, source: Tokens, target: Tokens) -> None:
        """Append a punctuation mark to both sides and align them."""
        self.unit <<= 1
        source.append((sign, self.unit))
        target.append((sign, self.unit))

    @staticmethod
    def add(source: Tokens, target: Tokens, addition: TokenPair) -> None:
        """Append tokens to both sides."""
        source += addition[0]
        target += addition[1]

    def subordinate(self, part: ConjoinedClause) -> TokenPair:
        """Return a verb-last clause with its subordinating conjunction."""
        unit = self.new_unit(part.conjunction)
        word = SUBORDINATORS[part.conjunction]
        if part.conjunction == "when" and part.clause.tense == "past":
            word = "als"
        source, target = self.clause(part.clause, "last")
        return [(part.conjunction, unit), *source], [(word, unit), *target]

    def clause(self, tree: Clause, order: str) -> TokenPair:
        """Return a clause; `order` is main, inverted (a subordinate clause precedes it) or last (verb-last)."""
        front_source, front_target = self.adverbial(tree.front)
        gap: TokenPair = ([], [])
        if isinstance(tree.direct, Gap):
            gap = self.nominal(tree.direct, "dative" if tree.verb.frame == "dative" else "accusative")
        source, subject = self.nominal(tree.subject, "nominative")
        if isinstance(tree.subject, NounPhrase) and tree.subject.relative:
            relative = self.clause(tree.subject.relative, "last")
            source += relative[0]
            subject += [COMMA, *relative[1], COMMA]
        units = Units(self.new_unit(tree.verb.stem), self.unit << 1, self.unit << 2)
        self.unit <<= 2
        if tree.modal:
            self.stems.append(tree.modal.english[0])
        if tree.is_negated:
            self.stems.append("not")
        if tree.tense == "future":
            self.stems.append("will")
        frequency = self.adverbial(tree.frequency)
        group = verb_group(tree, person_of(tree.subject), units, frequency[0])
        middle = self.middle(tree, units, frequency[1])
        source = [*gap[0], *front_source, *source, *group.source, *middle.source]
        if order == "last":
            return source, [*gap[1], *subject, *middle.target, *group.tail, group.last, *middle.postfield]
        end = [*middle.target, *group.prefix, *group.tail, *middle.postfield]
        if front_target or order == "inverted":
            return source, [*front_target, group.finite, *subject, *end]
        return source, [*subject, group.finite, *end]

    def middle(self, tree: Clause, units: Units, frequency: Tokens) -> MiddleField:
        """Return objects and adverbials of both sides in the orders documented in docs/grammar.md."""
        verb = tree.verb
        takes_kein = tree.is_negated and uses_kein(tree)
        negation: Tokens = [("nicht", units.negation)] if tree.is_negated and not takes_kein else []
        indirect = self.nominal(tree.indirect, "dative") if tree.indirect else ([], [])
        direct, prepositional, relative = self.direct(tree, units, units.negation if takes_kein else 0)
        particle: Tokens = [(verb.particle, units.main)] if verb.particle else []
        if is_pronoun(tree.direct):
            english_objects = [*indirect[0], *direct[0], *particle]
        else:
            english_objects = [*particle, *indirect[0], *direct[0]]
        manner = self.adverbial(tree.manner)
        companion = self.adverbial(tree.companion)
        place = self.adverbial(tree.place)
        time = self.adverbial(tree.time)
        predicate = self.predicate(tree)
        that = self.that_clause(tree)
        source = [
            *english_objects,
            *relative[0],
            *predicate[0],
            *manner[0],
            *companion[0],
            *place[0],
            *time[0],
            *that[0],
        ]
        objects = [*indirect[1], *direct[1]]
        light, heavy = (objects, []) if is_pronoun(tree.direct) else ([], objects)
        if is_pronoun(tree.indirect):
            light, heavy = indirect[1], direct[1]
        target = [*light, *time[1], *frequency, *heavy, *negation]
        target += [*manner[1], *prepositional, *companion[1], *place[1], *predicate[1]]
        postfield = [COMMA, *relative[1], COMMA] if relative[1] else []
        return MiddleField(source, target, [*postfield, *that[1]])

    def direct(self, tree: Clause, units: Units, negation: int) -> tuple[TokenPair, Tokens, TokenPair]:
        """Return the object, its German prepositional phrase, and its relative clause.

        If the object is prepositional in German, the second value has its German words; otherwise it is empty.
        """
        verb, item = tree.verb, tree.direct
        empty: TokenPair = ([], [])
        if item is None:
            return empty, [], empty
        bound: Tokens = [(verb.preposition, units.main)] if verb.preposition else []
        if isinstance(item, Gap):
            return (bound, []), [], empty
        self.record_object(tree)
        word, _, case = verb.frame.rpartition("+")
        prepositional: Tokens = []
        if word:
            mask = self.unit = self.unit << 1
            bound = [(verb.preposition, mask)]
            source, target = self.nominal(item, case)
            prepositional, target = contract((word, mask), target), []
        else:
            source, target = self.nominal(item, "dative" if case == "dative" else "accusative", negation)
        relative = empty
        if isinstance(item, NounPhrase) and item.relative:
            relative = self.clause(item.relative, "last")
        return ([*bound, *source], target), prepositional, relative

    def record_object(self, tree: Clause) -> None:
        """Record the combination of verb and object noun; "it" counts as its antecedent."""
        item = tree.direct.antecedent if isinstance(tree.direct, It) else tree.direct
        if isinstance(item, NounPhrase):
            self.combinations.append((tree.verb.stem, item.noun.english))

    def predicate(self, tree: Clause) -> TokenPair:
        """Return the predicate adjective with its intensifier."""
        if tree.predicate is None:
            return [], []
        source: Tokens = []
        target: Tokens = []
        if tree.predicate.intensifier:
            unit = self.new_unit(tree.predicate.intensifier)
            source.append((tree.predicate.intensifier, unit))
            target.append((INTENSIFIERS[tree.predicate.intensifier], unit))
        adjective = tree.predicate.adjective
        subject = tree.subject.antecedent if isinstance(tree.subject, It) else tree.subject
        if isinstance(subject, NounPhrase | Gap):
            self.combinations.append((adjective.english, subject.noun.english))
        unit = self.new_unit(adjective.english)
        return [*source, (adjective.english, unit)], [*target, (adjective.german, unit)]

    def that_clause(self, tree: Clause) -> TokenPair:
        """Return the that-clause, which follows the end of its main clause."""
        if tree.that is None:
            return [], []
        unit = self.new_unit("that")
        source, target = self.clause(tree.that, "last")
        return [("that", unit), *source], [COMMA, ("dass", unit), *target, COMMA]


def is_pronoun(item: Nominal | None) -> bool:
    """Return whether an object is a pronoun: before the time adverbial in German, before the particle in English."""
    return isinstance(item, PersonalPronoun | It)


def normalize_commas(target: Tokens) -> Tokens:
    """Merge adjacent German commas and remove those before the full stop."""
    result: Tokens = []
    for token in target:
        if result and result[-1][0] == "," and token[0] in ",.":
            result[-1] = (token[0], result[-1][1] | token[1])
        else:
            result.append(token)
    return result


def join_words(tokens: Tokens) -> str:
    """Return the sentence as text: capitalised, without space before punctuation."""
    text = " ".join([token[0] for token in tokens]).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]


def align(source: Tokens, target: Tokens) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) index pairs of words that share a unit, in order."""
    positions: dict[int, list[int]] = {}
    for j, (_, mask) in enumerate(target):
        while mask:
            low = mask & -mask
            positions.setdefault(low, []).append(j)
            mask ^= low
    pairs: list[tuple[int, int]] = []
    for i, (_, mask) in enumerate(source):
        aligned = positions.get(mask)
        if aligned is None:
            aligned = []
            while mask:
                low = mask & -mask
                aligned += positions.get(low, ())
                mask ^= low
            aligned = sorted(set(aligned))
        pairs += [(i, j) for j in aligned]
    return tuple(pairs)


def find_unit(tokens: Tokens, unit: int) -> int:
    """Return the index of the first word of a unit."""
    return next(i for i, token in enumerate(tokens) if token[1] & unit)


class RealizedSentence:
    """Realized sentence; the text and the stem combinations are computed at once, the example on demand."""

    __slots__ = ("builder", "combinations", "source", "source_tokens", "target_tokens")

    def __init__(self, tree: Sentence) -> None:
        self.builder = SentenceBuilder()
        self.source_tokens, target = self.builder.sentence(tree)
        self.target_tokens = normalize_commas(target)
        self.source = join_words(self.source_tokens)
        self.combinations = self.builder.combinations

    def example(self) -> Example:
        """Return the example, with alignment."""
        alignment = align(self.source_tokens, self.target_tokens)
        stems = tuple(self.builder.stems)
        return Example(self.source, join_words(self.target_tokens), alignment, self.pronoun(), stems)

    def has_pronoun(self) -> bool:
        """Return whether the sentence contains "it"."""
        return self.builder.it is not None

    def pronoun(self) -> Pronoun | None:
        """Return the positions of "it" and its antecedent on both sides, or None."""
        if self.builder.it is None:
            return None
        noun, it = self.builder.heads[id(self.builder.it.antecedent)], self.builder.it_unit
        source, target = self.source_tokens, self.target_tokens
        index, antecedent = find_unit(source, it), find_unit(source, noun)
        return Pronoun(index, antecedent, index - antecedent, find_unit(target, it), find_unit(target, noun))
