"""Rules, prefixes and words to include, compared with an enumeration of all outputs."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import DecodingConfig
from clearhead.decoding.generator import Ints, Step
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.logits_rules import TokenAutomaton, tokens_repeating_ngram
from clearhead.decoding.requests import Constraints, Hypothesis
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.errors import DecodingError
from tests.decoding.table import END, PAD, TableGenerator, TableState
from tests.engines.small_models import engine, random_model
from tests.engines.small_models import random_requests as some_requests

LIMIT, SENTENCES = 4, 5
Tokens = tuple[int, ...]


def found_by(
    decoding: DecodingConfig, search_constraints: Constraints | None = None, n_best: int = 4, limit: int = LIMIT
) -> list[list[Hypothesis]]:
    """Return the results of a search whose beam contains every prefix."""
    src_NS = [[key] for key in range(SENTENCES)]
    constraints = [search_constraints] * SENTENCES if search_constraints else []
    return search(
        SearchBatch(TableGenerator(6), src_NS, decoding, [limit] * SENTENCES, END, PAD, n_best, None, constraints)
    )


def check(
    decoding: DecodingConfig,
    allowed: Callable[[Tokens], bool],
    constraints: Constraints | None = None,
    limit: int = LIMIT,
) -> None:
    """Assert that the best outputs and scores are those among all allowed outputs."""
    table = TableGenerator(6)
    for key, actual in enumerate(found_by(decoding, constraints, limit=limit)):
        expected = [(score, each) for score, each in table.all_outputs(key, limit, decoding) if allowed(each)][:4]
        assert [each.tokens for each in actual] == [tokens for _, tokens in expected]
        assert [each.score for each in actual] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("least", [1, 3, LIMIT])
def test_minimum_length(least: int) -> None:
    check(DecodingConfig(beam_size=130, min_length=least), lambda tokens: len(tokens) >= least)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_twice(size: int) -> None:
    def is_allowed(tokens: Tokens) -> bool:
        grams = [tokens[position : position + size] for position in range(len(tokens) - size + 1)]
        return len(set(grams)) == len(grams)

    limit = 3 if size == 1 else LIMIT  # with three words there is no longer output without a repetition
    check(DecodingConfig(beam_size=130, no_repeat_ngram_size=size), is_allowed, limit=limit)


@pytest.mark.parametrize("prefix", [(3,), (5, 4), (4, 4, 3)])
def test_prefix(prefix: Tokens) -> None:
    check(DecodingConfig(beam_size=130), lambda tokens: tokens[: len(prefix)] == prefix, Constraints(prefix))


@pytest.mark.parametrize(
    "expected", [((3,),), ((4, 5),), ((3,), (5, 5)), ((3, 4, 3),), ((4,), (5,), (3,)), ((5, 5), (4,))]
)
def test_included_phrases(expected: tuple[Tokens, ...]) -> None:
    def has_all(tokens: Tokens) -> bool:
        starts = [{tokens[position:][: len(phrase)] for position in range(len(tokens))} for phrase in expected]
        return all(phrase in result for phrase, result in zip(expected, starts, strict=True))

    check(DecodingConfig(beam_size=130), has_all, Constraints(include=LexicalConstraints(expected)))


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("limit", [4, 5, 9])
def test_narrow_beams_also_include_phrases(beam: int, limit: int) -> None:
    """Words are included even with the lowest possible limit, after a prefix, and if other tokens are more probable."""
    for expected in (((3, 4), (5, 3)), ((5, 5, 5),), ((4,), (3, 3, 5))):
        constraints = Constraints((4,) if limit > 4 else (), LexicalConstraints(expected))
        for result in found_by(DecodingConfig(beam_size=beam), constraints, n_best=1, limit=limit):
            text = " ".join(map(str, result[0].tokens))
            assert all(" ".join(map(str, phrase)) in text for phrase in expected)


def test_the_next_token_does_not_turn_a_phrase_into_another_word() -> None:
    """Token 5 continues the previous word."""
    constraints = Constraints(include=LexicalConstraints(((3,),), frozenset({5})))

    def has_word(tokens: Tokens) -> bool:
        return any(token == 3 and tokens[position : position + 1] != (5,) for position, token in enumerate(tokens, 1))

    check(DecodingConfig(beam_size=130), has_word, constraints)


def test_rules_apply_even_if_no_token_is_left() -> None:
    """With three words, no repetition and a minimum of four tokens, the unfinished output is returned."""
    decoding = DecodingConfig(beam_size=2, no_repeat_ngram_size=1, min_length=4)
    for result in found_by(decoding, n_best=2):
        assert {each.finish_reason for each in result} == {"blocked"}
        assert all(sorted(each.tokens) == [3, 4, 5] for each in result)
        assert all(each.log_prob == pytest.approx(sum(each.token_log_probs)) for each in result)


def test_repeating_by_hand() -> None:
    assert tokens_repeating_ngram([7, 8, 7], 2) == [8]
    assert tokens_repeating_ngram([7, 8, 9, 7, 8], 3) == [9]
    assert tokens_repeating_ngram([7, 8], 3) == [] and tokens_repeating_ngram([], 1) == []
    assert tokens_repeating_ngram([7, 8], 1) == [7, 8]


# Texts of the tokens 3 to 8; a word is a sequence of letters.
SURFACES = {3: " a", 4: "a", 5: "b", 6: " ab", 7: " ", 8: ".a"}
LETTERS = "ab"


def spell(word: str) -> TokenAutomaton:
    """Return all segmentations of a word, enumerated over the texts of tokens."""
    go_on: tuple[dict[int, int], ...] = tuple({} for _ in word)
    begin: dict[int, tuple[int, ...]] = {}
    begin_open: dict[int, tuple[int, ...]] = {}
    for token, surface in SURFACES.items():
        for position in range(len(word)):
            if word[position:].startswith(surface):
                (begin_open if position == 0 else go_on[position])[token] = (
                    (len(surface),) if position == 0 else position + len(surface)  # type: ignore[assignment]
                )
        inside = [
            len(surface) - offset
            for offset in range(1, len(surface))
            if surface[offset - 1] not in LETTERS and word.startswith(surface[offset:])
        ]
        if inside:
            begin[token] = tuple(inside)
    opening = frozenset(token for token, surface in SURFACES.items() if surface[-1] not in LETTERS)
    return TokenAutomaton(len(word), go_on, begin, begin_open, opening)


def text_of(tokens: Sequence[int]) -> str:
    return "".join(SURFACES[token] for token in tokens)


def ends_with_word(text: str, word: str) -> bool:
    start = len(text) - len(word)
    return text.endswith(word) and (start == 0 or text[start - 1] not in LETTERS)


@given(st.text(LETTERS, min_size=1, max_size=4), st.lists(st.sampled_from(sorted(SURFACES)), max_size=7))
@settings(max_examples=300, deadline=None)
def test_automaton_finds_every_token_that_completes_the_word(word: str, tokens: list[int]) -> None:
    expected = [token for token in SURFACES if ends_with_word(text_of([*tokens, token]), word)]
    assert spell(word).completing_tokens(tokens) == expected


@pytest.mark.parametrize("word", ["a", "ab", "aa"])
def test_excluded_words_occur_in_no_segmentation(word: str) -> None:
    """Search finds the best output that never contains the word."""
    table, decoding = TableGenerator(9), DecodingConfig(beam_size=260)
    constraints = [Constraints(exclude=(spell(word),))] * SENTENCES
    results = search(
        SearchBatch(
            table, [[key] for key in range(SENTENCES)], decoding, [3] * SENTENCES, END, PAD, 4, None, constraints
        )
    )
    for key, actual in enumerate(results):
        expected = [
            tokens
            for _, tokens in table.all_outputs(key, 3, decoding)
            if not any(ends_with_word(text_of(tokens[:size]), word) for size in range(1, len(tokens) + 1))
        ][:4]
        assert [each.tokens for each in actual] == expected


def test_every_rule_at_once() -> None:
    """Each output meets all constraints; an exhaustive beam finds the best such output."""
    constraints = Constraints((4,), LexicalConstraints(((5, 3),)))
    check(
        DecodingConfig(beam_size=130, min_length=4, no_repeat_ngram_size=2),
        lambda tokens: tokens[:1] == (4,) and len(tokens) >= 4 and (5, 3) in itertools.pairwise(tokens)
        and len({*itertools.pairwise(tokens)}) == len(tokens) - 1,
        constraints,
        limit=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "constraints", "message"),
    [
        ({"min_length": 40}, None, r"sentence 1 may have an output of \d+ tokens .*min_length=40 cannot be met"),
        ({"max_length": "3"}, Constraints((7, 7, 7)), "its prefix and the words to include take 4"),
        (
            {"max_length": "3"},
            Constraints(include=LexicalConstraints(((7, 8), (9, 9)))),
            "take 4. Raise decoding.max_length",
        ),
    ],
)
def test_lengths_that_cannot_be_met_are_refused(
    change: dict[str, object], constraints: Constraints | None, message: str
) -> None:
    [request] = some_requests(1)
    decoding = DecodingConfig.model_validate({"max_length": "input+10", **change})
    with pytest.raises(DecodingError, match=message):
        engine(random_model()).run([type(request)(request.source, 1, constraints)], decoding)


def test_plain_search_runs_no_code_of_other_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rules, groups, samples and coverage, none of their code runs, and no attention is requested."""
    import clearhead.decoding.search as module

    for name in ("apply_rules", "BankCandidates", "DiverseCandidates", "SamplingSelector", "Coverage"):
        monkeypatch.setattr(module, name, None)
    requested: list[bool] = []

    class RecordingGenerator(TableGenerator):
        def step(self, tokens_RT: Ints, state: TableState, /, want_attention: bool = False, *options: Any) -> Step:
            requested.append(want_attention)
            return super().step(tokens_RT, state)

    search(SearchBatch(RecordingGenerator(6), [[0], [1], [2]], DecodingConfig(beam_size=2), [4] * 3, END, PAD))
    assert requested and not any(requested)
