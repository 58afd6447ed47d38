"""A checker of German grammar for the sentences of the built-in corpus, independent of what generates them.

`check` reads German text alone. It splits a sentence into clauses, clauses into phrases, and looks for the reading
that breaks the fewest rules; what that reading still breaks is the answer. Every word has to be known and to belong
to a phrase, so a sentence the checker cannot follow is reported, never passed. Knows nothing of English and shares
nothing with the generator. Its words stand in `german_checker_lexicon`, the parser in `german_checker_parser`, the
rules in `german_checker_rules`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from .parser import Choices, Parser
from .rules import check_clause, check_pronouns, kinds_wanted, of_kinds, things_named
from .syntax import Clause, Phrase, Report, Violation

MAX_READINGS = 300  # sentences of the corpus have a few dozen at most


def readings(tokens: list[str]) -> Iterator[Parser]:
    """The readings of a sentence, the likeliest first."""
    given: list[int] = []
    for _ in range(MAX_READINGS):
        parser = Parser(tokens, Choices(given))
        parser.parse()
        yield parser
        following = parser.choices.following()
        if following is None:
            return
        given = following


def read(tokens: list[str]) -> tuple[list[Violation], list[Clause]]:
    """The reading with the fewest violations."""
    best: tuple[list[Violation], list[Clause]] | None = None
    for parser in readings(tokens):
        checked = [(clause, *check_clause(clause)) for clause in parser.clauses]
        found = parser.violations + [violation for _, violations, _ in checked for violation in violations]
        found += check_pronouns([(clause, verbs) for clause, _, verbs in checked])
        if best is None or len(found) < len(best[0]):
            best = (found, parser.clauses)
        if not found:
            break
    assert best is not None
    return best


def is_clean(tokens: list[str]) -> bool:
    """Whether some reading breaks no rule of its clauses; faster than `read`, and blind to pronouns."""
    return any(
        not parser.violations and all(not check_clause(clause)[0] for clause in parser.clauses)
        for parser in readings(tokens)
    )


def with_commas_moved(tokens: list[str]) -> Iterator[list[str]]:
    """The sentence with one comma less, one more, or two more."""
    for i, token in enumerate(tokens):
        if token == ",":
            yield tokens[:i] + tokens[i + 1 :]
    gaps = [i for i in range(1, len(tokens) - 1) if "," not in tokens[i - 1 : i + 1]]
    for i in gaps:
        yield [*tokens[:i], ",", *tokens[i:]]
    if len(gaps) < 14:
        for i, j in itertools.combinations(gaps, 2):
            yield [*tokens[:i], ",", *tokens[i:j], ",", *tokens[j:]]


CHECKED_KINDS = ("verb", "prefix", "nicht")  # besides everything with a noun or pronoun in it


def inspect(german: str) -> Report:
    """Check a sentence and count the words that were checked."""
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


def phrases_meant(german: str, position: int) -> list[Phrase]:
    """What the pronoun at this position (punctuation counted) may mean by its sense, of all that is named before."""
    _, clauses = read(re.findall(r"\w+|[^\w\s]", german))
    before: list[Phrase] = []
    for clause in clauses:
        verbs = check_clause(clause)[1]
        for item in clause.items:
            if item.position == position and item.phrase and item.phrase.pronoun and verbs:
                return of_kinds(before, kinds_wanted(item.phrase, clause, verbs))
        before += things_named(clause)
    raise ValueError(f"no pronoun at word {position} of: {german}")


def check(german: str) -> list[Violation]:
    """The rules a German sentence breaks; none for a right one."""
    return list(inspect(german).violations)
