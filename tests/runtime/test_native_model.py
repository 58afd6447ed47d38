"""The core against the torch modules, and its own guarantees: same bits in any batch, on any number of threads."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.runtime import Cancellation, CoreSearch, NativeModel
from clearhead.runtime._core import allocated_bytes
from clearhead.runtime.native_model import ComputeType, CoreHypothesis
from tests.model.options import padded_layout
from tests.runtime.models import (
    ENCODERS,
    LANGUAGE_MODELS,
    TRANSLATORS,
    core_settings,
    native,
    random_model,
    random_sequences,
)

SOURCES = random_sequences([5, 17, 1, 33])
TARGETS = random_sequences([7, 3, 19, 1], seed=1)
TOLERANCE = 2e-5
COMPUTE_TYPES: tuple[ComputeType, ...] = ("float32", "int8")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", TRANSLATORS)
@torch.inference_mode()
def test_scores_and_attention_of_translators_are_those_of_torch(name: str) -> None:
    network: Any = random_model(**TRANSLATORS[name])
    start = network.config.decoder_start_id
    scores, attention = native(network).score(SOURCES, TARGETS, start, attention_layer=1)
    assert attention is not None
    for source, target, actual, weights_HTS in zip(SOURCES, TARGETS, scores, attention, strict=True):
        inputs = torch.tensor([[start, *target[:-1]]])
        state = network.start(network.encode(torch.tensor([source])), 1)[1]
        step = network.step(inputs, state, want_attention=True)
        expected = step.logits_RTV.log_softmax(-1)[0, torch.arange(len(target)), torch.tensor(target)]
        np.testing.assert_allclose(actual, expected.numpy(), atol=TOLERANCE, rtol=1e-5)
        np.testing.assert_allclose(weights_HTS, step.attention[1].cross_RHTS[0].numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.inference_mode()
def test_scores_of_language_models_are_those_of_torch(name: str) -> None:
    network: Any = random_model(family="decoder", num_encoder_layers=4, **LANGUAGE_MODELS[name])
    longest = random_sequences([network.config.max_positions + 1])[0]
    texts = [*(target for target in TARGETS if len(target) > 1), longest]
    scores, _ = native(network).score([text[:-1] for text in texts], [text[1:] for text in texts])
    for target, actual in zip(texts, scores, strict=True):
        log_probs_TV = network.logits(network(torch.tensor([target[:-1]]))).log_softmax(-1)[0]
        expected = log_probs_TV[torch.arange(len(target) - 1), torch.tensor(target[1:], dtype=torch.long)]
        np.testing.assert_allclose(actual, expected.numpy(), atol=TOLERANCE, rtol=1e-5)


@pytest.mark.parametrize("name", ENCODERS)
@torch.inference_mode()
def test_outputs_of_encoders_are_those_of_torch(name: str) -> None:
    network: Any = random_model(family="encoder", num_decoder_layers=4, **ENCODERS[name])
    model, head = native(network), network.config.head
    places = [[0, 3], [2, 16], [0], [1, 5, 32]]
    outputs: dict[str, Callable[[], Any]] = {
        "classification": lambda: model.class_logits(SOURCES),
        "token_classification": lambda: model.tag_logits(SOURCES),
        "masked_lm": lambda: model.masked_log_probs(SOURCES, places),
        "embedding": lambda: model.pooled(SOURCES),
    }
    actual = outputs[head]()
    for source, values, some in zip(SOURCES, actual, places, strict=True):
        ids = torch.tensor([source])
        expected = network(ids)[0]
        if head != "embedding":
            expected = network.logits(expected)
        if head == "masked_lm":
            expected = expected[some].log_softmax(-1)
        np.testing.assert_allclose(values, expected.numpy(), atol=TOLERANCE, rtol=1e-5)


@torch.inference_mode()
def test_mean_states_of_a_translators_encoder() -> None:
    network: Any = random_model()
    states, means = native(network).states(SOURCES), native(network).mean_states(SOURCES)
    for source, states_SD, mean_D in zip(SOURCES, states, means, strict=True):
        layout = padded_layout(len(source))
        expected_SD = network.encoder(network.source_embedding(torch.tensor([source]), layout), layout)[0][0]
        np.testing.assert_allclose(states_SD, expected_SD.numpy(), atol=TOLERANCE)
        np.testing.assert_allclose(mean_D, expected_SD.mean(0).numpy(), atol=TOLERANCE)


def search(
    model: NativeModel, sources: list[list[int]], search_settings: CoreSearch
) -> list[list[CoreHypothesis] | None]:
    return model.search(sources, [len(source) + 9 for source in sources], search_settings)


MANY = [[*source, 3] for source in random_sequences([*range(1, 30), 7, 7, 7], seed=4)]


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", ["paper", "post-norm", "t5", "learned"])
def test_a_sentence_has_the_same_bits_in_any_batch(name: str, beam_size: int, compute_type: Any) -> None:
    model = native(random_model(scale=0.3, **TRANSLATORS[name]), compute_type)
    alone = [search(model, [source], core_settings(beam_size))[0] for source in MANY]
    assert len({tuple(hypotheses[0].tokens) for hypotheses in alone if hypotheses}) > 5
    assert search(model, MANY, core_settings(beam_size)) == alone
    assert search(model, MANY, core_settings(beam_size, threads=3)) == alone
    assert search(model, MANY, core_settings(beam_size, batch_rows=2 * beam_size, threads=2)) == alone
    order = np.random.default_rng(0).permutation(len(MANY)).tolist()
    assert search(model, [MANY[i] for i in order], core_settings(beam_size)) == [alone[i] for i in order]


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_instruction_sets_with_fused_multiply_add_have_the_same_bits(
    compute_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearhead.runtime import _core

    fused = [isa for isa, is_supported in _core.instruction_sets().items() if is_supported and isa != "generic"]
    if len(fused) < 2:
        pytest.skip(f"this CPU has only {fused}")
    for name, network in every_model():
        results = []
        for isa in fused:
            monkeypatch.setenv("CLEARHEAD_ISA", isa)
            results.append(outputs_of(native(network, compute_type)))
        assert all(each == results[0] for each in results), name


def test_threads_share_a_model_but_not_a_state() -> None:
    model = native(random_model(scale=0.3))
    alone = search(model, MANY, core_settings())
    state = model.start(model.encode(SOURCES), len(SOURCES), 1)
    start = threading.Barrier(4)
    searches: list[Any] = []
    refused: list[str] = []

    def run() -> None:
        start.wait()
        searches.append(search(model, MANY, core_settings()))
        for _ in range(12):
            try:
                model.step(np.full((len(SOURCES), 1), 5), state)
            except ValueError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert searches == [alone] * 4
    assert {*refused} <= {"the state is in use by another thread"}


def every_model() -> Iterator[tuple[str, Any]]:
    """Yield a model of every kind with its name."""
    for name, shape in TRANSLATORS.items():
        yield name, random_model(scale=0.3, **shape)
    for name, shape in LANGUAGE_MODELS.items():
        yield name, random_model(scale=0.3, family="decoder", num_encoder_layers=4, **shape)
    for name, shape in ENCODERS.items():
        yield name, random_model(scale=0.3, family="encoder", num_decoder_layers=4, **shape)


def outputs_of(model: NativeModel) -> list[Any]:
    """Return everything that a model computes, as bytes."""
    if model.config.family == "encoder":
        outputs = [*model.states(SOURCES), model.mean_states(SOURCES), model.pooled(SOURCES)]
        if model.config.head == "masked_lm":
            outputs += model.masked_log_probs(SOURCES, [[0]] * len(SOURCES))
        if model.config.head == "classification":
            outputs.append(model.class_logits(SOURCES))
        if model.config.head == "token_classification":
            outputs += model.tag_logits(SOURCES)
        return [*map(bytes, outputs)]
    if model.config.family == "decoder":
        scores = model.score(TARGETS, TARGETS)[0]
        return [search(model, [source[:9] for source in MANY], core_settings()), [*map(bytes, scores)]]
    scores, attention = model.score(SOURCES, TARGETS, 2, attention_layer=0)
    return [search(model, MANY, core_settings()), [*map(bytes, scores)], [*map(bytes, attention or [])]]


def test_generic_kernels_agree_with_the_fastest_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_model(scale=0.3)
    fastest = native(network).score(SOURCES, TARGETS, 2)[0]
    monkeypatch.setenv("CLEARHEAD_ISA", "generic")
    for actual, expected in zip(native(network).score(SOURCES, TARGETS, 2)[0], fastest, strict=True):
        np.testing.assert_allclose(actual, expected, atol=TOLERANCE)


def test_int8_is_close_to_float32() -> None:
    network = random_model(**TRANSLATORS["wide"])
    exact, rounded = (native(network, kind).score(SOURCES, TARGETS, 2)[0] for kind in COMPUTE_TYPES)
    error = np.abs(np.concatenate(exact) - np.concatenate(rounded))
    assert 0 < error.mean() < 0.1


def test_encoders_have_the_same_bits_in_any_batch_and_on_threads() -> None:
    network = random_model(family="encoder", num_decoder_layers=4, **ENCODERS["bert-classifier"])
    model, many = native(network), MANY * 9
    together = model.class_logits(many, threads=3)
    assert (together == np.concatenate([model.class_logits([source]) for source in many])).all()
    assert (model.mean_states(many, threads=2)[5] == model.mean_states([many[5]])[0]).all()


def test_steps_give_the_bits_of_forced_decoding() -> None:
    model = native(random_model())
    scores = model.score(SOURCES, TARGETS, 2)[0]
    state = model.start(model.encode(SOURCES), len(SOURCES), 1)
    tokens = np.full((len(SOURCES), 1), 2)
    for position in [0]:
        log_probs_RV = model.step(tokens, state).log_probs
        assert [log_probs_RV[row, target[position]] for row, target in enumerate(TARGETS)] == [
            s[position] for s in scores
        ]
    several = model.start(model.encode(SOURCES[:2]), 2, 1)
    inputs = np.array([[2, *target[:2]] for target in TARGETS[:2]])
    all_RTV = model.step(inputs, several, all_positions=True).log_probs
    for row, target in enumerate(TARGETS[:2]):
        assert [all_RTV[row, position, target[position]] for position in range(3)] == scores[row][:3].tolist()


def test_reordered_rows_continue_what_they_were() -> None:
    model = native(random_model())
    state = model.start(model.encode(SOURCES[:3]), 3, 1)
    model.step(np.full((3, 1), 2), state)
    model.reorder(state, np.array([0, 0, 1, 1, 2, 2]))
    model.step(np.array([[10], [11], [20], [21], [30], [31]]), state)
    model.reorder(state, np.array([1, 1, 4, 5]))  # sentence 1 leaves; sentence 0 continues row 1 twice
    actual = model.step(np.array([[12], [13], [32], [33]]), state, attention_layer=0)
    rows = [(0, [2, 11, 12]), (0, [2, 11, 13]), (2, [2, 30, 32]), (2, [2, 31, 33])]
    assert actual.cross_RHTS is not None
    for row, (sentence, inputs) in enumerate(rows):
        fresh = model.start(model.encode([SOURCES[sentence]]), 1, 1)
        expected = model.step(np.array([inputs]), fresh, attention_layer=0)
        assert (actual.log_probs[row] == expected.log_probs[0]).all()
        length = len(SOURCES[sentence])
        assert expected.cross_RHTS is not None
        assert (actual.cross_RHTS[row, :, 0, :length] == expected.cross_RHTS[0, :, -1]).all()


def test_a_shortlist_equals_a_smaller_vocabulary() -> None:
    model = native(random_model(scale=0.3))
    lists = [sorted({3, *source, 50, 60, 70}) for source in MANY]
    limits = [9] * len(MANY)
    results = model.search(MANY, limits, core_settings(), lists)
    assert [model.search([s], [9], core_settings(), [some])[0] for s, some in zip(MANY, lists, strict=True)] == results
    for source, some, outputs in zip(MANY, lists, results, strict=True):
        assert outputs
        best = outputs[0]
        assert {*best.tokens} <= {*some}
        state = model.start(model.encode([source]), 1, 1)
        model.restrict(state, [some])
        first = model.step(np.array([[2]]), state).log_probs[0]
        assert np.exp(first.astype(float)).sum() == pytest.approx(1, abs=1e-5)
        token = best.tokens[0] if best.tokens else 3
        assert first[some.index(token)] == np.float32(best.token_log_probs[0])


@pytest.mark.parametrize("beam_size", [4, 31])
def test_a_beam_wider_than_the_shortlist_has_only_its_tokens(beam_size: int) -> None:
    model = native(random_model())
    results = model.search(
        SOURCES, [2] * len(SOURCES), core_settings(beam_size, n_best=beam_size), [[3, 5]] * len(SOURCES)
    )
    for each in results:
        assert each is not None
        assert sorted(hypothesis.tokens for hypothesis in each) == [[], [5], [5, 5]]
        assert all(np.isfinite(hypothesis.score) and hypothesis.score > -1e3 for hypothesis in each)


def test_cancelled_sentences_leave_and_others_stay() -> None:
    model, cancellation, other = native(random_model()), Cancellation(), Cancellation()
    cancellation.cancel()
    limits = [30] * len(MANY)
    expected = model.search(MANY, limits, core_settings())
    cancellations = [cancellation if index in (1, 4) else other if index % 2 else None for index in range(len(MANY))]
    actual = model.search(MANY, limits, core_settings(), cancellations=cancellations)
    assert [index for index, each in enumerate(actual) if each is None] == [1, 4]
    assert all(each is None or each == expected[index] for index, each in enumerate(actual))
    late = [Cancellation(deadline=1e-9)] * len(MANY)
    assert model.search(MANY, limits, core_settings(), cancellations=late) == [None] * len(MANY)
    with pytest.raises(ValueError, match="a cancel flag for each source"):
        model.search(MANY, limits, core_settings(), cancellations=late[1:])


def test_sentences_that_were_cancelled_before_are_not_encoded() -> None:
    model, cancellation = native(random_model()), Cancellation()
    cancellation.cancel()
    model.search(SOURCES, [1] * 4, core_settings(), cancellations=[cancellation] * 4)
    before = allocated_bytes()
    model.search(SOURCES, [1] * 4, core_settings())
    assert allocated_bytes() > before, "buffers for encoded sources already existed"


def test_a_search_ends_when_it_is_cancelled() -> None:
    """Without cancellation the search of 200,000 sentences of 1,009 tokens each would take hours."""
    model, cancellation, count = native(random_model(max_positions=1009)), Cancellation(), 200_003
    model.search([[5, 3]], [2], core_settings())
    before, results = allocated_bytes(), list[list[CoreHypothesis] | None]()

    def run() -> None:
        search_settings = replace(core_settings(min_length=1009), penalties=np.ones(1010, np.float32))
        results.extend(
            model.search([[5, 3]] * count, [1009] * count, search_settings, cancellations=[cancellation] * count)
        )

    searching = threading.Thread(target=run, daemon=True)
    searching.start()
    while allocated_bytes() == before:  # until its KV cache is there
        assert searching.is_alive()
    cancellation.cancel()
    searching.join()
    assert results == [None] * count


def test_weights_that_are_no_numbers_give_no_hypotheses() -> None:
    for kind in COMPUTE_TYPES:
        network: Any = random_model()
        with torch.no_grad():
            network.decoder.layers[0].feed_forward.w1.weight[3, 5] = float("nan")
        assert native(network, kind).search([[5, 3]], [4], core_settings()) == [[]]


def test_tied_embeddings_are_prepared_once() -> None:
    from clearhead.runtime import _core

    def held(**options: Any) -> int:
        network = random_model(vocab_size=4001, model_dim=96, num_heads=3, **options)
        before = _core.allocated_bytes()
        model = native(network)
        size = _core.allocated_bytes() - before
        assert model is not None
        return size

    table = 4001 * 96 * 4
    assert held(tied_embeddings="none") - held(tied_embeddings="all") >= 2 * table
