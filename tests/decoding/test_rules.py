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
from tests.engines.small_models import requests as some_requests

LIMIT, SENTENCES = 4, 5
Tokens = tuple[int, ...]


def found_by(
    decoding: DecodingConfig, asked: Constraints | None = None, n_best: int = 4, limit: int = LIMIT
) -> list[list[Hypothesis]]:
    """Return the results of a search whose beam contains every prefix."""
    src_NS = [[key] for key in range(SENTENCES)]
    constraints = [asked] * SENTENCES if asked else []
    return search(
        SearchBatch(TableGenerator(6), src_NS, decoding, [limit] * SENTENCES, END, PAD, n_best, None, constraints)
    )


def check(
    decoding: DecodingConfig, allowed: Callable[[Tokens], bool], asked: Constraints | None = None, limit: int = LIMIT
) -> None:
    """Assert that the best outputs and scores are those among all allowed outputs."""
    table = TableGenerator(6)
    for key, found in enumerate(found_by(decoding, asked, limit=limit)):
        expected = [(score, each) for score, each in table.all_outputs(key, limit, decoding) if allowed(each)][:4]
        assert [each.tokens for each in found] == [tokens for _, tokens in expected]
        assert [each.score for each in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("least", [1, 3, LIMIT])
def test_minimum_length(least: int) -> None:
    check(DecodingConfig(beam_size=130, min_length=least), lambda tokens: len(tokens) >= least)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_twice(size: int) -> None:
    def is_allowed(tokens: Tokens) -> bool:
        grams = [tokens[place : place + size] for place in range(len(tokens) - size + 1)]
        return len(set(grams)) == len(grams)

    limit = 3 if size == 1 else LIMIT  # with three words there is no longer output without a repetition
    check(DecodingConfig(beam_size=130, no_repeat_ngram_size=size), is_allowed, limit=limit)


@pytest.mark.parametrize("prefix", [(3,), (5, 4), (4, 4, 3)])
def test_prefix(prefix: Tokens) -> None:
    check(DecodingConfig(beam_size=130), lambda tokens: tokens[: len(prefix)] == prefix, Constraints(prefix))


@pytest.mark.parametrize(
    "wanted", [((3,),), ((4, 5),), ((3,), (5, 5)), ((3, 4, 3),), ((4,), (5,), (3,)), ((5, 5), (4,))]
)
def test_wanted_phrases(wanted: tuple[Tokens, ...]) -> None:
    def has_all(tokens: Tokens) -> bool:
        starts = [{tokens[place:][: len(phrase)] for place in range(len(tokens))} for phrase in wanted]
        return all(phrase in found for phrase, found in zip(wanted, starts, strict=True))

    check(DecodingConfig(beam_size=130), has_all, Constraints(include=LexicalConstraints(wanted)))


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("limit", [4, 5, 9])
def test_wanted_phrases_are_written_by_narrow_beams_too(beam: int, limit: int) -> None:
    """Words are included up to the shortest limit; also after a prefix, and if other tokens are more probable."""
    for wanted in (((3, 4), (5, 3)), ((5, 5, 5),), ((4,), (3, 3, 5))):
        asked = Constraints((4,) if limit > 4 else (), LexicalConstraints(wanted))
        for found in found_by(DecodingConfig(beam_size=beam), asked, n_best=1, limit=limit):
            text = " ".join(map(str, found[0].tokens))
            assert all(" ".join(map(str, phrase)) in text for phrase in wanted)


def test_the_next_token_does_not_turn_a_phrase_into_another_word() -> None:
    """Token 5 continues the previous word."""
    asked = Constraints(include=LexicalConstraints(((3,),), frozenset({5})))

    def has_word(tokens: Tokens) -> bool:
        return any(token == 3 and tokens[place : place + 1] != (5,) for place, token in enumerate(tokens, 1))

    check(DecodingConfig(beam_size=130), has_word, asked)


def test_rules_apply_even_if_no_token_is_left() -> None:
    """Three words, none twice, and no end before four tokens: the unfinished output is returned."""
    decoding = DecodingConfig(beam_size=2, no_repeat_ngram_size=1, min_length=4)
    for found in found_by(decoding, n_best=2):
        assert {each.finish_reason for each in found} == {"blocked"}
        assert all(sorted(each.tokens) == [3, 4, 5] for each in found)
        assert all(each.log_prob == pytest.approx(sum(each.token_log_probs)) for each in found)


def test_repeating_by_hand() -> None:
    assert tokens_repeating_ngram([7, 8, 7], 2) == [8]
    assert tokens_repeating_ngram([7, 8, 9, 7, 8], 3) == [9]
    assert tokens_repeating_ngram([7, 8], 3) == [] and tokens_repeating_ngram([], 1) == []
    assert tokens_repeating_ngram([7, 8], 1) == [7, 8]


# Tokens 3 to 8 spell these; a word is letters without a space.
SURFACES = {3: " a", 4: "a", 5: "b", 6: " ab", 7: " ", 8: ".a"}
LETTERS = "ab"


def spell(word: str) -> TokenAutomaton:
    """Return all segmentations of a word, enumerated over the texts of tokens."""
    go_on: tuple[dict[int, int], ...] = tuple({} for _ in word)
    begin: dict[int, tuple[int, ...]] = {}
    begin_open: dict[int, tuple[int, ...]] = {}
    for token, surface in SURFACES.items():
        for place in range(len(word)):
            if word[place:].startswith(surface):
                (begin_open if place == 0 else go_on[place])[token] = (
                    (len(surface),) if place == 0 else place + len(surface)  # type: ignore[assignment]
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
def test_a_spelling_knows_every_token_that_completes_the_word(word: str, tokens: list[int]) -> None:
    expected = [token for token in SURFACES if ends_with_word(text_of([*tokens, token]), word)]
    assert spell(word).completing_tokens(tokens) == expected


@pytest.mark.parametrize("word", ["a", "ab", "aa"])
def test_excluded_words_are_written_in_no_way(word: str) -> None:
    """Search finds the best output that never contains the word."""
    table, decoding = TableGenerator(9), DecodingConfig(beam_size=260)
    asked = [Constraints(exclude=(spell(word),))] * SENTENCES
    results = search(
        SearchBatch(table, [[key] for key in range(SENTENCES)], decoding, [3] * SENTENCES, END, PAD, 4, None, asked)
    )
    for key, found in enumerate(results):
        expected = [
            tokens
            for _, tokens in table.all_outputs(key, 3, decoding)
            if not any(ends_with_word(text_of(tokens[:size]), word) for size in range(1, len(tokens) + 1))
        ][:4]
        assert [each.tokens for each in found] == expected


def test_every_rule_at_once() -> None:
    """Each output meets all constraints; an exhaustive beam finds the best such output."""
    asked = Constraints((4,), LexicalConstraints(((5, 3),)))
    check(
        DecodingConfig(beam_size=130, min_length=4, no_repeat_ngram_size=2),
        lambda tokens: tokens[:1] == (4,) and len(tokens) >= 4 and (5, 3) in itertools.pairwise(tokens)
        and len({*itertools.pairwise(tokens)}) == len(tokens) - 1,
        asked,
        limit=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "asked", "message"),
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
    change: dict[str, object], asked: Constraints | None, message: str
) -> None:
    [request] = some_requests(1)
    decoding = DecodingConfig.model_validate({"max_length": "input+10", **change})
    with pytest.raises(DecodingError, match=message):
        engine(random_model()).run([type(request)(request.source, 1, asked)], decoding)


def test_plain_search_runs_no_code_of_other_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rules, groups, samples and coverage, none of their code runs, and no attention is requested."""
    import clearhead.decoding.search as module

    for name in ("apply_rules", "BankCandidates", "DiverseCandidates", "SamplingSelector", "Coverage"):
        monkeypatch.setattr(module, name, None)
    requested: list[bool] = []

    class RecordingGenerator(TableGenerator):
        def step(self, tokens_RT: Ints, state: TableState, /, want_attention: bool = False, *more: Any) -> Step:
            requested.append(want_attention)
            return super().step(tokens_RT, state)

    search(SearchBatch(RecordingGenerator(6), [[0], [1], [2]], DecodingConfig(beam_size=2), [4] * 3, END, PAD))
    assert requested and not any(requested)
