"""Checker of German grammar for the sentences of the built-in corpus, independent of the generator.

`check` splits a sentence into clauses, and clauses into phrases, and returns the violations of the reading that breaks
the fewest rules. Every word must be in the lexicon and belong to a phrase, so a sentence that cannot be parsed is
reported. The words are in `words`, `inflection` and `lexicon`, the parser in `parser` and the rules in `rules`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from .parser import Choices, Parser
from .rules import accepted_kinds, candidate_antecedents, check_clause, check_pronouns, of_kinds
from .syntax import Clause, Phrase, Report, Violation

MAX_READINGS = 300  # sentences of the corpus have at most a few dozen


def readings(tokens: list[str]) -> Iterator[Parser]:
    """Yield the readings of a sentence, the most probable first."""
    decisions: list[int] = []
    for _ in range(MAX_READINGS):
        parser = Parser(tokens, Choices(decisions))
        parser.parse()
        yield parser
        following = parser.choices.following()
        if following is None:
            return
        decisions = following


def read(tokens: list[str]) -> tuple[list[Violation], list[Clause]]:
    """Return the violations and clauses of the reading with the fewest violations."""
    best: tuple[list[Violation], list[Clause]] | None = None
    for parser in readings(tokens):
        checked = [(clause, *check_clause(clause)) for clause in parser.clauses]
        broken = parser.violations + [violation for _, violations, _ in checked for violation in violations]
        broken += check_pronouns([(clause, verbs) for clause, _, verbs in checked])
        if best is None or len(broken) < len(best[0]):
            best = (broken, parser.clauses)
        if not broken:
            break
    assert best is not None
    return best


def is_clean(tokens: list[str]) -> bool:
    """Return whether a reading breaks no rule of its clauses; faster than `read`, and ignores pronouns."""
    return any(
        not parser.violations and all(not check_clause(clause)[0] for clause in parser.clauses)
        for parser in readings(tokens)
    )


def with_commas_moved(tokens: list[str]) -> Iterator[list[str]]:
    """Yield the sentence with one comma removed, one added, or two added."""
    for i, token in enumerate(tokens):
        if token == ",":
            yield tokens[:i] + tokens[i + 1 :]
    gaps = [i for i in range(1, len(tokens) - 1) if "," not in tokens[i - 1 : i + 1]]
    for i in gaps:
        yield [*tokens[:i], ",", *tokens[i:]]
    if len(gaps) < 14:
        for i, j in itertools.combinations(gaps, 2):
            yield [*tokens[:i], ",", *tokens[i:j], ",", *tokens[j:]]


CHECKED_KINDS = ("verb", "prefix", "nicht")  # in addition to all items with a noun or pronoun


def inspect(german: str) -> Report:
    """Return a report on a sentence with the number of words that were checked."""
    tokens = re.findall(r"\w+|[^\w\s]", german)
    violations, clauses = read(tokens)
    if tokens and not tokens[0][0].isupper():
        violations = [*violations, Violation("capital", tokens[0])]
    if not tokens or tokens[-1] != ".":
        violations = [*violations, Violation("comma", "no full stop")]
    if len(violations) > 1 and any(map(is_clean, with_commas_moved(tokens))):
        violations = [Violation("comma", german)]
    words = [token for token in tokens if token[0].isalpha()]
    checked = sum(
        len(item.words) for clause in clauses for item in clause.items if item.phrase or item.kind in CHECKED_KINDS
    )
    return Report(tuple(violations), len(words), checked)


def possible_antecedents(german: str, position: int) -> list[Phrase]:
    """Return the earlier phrases that satisfy the selectional restriction of the pronoun at this token position."""
    _, clauses = read(re.findall(r"\w+|[^\w\s]", german))
    before: list[Phrase] = []
    for clause in clauses:
        verbs = check_clause(clause)[1]
        for item in clause.items:
            if item.position == position and item.phrase and item.phrase.pronoun and verbs:
                return of_kinds(before, accepted_kinds(item.phrase, clause, verbs))
        before += candidate_antecedents(clause)
    raise ValueError(f"no pronoun at word {position} of: {german}")


def check(german: str) -> list[Violation]:
    """Return the rules that a German sentence breaks; an empty list for a correct one."""
    return list(inspect(german).violations)
