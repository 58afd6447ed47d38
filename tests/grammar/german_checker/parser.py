"""Parser of the German checker: all readings of a sentence as clauses and constituents, without checking their form."""

from __future__ import annotations

from .inflection import RELATIVE
from .lexicon import ADJECTIVE_KINDS, ADJECTIVES, ADVERB_KINDS, DETERMINERS, NOUNS, PREFIXES, VERB_FORMS
from .syntax import RULES, Clause, Item, ItemKind, Phrase, Violation
from .words import CONTRACTIONS, PREPOSITIONS, PRONOUNS, SUBORDINATORS


class Choices:
    """Sequence of decisions for one run of a parser: replays a list, then takes first options."""

    def __init__(self, decisions: list[int]) -> None:
        self.taken: list[tuple[int, int]] = []
        self._decisions = decisions

    def pick(self, options: int) -> int:
        position = len(self.taken)
        choice = self._decisions[position] if position < len(self._decisions) else 0
        self.taken.append((choice, options))
        return choice

    def following(self) -> list[int] | None:
        """Return the next list of decisions in depth-first order, None after the last."""
        taken = list(self.taken)
        while taken:
            choice, options = taken.pop()
            if choice + 1 < options:
                return [chosen for chosen, _ in taken] + [choice + 1]
        return None


class Parser:
    """One reading of a sentence: its clauses in the order in which they start, and violations found by parsing."""

    def __init__(self, tokens: list[str], choices: Choices) -> None:
        self.tokens = tokens
        self.choices = choices
        self.position = 0
        self.clauses: list[Clause] = []
        self.violations: list[Violation] = []

    def report(self, rule: str, detail: str) -> None:
        assert rule in RULES
        self.violations.append(Violation(rule, detail))

    def word(self, position: int) -> str:
        """Return the word in the spelling of the lexicon: lower case at the start of a sentence, except nouns."""
        if position >= len(self.tokens):
            return ""
        token = self.tokens[position]
        if position:
            return token
        is_noun = token in NOUNS and token.lower() not in ADVERB_KINDS
        is_before_noun = len(self.tokens) > 1 and self.tokens[1][0].isupper()  # "Junge Onkel": young, not the boy
        return token if is_noun and not (is_before_noun and token.lower() in ADJECTIVES) else token.lower()

    def open(self, clause: Clause) -> None:
        self.clauses.append(clause)
        self.clause = clause

    def parse(self) -> None:
        """Parse all tokens."""
        self.open(Clause("main"))
        if self.word(0) in SUBORDINATORS:
            self.clauses.clear()
            self.open(Clause("subordinate", opener=self.word(0), is_first=True))
            self.position = 1
        while self.position < len(self.tokens):
            word = self.word(self.position)
            if word == ".":
                if self.position + 1 != len(self.tokens):
                    self.report("comma", "full stop inside the sentence")
                self.position += 1
            elif word == ",":
                self.read_comma()
            elif word in ("und", "aber"):
                self.join_clause(word, after_comma=False)
            elif word in SUBORDINATORS:
                self.report("comma", f"no comma before {word}")
                self.open_subordinate()
            else:
                self.read_item()

    def read_comma(self) -> None:
        self.position += 1
        word = self.word(self.position)
        if word in SUBORDINATORS:
            self.open_subordinate()
        elif word in ("und", "aber"):
            self.join_clause(word, after_comma=True)
        elif self.can_open_relative(word) and self.choices.pick(2) == 0:
            self.open_relative()
        else:
            self.continue_clause()

    def open_subordinate(self) -> None:
        opener = self.word(self.position)
        if opener == "dass":
            self.clause.has_that_clause = True
        self.open(Clause("subordinate", opener=opener))
        self.position += 1

    def join_clause(self, word: str, after_comma: bool) -> None:
        """Start a main clause after und or aber; und follows a comma only at the end of a subordinate clause."""
        needs_comma = word == "aber" or self.clause.kind != "main"
        if needs_comma != after_comma:
            self.report("comma", f"{'no ' if needs_comma else ''}comma before {word}")
        self.open(Clause("main"))
        self.position += 1

    def can_open_relative(self, word: str) -> bool:
        has_noun = any(item.kind == "phrase" and item.phrase and item.phrase.noun for item in self.clause.items)
        return word in RELATIVE.values() and has_noun and self.clause.kind != "relative"

    def open_relative(self) -> None:
        """Start a relative clause of the last noun of the clause."""
        phrases = [item.phrase for item in self.clause.items if item.kind == "phrase" and item.phrase]
        antecedent = [phrase for phrase in phrases if phrase.noun][-1]
        surface = self.word(self.position)
        phrase = Phrase([surface], surface=surface, antecedent=antecedent, is_relative=True)
        self.open(Clause("relative", [Item("phrase", [surface], phrase)], parent=self.clause))
        self.position += 1

    def continue_clause(self) -> None:
        """Continue the previous clause or start the main clause after a comma without a conjunction."""
        clause: Clause | None = self.clause
        if clause and clause.kind == "relative":
            clause = clause.parent
            if clause and not (clause.kind == "subordinate" and clause.has_verb):
                self.clause = clause
                return
        if clause and clause.is_first and clause.kind == "subordinate":
            self.open(Clause("main", has_clause_in_front=True))
            return
        self.report("comma", f"comma before {self.word(self.position)}")

    # --- constituents --------------------------------------------------------------------------------------------

    def read_item(self) -> None:
        """Add one constituent to the open clause, or report and skip the word."""
        start = self.position
        item = self.adverbial() or self.prepositional() or self.noun_item() or self.adjective() or self.verb()
        if item:
            item.position = start
            self.clause.items.append(item)
            return
        self.position = start + 1
        word = self.word(start)
        if word in PREFIXES:
            self.clause.items.append(Item("prefix", [word]))
        elif is_known(word):
            self.report("fragment", word)
        elif self.tokens[start] != word.lower() and is_known(word.lower()):
            self.report("capital", word)
            self.tokens = [*self.tokens[:start], word.lower(), *self.tokens[start + 1 :]]
            self.position = start
        else:
            self.report("unknown-word", word)

    def is_end(self, position: int) -> bool:
        return self.word(position) in ("", ".", ",", "und", "aber")

    def take(self, count: int) -> list[str]:
        words = [self.word(i) for i in range(self.position, self.position + count)]
        self.position += count
        return words

    def adverbial(self) -> Item | None:
        word, after = self.word(self.position), self.word(self.position + 1)
        if word == "nicht":
            return Item("nicht", self.take(1))
        if (word, after) == ("zu", "Hause"):
            return Item("place", self.take(2))
        if word in PREFIXES and self.is_end(self.position + 1):
            return Item("prefix", self.take(1))
        kinds: dict[str, ItemKind] = {k: k for k in ("time", "frequency", "place", "comment")}
        kind = kinds.get(ADVERB_KINDS.get(word, ""))
        return Item(kind, self.take(1)) if kind else None

    def prepositional(self) -> Item | None:
        """Return a preposition, contracted or not, with its phrase."""
        start = self.position
        word = self.word(start)
        if word in CONTRACTIONS:
            preposition, article = CONTRACTIONS[word]
            self.position += 1
            phrase = self.noun_phrase(article)
        elif word in PREPOSITIONS:
            preposition = word
            self.position += 1
            contracted = (word, self.word(self.position)) in CONTRACTIONS.values()
            phrase = self.personal_pronoun() or self.noun_phrase()
            if phrase and contracted:
                self.report("contraction", f"{word} {phrase.determiner}")
        else:
            return None
        if phrase is None:
            self.position = start
            return None
        words = [self.word(i) for i in range(start, self.position)]
        is_time = phrase.noun is not None and phrase.noun.kind == "time"
        return Item("time" if is_time else "preposition", words, phrase, preposition)

    def personal_pronoun(self) -> Phrase | None:
        word = self.word(self.position)
        if word not in PRONOUNS:
            return None
        if word == "ihr" and self.starts_noun(self.position + 1) and self.choices.pick(2) == 0:
            return None  # "her" before a noun
        return Phrase(self.take(1), surface=word, pronoun=PRONOUNS[word])

    def starts_noun(self, position: int) -> bool:
        word = self.word(position)
        return word in NOUNS or word in ADJECTIVES or word == "sehr" or word.capitalize() in NOUNS

    def noun_item(self) -> Item | None:
        phrase = self.personal_pronoun() or self.noun_phrase()
        if phrase is None:
            return None
        is_time = phrase.noun is not None and phrase.noun.kind == "time"
        return Item("time" if is_time else "phrase", phrase.words, phrase)

    def noun_phrase(self, article: str = "", may_extend: bool = True) -> Phrase | None:
        """Return (determiner) (sehr) adjectives noun, with an optional genitive and an optional second conjunct."""
        start = position = self.position
        phrase = Phrase([], determiner=article)
        if not article and self.word(position) in DETERMINERS:
            phrase.determiner = self.word(position)
            position += 1
        if self.word(position) == "sehr" and self.word(position + 1) in ADJECTIVES:
            position += 1
        while is_adjective(self.word(position)) and self.starts_noun(position + 1):
            phrase.adjectives.append(self.word(position))
            position += 1
        noun_word = self.word(position)
        is_small = noun_word not in NOUNS and noun_word.capitalize() in NOUNS
        if noun_word not in NOUNS and not (is_small and (phrase.determiner or not is_known(noun_word))):
            return None
        if is_small:
            self.report("capital", noun_word)
        phrase.surface = noun_word.capitalize() if is_small else noun_word
        phrase.noun = NOUNS[phrase.surface][0]
        self.position = position + 1
        if may_extend:
            self.extend(phrase)
        phrase.words = [self.word(i) for i in range(start, self.position)]
        return phrase

    def extend(self, phrase: Phrase) -> None:
        start = self.position
        if self.word(start) in DETERMINERS and phrase.noun and phrase.noun.kind not in ("time", "name"):
            is_genitive = self.word(start).endswith("es") or self.word(start) == "des"
            if self.choices.pick(2) == (0 if is_genitive else 1):
                phrase.genitive = self.noun_phrase(may_extend=False)
                if phrase.genitive is None:
                    self.position = start
        if self.word(start) == "und" and self.choices.pick(2) == 1:
            self.position += 1
            phrase.conjunct = self.noun_phrase(may_extend=False)
            if phrase.conjunct is None:
                self.position = start

    def adjective(self) -> Item | None:
        """Return a predicate adjective or manner adverb, with or without "sehr" or "zu"."""
        start = self.position
        degree = 1 if self.word(start) in ("sehr", "zu") else 0
        word = self.word(start + degree)
        is_manner = ADVERB_KINDS.get(word) == "manner"
        if word not in ADJECTIVE_KINDS and not is_manner:
            return None
        if word in VERB_FORMS and not degree and self.choices.pick(2) == 1:
            return None  # "weiß": white, or knows
        return Item("manner" if is_manner else "adjective", self.take(degree + 1))

    def verb(self) -> Item | None:
        return Item("verb", self.take(1)) if self.word(self.position) in VERB_FORMS else None


def is_adjective(word: str) -> bool:
    return word in ADJECTIVES or word in ADJECTIVE_KINDS


def is_known(word: str) -> bool:
    """Return whether the word is in the lexicon."""
    return (
        any(word in words for words in (NOUNS, DETERMINERS, VERB_FORMS, ADVERB_KINDS, PREPOSITIONS, CONTRACTIONS))
        or any(word in words for words in (PRONOUNS, PREFIXES, SUBORDINATORS, RELATIVE.values()))
        or is_adjective(word)
        or word in ("nicht", "sehr", "zu", "und", "aber", "Hause", ",", ".")
    )
