"""The native engine: its two searches find the same outputs, and those of torch are equal up to rounding."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.grid_beam_search import LexicalConstraints
from clearhead.decoding.requests import AllowedTokens, Constraints, NoOutputError, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.engines.native_engine import NativeEncoderEngine, NativeEngine, NativeScoringEngine
from clearhead.engines.torch_engine import TorchEngine
from clearhead.engines.torch_forward import TorchEncoderEngine, TorchScoringEngine
from clearhead.runtime import Cancellation
from tests.engines.test_modes import MODES, requests_in
from tests.runtime.models import ENCODERS, LANGUAGE_MODELS, TRANSLATORS, native, random_model, random_sequences

SOURCES = [[*source, 3] for source in random_sequences([*range(1, 20), 5, 5], seed=2, vocab_size=57)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def engine_of(network: Any, **options: Any) -> NativeEngine:
    return NativeEngine(native(network), threads=2, **options)


def torch_engine_of(network: Any, **options: Any) -> TorchEngine:
    config = network.config
    return TorchEngine(network, config.eos_id, config.pad_id, config.vocab_size, config.max_positions, **options)


COMBINATIONS = [
    {
        "beam_size": beam_size,
        "length_penalty_form": form,
        "stopping_rule": rule,
        "min_length": least,
        "max_length": most,
    }
    for beam_size, form, rule, (least, most) in itertools.product(
        (1, 2, 4, 7),
        ("gnmt", "length", "none"),
        ("beam_finished", "cannot_improve", "no_better_now"),
        ((0, "input+5"), (4, "8"), (0, "1")),
    )
]


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize("scale", [0.3, 0.05])
def test_both_searches_find_the_same_bits(scale: float, compute_type: Any) -> None:
    """A small scale gives nearly equal probabilities: many ties."""
    engine = NativeEngine(native(random_model(vocab_size=57, scale=scale), compute_type), threads=2)
    for combination in COMBINATIONS:
        settings = DecodingConfig.model_validate(combination)
        requests = [Request(tuple(source), min(3, settings.beam_size)) for source in SOURCES]
        assert all(engine.runs_in_core(request, settings) for request in requests)
        in_python = [result.hypotheses for result in engine._search_in_python(requests, settings)]
        assert engine.run(requests, settings) == in_python, combination


def test_exact_ties_are_broken_by_token_id() -> None:
    network: Any = random_model(vocab_size=57, tied_embeddings="none", output_bias=True)
    with torch.no_grad():
        network.output.weight[10:30] = network.output.weight[10]
        network.output.bias[10:30] = 5.0
    engine = engine_of(network)
    for beam_size in (1, 4, 9):
        settings = DecodingConfig(beam_size=beam_size, max_length="6")
        requests = [Request(tuple(source), beam_size) for source in SOURCES]
        in_python = [result.hypotheses for result in engine._search_in_python(requests, settings)]
        assert engine.run(requests, settings) == in_python
    tied = [token for answer in in_python for each in answer for token in each.tokens if 10 <= token < 30]
    assert tied, "the tie was never reached"
    assert min(tied) == 10


@pytest.mark.parametrize("scale", [0.3, 0.05])
@pytest.mark.parametrize("gap", [0.0, 2e-7, 1e-6, 1e-5])
def test_greedy_search_without_scores_finds_the_same_tokens(scale: float, gap: float) -> None:
    """Logits that differ in their last bits may have equal log-probabilities: then the token id decides."""
    network: Any = random_model(vocab_size=57, tied_embeddings="none", output_bias=True, scale=scale)
    with torch.no_grad():
        network.output.weight[10:40] = network.output.weight[10]
        network.output.bias[10:40] = 2.0 + gap * torch.randperm(30, generator=torch.Generator().manual_seed(1))
    shortlists = [None, AllowedTokens((*range(10, 40, 3), 41, 55), 57)]
    is_tied = False
    for rule, least, shortlist in itertools.product(("beam_finished", "no_better_now"), (0, 4), shortlists):
        settings = DecodingConfig.model_validate(
            {"beam_size": 1, "stopping_rule": rule, "min_length": least, "max_length": "9"}
        )
        requests = [Request(tuple(source), constraints=Constraints(shortlist=shortlist)) for source in SOURCES]
        with_scores = engine_of(network).run(requests, settings)
        without = engine_of(network, token_log_probs=False).run(requests, settings)
        in_python = [result.hypotheses for result in engine_of(network)._search_in_python(requests, settings)]
        assert with_scores == in_python
        for [expected], [actual] in zip(with_scores, without, strict=True):
            assert (actual.tokens, actual.finish_reason) == (expected.tokens, expected.finish_reason)
            assert np.isnan(actual.score) == (rule == "beam_finished")
            assert bool(actual.token_log_probs) == (rule != "beam_finished")
            is_tied = is_tied or any(10 <= token < 40 for token in actual.tokens)
    assert is_tied, "no output has one of the tied tokens"


def test_both_searches_find_the_same_with_shortlists() -> None:
    engine = engine_of(random_model(vocab_size=57, scale=0.3))
    requests = [
        Request(tuple(source), 2, Constraints(shortlist=AllowedTokens((*source, 2, 40, 41, 42), 57)))
        for source in SOURCES
    ]
    for beam_size in (2, 5):
        settings = DecodingConfig(beam_size=beam_size, min_length=2)
        in_python = [result.hypotheses for result in engine._search_in_python(requests, settings)]
        assert engine.run(requests, settings) == in_python


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_both_searches_find_the_same_after_prompts(name: str) -> None:
    network = random_model(family="decoder", num_encoder_layers=4, vocab_size=57, scale=0.3, **LANGUAGE_MODELS[name])
    engine = engine_of(network, suppressed_tokens=(0, 1, 2))
    requests = [Request(tuple(prompt), 2, limit=11) for prompt in random_sequences([1, 2, 9, 9, 17], vocab_size=57)]
    for beam_size in (2, 4):
        settings = DecodingConfig(beam_size=beam_size)
        in_python = [result.hypotheses for result in engine._search_in_python(requests, settings)]
        assert engine.run(requests, settings) == in_python
    beyond = [Request(tuple(requests[2].source), limit=100)]
    assert not engine.runs_in_core(beyond[0], DecodingConfig(beam_size=1))
    assert engine.run(beyond, DecodingConfig(beam_size=1, min_length=80))[0][0].finish_reason in ("end", "length")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_torch_finds_the_same_outputs(name: str) -> None:
    network = random_model(scale=0.3, **TRANSLATORS[name])
    for options in ({"beam_size": 1}, {"beam_size": 4}, {"beam_size": 4, "coverage_penalty": 0.3}):
        settings = DecodingConfig.model_validate({"max_length": "input+5", **options})
        requests = [Request(tuple(source), min(2, settings.beam_size)) for source in SOURCES]
        native_results, torch_results = (
            each.run(requests, settings) for each in (engine_of(network), torch_engine_of(network))
        )
        for mine, other in zip(native_results, torch_results, strict=True):
            assert [each.tokens for each in mine] == [each.tokens for each in other]
            expected = [each.score for each in other]
            np.testing.assert_allclose([each.score for each in mine], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "sample", "sampling": {"temperature": 0.8, "top_k": 9, "seed": 4}},
        {"beam_size": 6, "beam_groups": 3},
        {"no_repeat_ngram_size": 2},
    ],
)
def test_modes_outside_of_the_core_do_not_depend_on_the_batch(options: dict[str, Any]) -> None:
    engine, settings = engine_of(random_model(vocab_size=57, scale=0.3)), DecodingConfig.model_validate(options)
    requests = [Request(tuple(source), constraints=Constraints(prefix=(7, 8))) for source in SOURCES]
    together = engine.run(requests, settings)
    assert [engine.run([request], settings)[0] for request in requests] == together
    assert all(answer[0].tokens[:2] == (7, 8) for answer in together)


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_same_bits_in_any_batch(mode: str, compute_type: Any) -> None:
    model = native(random_model(vocab_size=57, scale=0.3), compute_type)
    requests, settings = requests_in(mode)
    alone = [NativeEngine(model).run([request], settings)[0] for request in requests]
    order = np.random.default_rng(1).permutation(len(requests)).tolist()
    for threads in (1, 3):
        results = NativeEngine(model, threads).run([requests[index] for index in order], settings)
        assert results == [alone[index] for index in order]


def test_streams_end_with_the_best_output() -> None:
    engine, settings = engine_of(random_model(vocab_size=57, scale=0.3)), DecodingConfig(beam_size=3)
    request = Request(tuple(SOURCES[7]))
    steps, streamed, best = engine.stream(request, settings), [], None
    while best is None:
        try:
            streamed.append(next(steps))
        except StopIteration as done:
            best = done.value
    assert best == engine.run([request], settings)[0][0]
    assert all(best.tokens[: len(some)] == some for some in streamed)


def test_scores_and_encoders_agree_with_torch() -> None:
    network: Any = random_model()
    targets = [source[::-1] for source in SOURCES]
    native_results = NativeScoringEngine(native(network), threads=2).score(SOURCES, targets, attention_layer=2)
    torch_results = TorchScoringEngine(network).score(SOURCES, targets, attention_layer=2)
    for (mine, attention), (other, expected) in zip(native_results, torch_results, strict=True):
        assert attention is not None and expected is not None
        np.testing.assert_allclose(mine, other, atol=2e-5)
        np.testing.assert_allclose(attention, expected, atol=2e-5)
    for name, settings in ENCODERS.items():
        network = random_model(family="encoder", num_decoder_layers=4, **settings)
        mine_, other_ = NativeEncoderEngine(native(network), threads=2), TorchEncoderEngine(network)
        np.testing.assert_allclose(mine_.mean_states(SOURCES), other_.mean_states(SOURCES), atol=2e-5)
        np.testing.assert_allclose(mine_.pooled(SOURCES), other_.pooled(SOURCES), atol=2e-5)
        if name == "masked":
            places = [[0, len(source) - 1] for source in SOURCES]
            pairs = zip(mine_.masked_lm(SOURCES, places), other_.masked_lm(SOURCES, places), strict=True)
        elif name != "embedding":
            pairs = zip(mine_.logits(SOURCES), other_.logits(SOURCES), strict=True)
        for some, expected in pairs:
            np.testing.assert_allclose(some, expected, atol=2e-5)


def test_requests_that_were_cancelled_have_no_hypotheses() -> None:
    """In the core, outside of it, and with torch; also before words to include are searched for."""
    network: Any = random_model(vocab_size=57)
    cancelled, other, phrase = Cancellation(), Cancellation(), Constraints(include=LexicalConstraints(((9, 5),)))
    cancelled.cancel()
    engines: list[Engine] = [engine_of(network), torch_engine_of(network)]
    for engine in engines:
        for settings, batch_requests in (
            (DecodingConfig(), None),
            (DecodingConfig(no_repeat_ngram_size=3), None),
            (DecodingConfig(method="sample"), None),
            (DecodingConfig(beam_size=2, max_length="input+5"), phrase),
        ):
            requests = [Request(tuple(source), constraints=batch_requests, cancellation=other) for source in SOURCES]
            expected = constrained_decoding.decode(engine, requests, settings)
            requests[3] = replace(requests[3], cancellation=cancelled)
            answers = constrained_decoding.decode(engine, requests, settings)
            assert [index for index, answer in enumerate(answers) if not answer] == [3]
            for answer, before in zip(answers, expected, strict=True):
                assert [each.tokens for each in answer] in ([], [each.tokens for each in before])


def test_a_model_without_finite_probabilities_is_named() -> None:
    network: Any = random_model()
    with torch.no_grad():
        network.decoder.norm.weight[0] = float("nan")
    cases = [
        (True, DecodingConfig()),
        (True, DecodingConfig(no_repeat_ngram_size=3)),
        (False, DecodingConfig(beam_size=1)),
    ]
    for token_log_probs, settings in cases:
        engine = engine_of(network, token_log_probs=token_log_probs)
        with pytest.raises(NoOutputError, match="line 4: the model returns no finite probabilities"):
            engine.run([Request(tuple(SOURCES[2]), name="line 4")], settings)
