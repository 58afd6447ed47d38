"""Text generation: search, samples, constraints, stop strings, streams and alternatives after a prompt."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.cli.main import main
from clearhead.errors import ClearheadError, ConfigError, DecodingError
from clearhead.tasks.decoding_settings import infer_method, nest_sampling_fields
from clearhead.tasks.generated_text import IncrementalDetokenizer, StopStrings
from clearhead.tasks.lexical_constraints import contains_word, find_unmet_constraints
from tests.tasks.all_tasks import Models

PROMPTS = ["", "The", "The ho", "Look at", "in", "the street", "The gar"]


@pytest.fixture(scope="module")
def folder(models: Models) -> Path:
    return models["lm"]


@pytest.fixture(scope="module")
def model(folder: Path) -> clearhead.Model:
    return clearhead.load(folder)


def generate(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    """Return the output of the command, or its error."""
    capsys.readouterr()
    code = main(["generate", str(folder), "--threads", "1", *options])
    captured = capsys.readouterr()
    assert code in (0, 2) and (captured.out == "" or code == 0)
    return captured.err.splitlines()[-1] if code else captured.out


NAMED: list[dict[str, Any]] = [
    {"beam_size": 3}, {"beam_size": 1, "min_length": 4}, {"seed": 5}, {"top_k": 5, "temperature": 0.7},
    {"beam_size": 4, "beam_groups": 2},
    {"beam_size": 2, "stop": ["e", "a"]}, {"seed": 2, "stop": "t"}, {"beam_size": 2, "include": ["house"]},
    {"beam_size": 2, "exclude": ["the"], "no_repeat_ngram_size": 2},
]  # fmt: skip


@pytest.mark.parametrize("named", NAMED)
def test_results_do_not_depend_on_the_batch_or_streaming(model: clearhead.Model, named: dict[str, Any]) -> None:
    """Generate 20 tokens after prompts of several lengths, so that the context of 16 tokens slides."""
    alone = [model.generate(prompt, max_tokens=20, **named) for prompt in PROMPTS]

    @given(st.permutations(range(len(PROMPTS))), st.integers(1, len(PROMPTS)))
    @settings(max_examples=3, deadline=None)
    def check(order: list[int], count: int) -> None:
        chosen = [PROMPTS[index] for index in order[:count]]
        for index, result in zip(order, model.generate_many(chosen, max_tokens=20, **named), strict=False):
            assert (result.text, result.tokens, result.unmet_constraints) == (
                alone[index].text,
                alone[index].tokens,
                alone[index].unmet_constraints,
            )
            assert result.token_log_probs == pytest.approx(alone[index].token_log_probs, abs=1e-4)

    check()
    for prompt, result in zip(PROMPTS, alone, strict=True):
        assert "".join(model.stream(prompt, max_tokens=20, **named)) == result.text
        assert result.log_prob == pytest.approx(sum(result.token_log_probs), abs=1e-4)
        if "stop" in named:
            assert not any(stop in result.text for stop in named["stop"])
            assert (result.finish_reason == "stop") is any(
                stop in model.tokenizer.decode([model.tokenizer.token_id(token) or 0 for token in result.tokens])
                for stop in named["stop"]
            )
    assert len({result.text for result in alone}) > 1


def test_n_best_of_a_beam_are_ranked_and_samples_are_numbered(model: clearhead.Model) -> None:
    [ranked] = model.generate_n_best(["the"], 3, model.generation_settings(beam_size=3, max_tokens=6))
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert len({one.tokens for one in ranked}) == 3
    drawn = model.generation_settings(seed=4, max_tokens=6)
    [samples] = model.generate_n_best(["the"], 3, drawn)
    assert [one.tokens for one in samples] == [
        model.generate("the", sample=number, settings=drawn).tokens for number in range(3)
    ]


def test_constraints_apply_across_the_end_of_the_prompt(model: clearhead.Model) -> None:
    for prompt in PROMPTS[1:]:
        result = model.generate(prompt, beam_size=2, include=["house", "field"], exclude=["the"], max_tokens=25)
        assert result.unmet_constraints == ()
        whole = f"{prompt}{result.text}"
        assert all(contains_word(whole, word, len(prompt)) for word in ("house", "field"))
        assert not contains_word(whole, "the", len(prompt))


def test_words_at_the_end_of_a_prompt(model: clearhead.Model) -> None:
    """Text that continues the last letters of the prompt (`before`) forms another word, or completes the word."""
    include, exclude = (
        model.generation_settings(beam_size=1, include=["wall"]),
        model.generation_settings(beam_size=1, exclude=["wall"]),
    )
    for text, before, has_word in (
        ("wall", "", True),
        ("wall", "a ", True),
        ("wall", "a", False),
        (" wall", "a", True),
    ):
        assert (find_unmet_constraints(include, model.tokenizer, text, before) == ()) is has_word
    for text, before, has_word in ((" is", "the wall", False), ("ll is", "the wa", True), ("ll", "a swa", False)):
        assert (find_unmet_constraints(exclude, model.tokenizer, text, before) == ("wall",)) is has_word


def test_alternatives_differ_at_the_position_only(model: clearhead.Model) -> None:
    """This includes positions far beyond the context."""
    for position in (0, 2, 24):
        overrides: dict[str, Any] = {"beam_size": 2, "max_tokens": 26, "min_length": 26}
        best = model.generate("the", **overrides)
        results = model.generate_alternatives("the", position, 4, **overrides)
        assert {result.tokens[:position] for result in results} == {best.tokens[:position]}
        assert len({result.tokens[position] for result in results}) == 4
        log_probs = [result.token_log_probs[position] for result in results]
        assert log_probs == sorted(log_probs, reverse=True)
    with pytest.raises(
        DecodingError, match=r"the prompt: expected a position of 0 to 25, found 26; the output has 26 tokens"
    ):
        model.generate_alternatives("the", 26, 4, **overrides)


@given(st.lists(st.integers(4, 399), min_size=1, max_size=12), st.sampled_from(["", "the w"]))
@settings(max_examples=60, deadline=None)
def test_search_detects_stop_strings_that_the_text_contains(
    model: clearhead.Model, ids: list[int], prompt: str
) -> None:
    tokenizer = model.tokenizer
    ids = [index for index in ids if index < tokenizer.vocab_size]
    strings, before = ("e", " th", "wa", "\ufffd\ufffd"), tuple(tokenizer.encode(prompt).ids)
    detokenizer, stops = (
        IncrementalDetokenizer(tokenizer, before, strings[:3]),
        StopStrings(tokenizer, before, strings[:3]),
    )
    text = tokenizer.decode([*before, *ids])[len(tokenizer.decode(before)) :]
    is_seen = any(stops(ids[:end]) for end in range(1, len(ids) + 1))
    assert is_seen is any(each in text for each in strings[:3])
    for index in ids:
        detokenizer.add(index)
    detokenizer.finish()
    assert detokenizer.is_stopped is is_seen


def test_a_stop_string_may_begin_with_the_space_after_the_prompt(model: clearhead.Model) -> None:
    tokenizer = model.tokenizer
    before, both = tokenizer.encode("The").ids, tokenizer.encode("The the").ids
    continuation = both[len(before) :]
    assert both[: len(before)] == before and tokenizer.decode(continuation) == "the"
    assert StopStrings(tokenizer, tuple(before), (" the",))(continuation)
    assert not StopStrings(tokenizer, (), (" the",))(continuation), "a text does not begin with a space"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"beam_size": 3}, {"beam_size": 3, "method": "search"}),
        (
            {"temperature": 0.5, "max_tokens": 3},
            {"sampling": {"temperature": 0.5, "max_tokens": 3}, "method": "sample"},
        ),
        ({"max_tokens": 3, "stop": "x"}, {"sampling": {"max_tokens": 3, "stop": "x"}}),
        ({"beam_size": 3, "method": "sample"}, {"beam_size": 3, "method": "sample"}),
        ({"sampling": {"seed": 3}, "stop": "x"}, {"sampling": {"seed": 3, "stop": "x"}, "method": "sample"}),
    ],
)
def test_settings_by_name(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    assert infer_method(nest_sampling_fields(settings)) == expected


def test_generate_prints_the_results_of_the_api(
    model: clearhead.Model, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = generate(capsys, folder, "the", "--beam", "3", "--n-best", "2", "--max-tokens", "5")
    [ranked] = model.generate_n_best(["the"], 2, model.generation_settings(beam_size=3, max_tokens=5))
    assert two == "".join(f"--- {number}\nthe{one.text}\n" for number, one in enumerate(ranked, 1))
    words = ["--include", "house", "--exclude", "the", "--beam", "2", "--max-tokens", "20"]
    assert generate(capsys, folder, "a", *words) == (
        "a" + model.generate("a", beam_size=2, include=["house"], exclude=["the"], max_tokens=20).text + "\n"
    )
    more = ["--alternatives-at", "1", "--n-best", "3", "--beam", "2", "--max-tokens", "5", "--json"]
    records = [json.loads(line) for line in generate(capsys, folder, "a", *more).splitlines()]
    assert [record["text"] for record in records] == [
        one.text for one in model.generate_alternatives("a", 1, 3, beam_size=2, max_tokens=5)
    ]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{one}\n" for one in PROMPTS).encode())))
    rule = ["--set", "decoding.stopping_rule=cannot_improve", "--beam", "2"]
    lines = generate(capsys, folder, "--lines", "--json", "--max-tokens", "4", *rule).splitlines()
    settings_ = model.decoding(
        "generate", beam_size=2, method="search", stopping_rule="cannot_improve", sampling={"max_tokens": 4}
    )
    assert [json.loads(line)["text"] for line in lines] == [
        one.text for one in model.generate_many(PROMPTS, settings=settings_)
    ]
    assert [json.loads(line)["prompt"] for line in lines] == PROMPTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam", "0"], "decoding.beam_size=0"),
        (["--beam", "2", "--n-best", "3"], "needs a beam size of at least 3"),
        (["--beam", "2", "--temperature", "2"], "sampling.temperature has no meaning for clearhead generate without"),
        (["--set", "decoding.prefix=x"], "decoding.prefix has no meaning for clearhead generate"),
        (["--set", "decoding.max_length=5"], "decoding.max_length has no meaning for clearhead generate"),
        (["--set", "decoding.coverage_penalty=1"], "decoding.coverage_penalty has no meaning for clearhead generate"),
        (["--beam", "2", "--set", "decoding.min_length=201"], "decoding.min_length=201 cannot be met"),
        (["--beam", "2", "--include", "house", "--exclude", "house"], "contradicts decoding.include"),
        (["--include", "house", "--set", "decoding.method=sample"], "works with neither beam_groups nor sampling"),
        (["--beam", "2", "--include", "house field", "--max-tokens", "1"], "Raise max_tokens, or use fewer words"),
        (["--lines"], "--lines reads prompts from standard input: add --json"),
        (["--lines", "--json", "--alternatives-at", "1"], "--lines reads prompts from standard input"),
        (["x" * 40], "the prompt has"),
        (["--alternatives-at", "99", "--beam", "1", "--max-tokens", "5"], "expected a position of 0 to"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert message in generate(capsys, folder, *options)


def test_whole_settings_and_settings_by_name_are_exclusive(model: clearhead.Model) -> None:
    with pytest.raises(ConfigError, match=r"expected settings or beam_size, got both"):
        model.generate("the", settings=model.generation_settings(beam_size=2), beam_size=3)
    with pytest.raises(ClearheadError, match="was trained for the task lm: it cannot translate"):
        model.translate("the")
