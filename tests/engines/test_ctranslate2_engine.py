"""The CTranslate2 engine gives what the torch engine gives, or says by name what it cannot give."""

import random
from pathlib import Path

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.requests import Request
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.ctranslate2_engine import CTranslate2Engine
from clearhead.engines.ctranslate2_models import ComputeType, Vocabulary
from clearhead.engines.torch_generator import TorchGenerator
from clearhead.errors import DecodingError
from clearhead.interop.ctranslate2 import convert
from clearhead.model.transformer import Transformer
from tests.engines.small_models import END, PAD, START, engine, random_model, requests, trained_model

PIECES = [f"piece{index}" for index in range(503)]
NEAR_TIE = 5e-3  # in log-probability


@pytest.fixture(scope="module")
def trained() -> Transformer:
    """With label smoothing over hundreds of pieces, as models are: padding and the start token have a small share."""
    torch.manual_seed(7)
    random.seed(7)
    return trained_model(300, smoothing=0.1, vocab_size=len(PIECES))


def converted(
    folder: Path, model: Transformer, compute_type: ComputeType = "float32", token_log_probs: bool = True
) -> CTranslate2Engine:
    pieces = Vocabulary(PIECES[: model.config.vocab_size])
    convert(model, pieces, folder)
    return CTranslate2Engine(folder, model.config, pieces, compute_type, 2, 512, token_log_probs)


def margin(model: Transformer, request: Request, settings: DecodingConfig) -> float:
    """How close the closest decision of our own search was, in log-probability."""
    limits = [settings.longest(len(request.source) - 1)]
    return run_search(SearchBatch(TorchGenerator(model, PAD), [request.source], settings, limits, END, PAD, 1))[
        0
    ].margin


def first_tokens(answers: list[list[Hypothesis]]) -> list[tuple[int, ...]]:
    return [answer[0].tokens for answer in answers]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_thousand_sentences_equal_the_torch_engine(beam: int, trained: Transformer, tmp_path: Path) -> None:
    settings, asked = DecodingConfig(beam_size=beam, max_length="input+10"), requests(1000)
    ours = engine(trained).run(asked, settings)
    theirs = converted(tmp_path, trained).run(asked, settings)
    places = [place for place in range(1000) if ours[place][0].tokens != theirs[place][0].tokens]
    margins = [margin(trained, asked[place], settings) for place in places]
    print(
        f"beam {beam}: {len(places)} of 1,000 differ from the torch engine, where decisions were as close as {margins}"
    )
    assert len(places) <= 4
    assert all(each < NEAR_TIE for each in margins)
    for [mine], [other] in zip(ours, theirs, strict=True):
        if mine.tokens == other.tokens:
            assert other.finish_reason == mine.finish_reason
            assert other.token_log_probs == pytest.approx(mine.token_log_probs, abs=1e-4)
            assert (other.score, other.log_prob) == pytest.approx((mine.score, mine.log_prob), abs=1e-4)


@pytest.mark.parametrize(
    "norm", [{}, {"length_penalty": 1.3}, {"length_penalty_form": "none"}, {"length_penalty_form": "gnmt"}]
)
def test_the_n_best_of_every_normalisation(norm: dict[str, object], trained: Transformer, tmp_path: Path) -> None:
    settings = DecodingConfig.model_validate({"beam_size": 4, "max_length": "input+10", **norm})
    asked = requests(60, n_best=3)
    ours, theirs = engine(trained).run(asked, settings), converted(tmp_path, trained).run(asked, settings)
    same = 0
    for mine, other in zip(ours, theirs, strict=True):
        assert [each.score for each in other] == sorted((each.score for each in other), reverse=True)
        same += [each.tokens for each in mine] == [each.tokens for each in other]
        assert other[0].score <= mine[0].score + NEAR_TIE or mine[0].tokens != other[0].tokens
    print(f"{norm}: {60 - same} of 60 lists of three differ")
    assert same >= (54 if settings.length_penalty_form == "gnmt" else 58)


def test_int8_writes_nearly_the_same(trained: Transformer, tmp_path: Path) -> None:
    settings, asked = DecodingConfig(beam_size=4, max_length="input+10"), requests(200)
    exact = converted(tmp_path, trained).run(asked, settings)
    rough = CTranslate2Engine(tmp_path, trained.config, Vocabulary(PIECES), "int8", 1).run(asked, settings)
    same = sum(mine == other for mine, other in zip(first_tokens(exact), first_tokens(rough), strict=True))
    print(f"int8: {200 - same} of 200 differ from float32")
    assert same > 100
    assert any(a[0].log_prob != b[0].log_prob for a, b in zip(exact, rough, strict=True))


@pytest.mark.parametrize("beam", [1, 2])
def test_limits_follow_the_settings_and_the_model(beam: int, tmp_path: Path) -> None:
    """Weights that hardly ever end: each output is as long as it may be, whatever it is decoded with."""
    model = random_model(max_positions=43)
    with torch.no_grad():
        model.output.weight[END] = 0.0
        model.output.weight[7] *= 20.0
        model.target_embedding.tokens.weight[7] *= 20.0
    built = converted(tmp_path, model)
    asked = [Request((*[9] * length, END)) for length in (1, 5, 29, 42)]
    for max_length, expected in (("input+3", [4, 8, 32, 43]), ("5", [5, 5, 5, 5]), ("99", [43, 43, 43, 43])):
        settings = DecodingConfig(beam_size=beam, max_length=max_length)
        answers, ours = built.run(asked, settings), engine(model).run(asked, settings)
        assert [len(answer[0].tokens) for answer in answers] == expected
        assert {answer[0].finish_reason for answer in answers} == {"length"}
        assert first_tokens(answers) == first_tokens(ours)
        for answer, mine in zip(answers, ours, strict=True):
            assert answer[0].token_log_probs == pytest.approx(mine[0].token_log_probs, abs=1e-4)


def test_greedy_answers_that_only_some_limits_cut(trained: Transformer, tmp_path: Path) -> None:
    asked = requests(100)
    free = engine(trained).run(asked, DecodingConfig(beam_size=1, max_length="input+10"))
    settings = DecodingConfig(beam_size=1, max_length=str(sorted(map(len, first_tokens(free)))[50]))
    ours, theirs = engine(trained).run(asked, settings), converted(tmp_path, trained).run(asked, settings)
    assert first_tokens(theirs) == first_tokens(ours)
    reasons = [answer[0].finish_reason for answer in theirs]
    assert reasons == [answer[0].finish_reason for answer in ours] and "length" in reasons


def test_what_is_cut_is_worth_its_part(tmp_path: Path) -> None:
    """Greedy sentences of unlike limits go together, and those that come out too long are cut and scored."""
    model = random_model(max_positions=43)
    with torch.no_grad():
        model.output.weight[END] = 0.0
        model.output.weight[7] *= 20.0
        model.target_embedding.tokens.weight[7] *= 20.0
    pieces, settings = Vocabulary(PIECES[: model.config.vocab_size]), DecodingConfig(beam_size=1, max_length="input+3")
    convert(model, pieces, tmp_path)
    asked = [Request((*[9] * length, END)) for length in (1, 5, 29)]
    quick = CTranslate2Engine(tmp_path, model.config, pieces, token_log_probs=False).run(asked, settings)
    ours = engine(model).run(asked, settings)
    for [other], [mine] in zip(quick, ours, strict=True):
        assert other.tokens == mine.tokens and other.finish_reason == "length"
    assert quick[0][0].log_prob == pytest.approx(ours[0][0].log_prob, abs=1e-4)  # 4 of the 8 pieces of the second


def test_nothing_is_cut_off_a_long_input(tmp_path: Path) -> None:
    model = random_model(max_positions=1100)
    built, settings = converted(tmp_path, model), DecodingConfig(beam_size=1, max_length="4")
    asked = [Request((*[9] * 1060, last, END)) for last in (9, 17, 23)]
    theirs, ours = built.run(asked, settings), engine(model).run(asked, settings)
    for [other], [mine] in zip(theirs, ours, strict=True):
        assert other.token_log_probs == pytest.approx(mine.token_log_probs, abs=2e-6)
    assert len({answer[0].log_prob for answer in theirs}) == 3


def test_an_output_may_be_empty_and_holds_no_padding_or_start(tmp_path: Path) -> None:
    model = random_model()
    with torch.no_grad():
        for token in (PAD, START):
            model.output.weight[token] = 3.0 * model.output.weight[END]
        norm = model.decoder.norm
        assert isinstance(norm, torch.nn.LayerNorm)
        norm.bias.copy_(5.0 * model.output.weight[END])
    [[found]] = converted(tmp_path, model).run([Request((9, END))], DecodingConfig(beam_size=1))
    [[mine]] = engine(model).run([Request((9, END))], DecodingConfig(beam_size=1))
    assert found.tokens == mine.tokens == () and found.finish_reason == "end"
    assert found.log_prob == pytest.approx(mine.log_prob, abs=1e-4)


def test_without_log_probabilities_of_tokens(trained: Transformer, tmp_path: Path) -> None:
    settings, asked = DecodingConfig(beam_size=2, max_length="input+10"), requests(20, n_best=2)
    whole = converted(tmp_path, trained).run(asked, settings)
    quick = CTranslate2Engine(tmp_path, trained.config, Vocabulary(PIECES), token_log_probs=False).run(asked, settings)
    assert first_tokens(quick) == first_tokens(whole)
    for [one, _], [other, _] in zip(quick, whole, strict=True):
        assert one.token_log_probs == ()
        assert one.log_prob == pytest.approx(other.log_prob, abs=0.05)


def test_what_it_cannot_honour_is_refused_by_name(trained: Transformer, tmp_path: Path) -> None:
    built = converted(tmp_path, trained)
    assert built.unsupported(DecodingConfig(length_penalty_form="gnmt")) == []
    for given, named in (
        ({"stopping_rule": "cannot_improve"}, "decoding.stopping_rule=cannot_improve"),
        ({"sampling": {"top_k": 3}}, "decoding.sampling"),
    ):
        settings = DecodingConfig.model_validate(given)
        assert built.unsupported(settings) == [named]
        with pytest.raises(DecodingError, match=named):
            built.run([], settings)
    for request, message in (
        (Request((*[7] * 64, END)), "sentence 2 has 65 tokens"),
        (Request((len(PIECES), END)), "sentence 2 has tokens"),
        (Request((7, END), n_best=5), "sentence 2 asks for 5"),
    ):
        with pytest.raises(DecodingError, match=message):
            built.run([Request((7, END)), request], DecodingConfig(beam_size=4))


def test_it_says_that_it_ranks_again_where_it_does(trained: Transformer, tmp_path: Path) -> None:
    built = converted(tmp_path, trained)
    assert built.notes(DecodingConfig()) == []
    assert built.notes(DecodingConfig(beam_size=1, length_penalty_form="gnmt")) == []
    [note] = built.notes(DecodingConfig(length_penalty_form="gnmt"))
    assert "gnmt" in note and "ranked" in note
