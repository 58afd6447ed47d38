"""From a tree to both sentences: the order of words in each language, commas, alignment, the antecedent of "it"."""

from typing import NamedTuple

from clearhead.grammar.examples import Example, Pronoun
from clearhead.grammar.inflection import Tokens, Units, verb_group
from clearhead.grammar.lexicon import COORDINATORS, INTENSIFIERS, SUBORDINATORS, PersonalPronoun
from clearhead.grammar.phrases import COMMA, PhraseBuilder, TokenPair, contract, person_of
from clearhead.grammar.syntax import Clause, ConjoinedClause, Gap, It, Nominal, NounPhrase, Sentence, uses_kein


class MiddleField(NamedTuple):
    """What stands between subject and the end of the clause: English after the verb, German middle field, and after."""

    source: Tokens
    target: Tokens
    after: Tokens


class SentenceBuilder(PhraseBuilder):
    """Makes one sentence."""

    def sentence(self, tree: Sentence) -> TokenPair:
        """Both sides, with the full stop."""
        source: Tokens = []
        target: Tokens = []
        if tree.before:
            self.add(source, target, self.subordinate(tree.before))
            self.mark(",", source, target)
        self.add(source, target, self.clause(tree.main, "inverted" if tree.before else "main"))
        for part in tree.conjuncts:
            if part.conjunction == "but":
                self.mark(",", source, target)
            unit = self.new(part.conjunction)
            source.append((part.conjunction, unit))
            target.append((COORDINATORS[part.conjunction], unit))
            self.add(source, target, self.clause(part.clause, "main"))
        if tree.after:
            target.append(COMMA)
            self.add(source, target, self.subordinate(tree.after))
        self.mark(".", source, target)
        return source, target

    def mark(self, sign: str, source: Tokens, target: Tokens) -> None:
        """A punctuation mark that both sides have."""
        self.unit <<= 1
        source.append((sign, self.unit))
        target.append((sign, self.unit))

    @staticmethod
    def add(source: Tokens, target: Tokens, more: TokenPair) -> None:
        """Append to both sides."""
        source += more[0]
        target += more[1]

    def subordinate(self, part: ConjoinedClause) -> TokenPair:
        """A clause with its subordinating conjunction; verb last."""
        unit = self.new(part.conjunction)
        word = SUBORDINATORS[part.conjunction]
        if part.conjunction == "when" and part.clause.tense == "past":
            word = "als"
        source, target = self.clause(part.clause, "last")
        return [(part.conjunction, unit), *source], [(word, unit), *target]

    def clause(self, tree: Clause, order: str) -> TokenPair:
        """One clause; order is main, inverted (something stands before it) or last."""
        front_source, front_target = self.adverbial(tree.front)
        gap: TokenPair = ([], [])
        if isinstance(tree.direct, Gap):
            gap = self.nominal(tree.direct, "dative" if tree.verb.frame == "dative" else "accusative")
        source, subject = self.nominal(tree.subject, "nominative")
        if isinstance(tree.subject, NounPhrase) and tree.subject.relative:
            relative = self.clause(tree.subject.relative, "last")
            source += relative[0]
            subject += [COMMA, *relative[1], COMMA]
        units = Units(self.new(tree.verb.stem), self.unit << 1, self.unit << 2)
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
            return source, [*gap[1], *subject, *middle.target, *group.tail, group.last, *middle.after]
        end = [*middle.target, *group.prefix, *group.tail, *middle.after]
        if front_target or order == "inverted":
            return source, [*front_target, group.finite, *subject, *end]
        return source, [*subject, group.finite, *end]

    def middle(self, tree: Clause, units: Units, frequency: Tokens) -> MiddleField:
        """Objects and adverbials of both sides; see docs/grammar.md for the two orders."""
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
        that = self.that(tree)
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
        after = [COMMA, *relative[1], COMMA] if relative[1] else []
        return MiddleField(source, target, [*after, *that[1]])

    def direct(self, tree: Clause, units: Units, negation: int) -> tuple[TokenPair, Tokens, TokenPair]:
        """The object, German prepositional object (then the object's German side is empty), its relative clause."""
        verb, item = tree.verb, tree.direct
        nothing: TokenPair = ([], [])
        if item is None:
            return nothing, [], nothing
        bound: Tokens = [(verb.preposition, units.main)] if verb.preposition else []
        if isinstance(item, Gap):
            return (bound, []), [], nothing
        self.note_objects(tree)
        word, _, case = verb.frame.rpartition("+")
        prepositional: Tokens = []
        if word:
            mask = self.unit = self.unit << 1
            bound = [(verb.preposition, mask)]
            source, target = self.nominal(item, case)
            prepositional, target = contract((word, mask), target), []
        else:
            source, target = self.nominal(item, "dative" if case == "dative" else "accusative", negation)
        relative = nothing
        if isinstance(item, NounPhrase) and item.relative:
            relative = self.clause(item.relative, "last")
        return ([*bound, *source], target), prepositional, relative

    def note_objects(self, tree: Clause) -> None:
        """Record verb and object noun as a combination; "it" counts as its noun."""
        item = tree.direct.antecedent if isinstance(tree.direct, It) else tree.direct
        if isinstance(item, NounPhrase):
            self.combinations.append((tree.verb.stem, item.noun.english))

    def predicate(self, tree: Clause) -> TokenPair:
        """The adjective after "to be"."""
        if tree.predicate is None:
            return [], []
        source: Tokens = []
        target: Tokens = []
        if tree.predicate.intensifier:
            unit = self.new(tree.predicate.intensifier)
            source.append((tree.predicate.intensifier, unit))
            target.append((INTENSIFIERS[tree.predicate.intensifier], unit))
        adjective = tree.predicate.adjective
        subject = tree.subject.antecedent if isinstance(tree.subject, It) else tree.subject
        if isinstance(subject, NounPhrase | Gap):
            self.combinations.append((adjective.english, subject.noun.english))
        unit = self.new(adjective.english)
        return [*source, (adjective.english, unit)], [*target, (adjective.german, unit)]

    def that(self, tree: Clause) -> TokenPair:
        """A that-clause, after the end of its main clause."""
        if tree.that is None:
            return [], []
        unit = self.new("that")
        source, target = self.clause(tree.that, "last")
        return [("that", unit), *source], [COMMA, ("dass", unit), *target, COMMA]


def is_pronoun(item: Nominal | None) -> bool:
    """Whether the object is a pronoun: before the time adverbial in German, before the particle in English."""
    return isinstance(item, PersonalPronoun | It)


def normalize_commas(target: Tokens) -> Tokens:
    """German commas as they are written: one where two meet, none before the full stop."""
    result: Tokens = []
    for token in target:
        if result and result[-1][0] == "," and token[0] in ",.":
            result[-1] = (token[0], result[-1][1] | token[1])
        else:
            result.append(token)
    return result


def join_words(tokens: Tokens) -> str:
    """The words as a sentence: a capital first, no space before punctuation."""
    text = " ".join([token[0] for token in tokens]).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]


def align(source: Tokens, target: Tokens) -> tuple[tuple[int, int], ...]:
    """The pairs of words that share a unit, in order."""
    places: dict[int, list[int]] = {}
    for j, (_, mask) in enumerate(target):
        while mask:
            low = mask & -mask
            places.setdefault(low, []).append(j)
            mask ^= low
    pairs: list[tuple[int, int]] = []
    for i, (_, mask) in enumerate(source):
        found = places.get(mask)
        if found is None:
            found = []
            while mask:
                low = mask & -mask
                found += places.get(low, ())
                mask ^= low
            found = sorted(set(found))
        pairs += [(i, j) for j in found]
    return tuple(pairs)


def find_unit(tokens: Tokens, unit: int) -> int:
    """The index of the first word of a unit."""
    return next(i for i, token in enumerate(tokens) if token[1] & unit)


class RealizedSentence:
    """A realised sentence: its text and stem combinations at once, the whole example when asked."""

    __slots__ = ("builder", "combinations", "source", "source_tokens", "target_tokens")

    def __init__(self, tree: Sentence) -> None:
        self.builder = SentenceBuilder()
        self.source_tokens, target = self.builder.sentence(tree)
        self.target_tokens = normalize_commas(target)
        self.source = join_words(self.source_tokens)
        self.combinations = self.builder.combinations

    def example(self) -> Example:
        """The example, with alignment."""
        alignment = align(self.source_tokens, self.target_tokens)
        stems = tuple(self.builder.stems)
        return Example(self.source, join_words(self.target_tokens), alignment, self.pronoun(), stems)

    def has_pronoun(self) -> bool:
        """Whether the sentence has "it"."""
        return self.builder.it is not None

    def pronoun(self) -> Pronoun | None:
        """Where "it" and its antecedent stand on both sides."""
        if self.builder.it is None:
            return None
        noun, it = self.builder.heads[id(self.builder.it.antecedent)], self.builder.it_unit
        source, target = self.source_tokens, self.target_tokens
        index, antecedent = find_unit(source, it), find_unit(source, noun)
        return Pronoun(index, antecedent, index - antecedent, find_unit(target, it), find_unit(target, noun))
