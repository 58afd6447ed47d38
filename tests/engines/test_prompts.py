"""Search with decoder-only models, against `transformers`, a slow loop and brute force, in any batch."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.decoding.grid_beam_search import LETTER, LexicalConstraints
from clearhead.decoding.logits_rules import TokenAutomaton, exact_tokens
from clearhead.decoding.penalties import normalized_score, sum_log_probs
from clearhead.decoding.requests import Constraints, Hypothesis, Request
from clearhead.decoding.sampling import gumbel, rank_tokens, sample_rng
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_engine import TorchEngine
from clearhead.interop.huggingface import gpt2
from clearhead.model.language_model import LanguageModel
from tests.decoding.table import END, PAD, START, TableGenerator
from tests.engines.test_batch_independence import assert_same
from tests.model.test_against_transformers import copy, pairs, whole

V, BEGIN, STOP = 31, 2, 3
SHAPE = {
    "family": "decoder", "num_decoder_layers": 2, "model_dim": 12, "feed_forward_dim": 17, "num_heads": 3,
    "vocab_size": V, "activation": "gelu_tanh", "positions": "learned", "max_positions": 29, "scale_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> tuple[LanguageModel, Any]:
    """Return a model and a GPT-2 with the same weights, whose outputs end sometimes."""
    torch.manual_seed(3)
    model = LanguageModel(ModelConfig.model_validate(SHAPE))
    make: Any = hf.GPT2LMHeadModel
    reference = make(
        hf.GPT2Config(vocab_size=V, n_positions=29, n_embd=12, n_layer=2, n_head=3, n_inner=17, bos_token_id=BEGIN,
                      eos_token_id=STOP)
    )  # fmt: skip
    copy(model, reference, pairs(model, reference, gpt2.GPT2.weight_mapping(whole("lm", SHAPE), ()).links))
    return model.eval(), reference.eval()


def writer(model: LanguageModel, context: int = 29, **options: Any) -> TorchEngine:
    """Return the engine that continues prompts; special tokens are 0 to 3."""
    return TorchEngine(model, STOP, 0, V, context, threads=1, is_prompted=True, suppressed_tokens=[0, 1, 2], **options)


def prompts(count: int, longest: int = 5) -> list[tuple[int, ...]]:
    draw = random.Random(5)
    return [tuple(draw.randrange(STOP + 1, V) for _ in range(draw.randint(1, longest))) for _ in range(count)]


def generate_with_transformers(model: Any, prompt: Sequence[int], **options: Any) -> list[int]:
    """Return the output of `generate` after a prompt, without the end token."""
    found_NT = model.generate(
        input_ids=torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False, max_new_tokens=11, suppress_tokens=[0, 1, 2], eos_token_id=STOP, pad_token_id=0, **options,
    )  # fmt: skip
    new: list[int] = found_NT[0, len(prompt) :].tolist()
    return new[: new.index(STOP)] if STOP in new else new


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("options", "reference_options"),
    [
        ({}, {}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),  # of the prompt too
        ({"min_length": 7}, {"min_new_tokens": 7}),
    ],
)
def test_continuations_equal_transformers(
    pair: tuple[LanguageModel, Any], beam: int, options: dict[str, Any], reference_options: dict[str, Any]
) -> None:
    requests = [Request(prompt, constraints=Constraints(prompt=prompt), limit=11) for prompt in prompts(12)]
    decoding = DecodingConfig.model_validate({"beam_size": beam, "length_penalty_form": "none", **options})
    actual = writer(pair[0]).run(requests, decoding)
    for request, [each] in zip(requests, actual, strict=True):
        expected = generate_with_transformers(
            pair[1], request.source, num_beams=beam, length_penalty=0.0, early_stopping=beam > 1, **reference_options
        )
        assert list(each.tokens) == expected
    assert options or beam == 1 or {each.finish_reason for [each] in actual} == {"end", "length"}


@pytest.mark.parametrize("context", [29, 9, 1])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_cached_and_sliding_search_equals_a_slow_loop(
    pair: tuple[LanguageModel, Any], context: int, temperature: float
) -> None:
    """With 20 tokens after a prompt, a context of 9 slides several times, to the last 4 tokens each time."""
    model, prompt = pair[0], (7,) if context == 1 else (7, 9, 12)
    decoding = DecodingConfig.model_validate(
        {"method": "sample", "sampling": {"temperature": temperature, "seed": 3}, "min_length": 20}
    )
    request = Request(prompt, constraints=Constraints(prompt=prompt, first_sample=2), limit=20)
    [[result]] = writer(model, context).run([request], decoding)
    rng, ids, slow, log_probs = sample_rng(3, 2, prompt), list(prompt), list[int](), list[float]()
    with torch.no_grad():
        for _ in range(20):
            ids = ids[-max(1, context // 2) :] if len(ids) > context else ids
            log_probs_V = model.logits(model(torch.tensor([ids])))[0, -1].log_softmax(-1)
            allowed_V = log_probs_V.index_fill(0, torch.tensor([0, 1, 2, STOP]), float("-inf"))
            noise_V = gumbel(rng, V) if temperature else np.zeros(V, dtype=np.float32)
            slow.append(int(rank_tokens(allowed_V.double().numpy(), decoding.sampling, noise_V)[0].argmax()))
            log_probs.append(float(log_probs_V[slow[-1]]))
            ids.append(slow[-1])
    assert list(result.tokens) == slow
    assert result.token_log_probs == pytest.approx(log_probs, abs=1e-4)


def test_a_long_prefix_slides_as_if_it_had_been_written(pair: tuple[LanguageModel, Any]) -> None:
    built, decoding, prompt = writer(pair[0], 9), DecodingConfig(beam_size=1, min_length=25), (7, 9)
    [[whole_]] = built.run([Request(prompt, limit=25)], decoding)
    [[forced]] = built.run([Request(prompt, constraints=Constraints(whole_.tokens[:17]), limit=25)], decoding)
    assert_same([forced], [whole_])


def test_the_only_token_of_a_prompt_may_be_generated_again() -> None:
    model = LanguageModel(ModelConfig.model_validate({**SHAPE, "max_positions": 8})).eval()
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.self_attention.output.weight.zero_()  # type: ignore[union-attr,operator]
            layer.feed_forward.w2.weight.zero_()  # type: ignore[union-attr,operator]
        model.embedding.positions.weight.zero_()  # type: ignore[union-attr]
    [[result]] = writer(model, 8).run([Request((7,), limit=4)], DecodingConfig(beam_size=1))
    assert result.tokens == (7, 7, 7, 7), (
        "the token that was read is the most probable one, because embeddings are tied"
    )


MODES: dict[str, tuple[dict[str, Any], Constraints, int]] = {
    "greedy": ({"beam_size": 1}, Constraints(), 1),
    "beam": ({"beam_size": 3}, Constraints(), 3),
    "groups": ({"beam_size": 4, "beam_groups": 2}, Constraints(), 4),
    "rules": (
        {"beam_size": 2, "no_repeat_ngram_size": 2, "min_length": 5},
        Constraints(exclude=(exact_tokens((14,)),)),
        2,
    ),
    "included": ({"beam_size": 2}, Constraints(include=LexicalConstraints(((7, 8), (20,)))), 2),
    "sample": ({"method": "sample", "sampling": {"seed": 3}}, Constraints(), 2),
    "filters": ({"method": "sample", "sampling": {"top_k": 9, "top_p": 0.8, "temperature": 0.7}}, Constraints(), 2),
    "stops": ({"beam_size": 3}, Constraints(is_stopped=lambda tokens: tokens[-1] in (5, 11, 17)), 3),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_any_batch(mode: str, pair: tuple[LanguageModel, Any]) -> None:
    """Prompts have several lengths; the context of 11 tokens slides."""
    options, asked_of_all, n_best = MODES[mode]
    decoding = DecodingConfig.model_validate(options)
    requests = [Request(prompt, n_best, asked_of_all, limit=15) for prompt in prompts(14)]
    alone = [writer(pair[0], 11).run([request], decoding)[0] for request in requests]

    @given(st.randoms(use_true_random=False), st.integers(2, 14), st.sampled_from([40, 8192]))
    @settings(max_examples=4, deadline=None)
    def check(rng: random.Random, count: int, batch_tokens: int) -> None:
        order = rng.sample(range(14), count)
        results = writer(pair[0], 11, batch_tokens=batch_tokens).run([requests[index] for index in order], decoding)
        for position, index in enumerate(order):
            assert_same(results[position], alone[index])

    check()
    written = {each.tokens for results in alone for each in results}
    assert len(written) > 8, "the outputs are too similar for this test"


@pytest.mark.parametrize("norm", ["none", "length"])
def test_stop_conditions_against_every_output(norm: str) -> None:
    """With an exhaustive beam, each output continues to its first token 4, to its end or to the limit."""
    table, limit = TableGenerator(6), 3
    decoding = DecodingConfig.model_validate(
        {"beam_size": 64, "length_penalty_form": norm, "stopping_rule": "cannot_improve"}
    )
    search_constraints = Constraints(is_stopped=lambda tokens: tokens[-1] == 4)
    [actual] = search(SearchBatch(table, [[9]], decoding, [limit], END, PAD, 64, constraints=[search_constraints]))
    expected = list[tuple[float, tuple[int, ...], str]]()
    for length in range(1, limit + 1):
        for tokens in itertools.product((END, 3, 4, 5), repeat=length):
            is_over = tokens[-1] in (END, 4) or length == limit
            if is_over and not {END, 4} & {*tokens[:-1]}:
                ends = tokens[-1] == END
                text = tokens[:-1] if ends else tokens
                score = normalized_score(sum_log_probs(table.score(9, text, ends)), length, decoding)
                expected.append((score, text, "end" if ends else "stop" if tokens[-1] == 4 else "length"))
    expected.sort(reverse=True)
    assert [(each.tokens, each.finish_reason) for each in actual] == [each[1:] for each in expected]
    assert [each.score for each in actual] == pytest.approx([each[0] for each in expected], abs=1e-5)
    assert START not in {token for each in actual for token in each.tokens}


def word_of(token: int, opening: frozenset[int]) -> TokenAutomaton:
    """Return a word of one token that may begin only after the tokens `opening`."""
    return TokenAutomaton(1, ({},), {}, {token: (1,)}, opening)


def best_of(search_constraints: Constraints, **options: Any) -> Hypothesis:
    [[hypothesis]] = search(
        SearchBatch(TableGenerator(7), [[9]], DecodingConfig.model_validate({"beam_size": 2, **options}), [4], END, PAD,
            constraints=[search_constraints])
    )  # fmt: skip
    return hypothesis


def test_rules_look_back_into_the_prompt() -> None:
    """The most probable first token is excluded only where it would complete a word that the prompt began."""
    unrestricted = best_of(Constraints())
    first = unrestricted.tokens[0]
    other = next(token for token in (3, 4, 5, 6) if token != first)
    assert best_of(Constraints(prompt=(other, first, other)), no_repeat_ngram_size=2).tokens[:1] != (first,)
    assert best_of(Constraints(prompt=(other, first)), no_repeat_ngram_size=2).tokens[:1] == (first,)
    word = word_of(first, frozenset({other}))
    assert best_of(Constraints(exclude=(word,), prompt=(other,))).tokens[:1] != (first,)
    assert best_of(Constraints(exclude=(word,), prompt=(first,))).tokens[:1] == (first,)


def test_no_word_begins_right_behind_a_letter_of_the_prompt() -> None:
    word = word_of(5, frozenset({6}))
    for lead, is_written in (((), True), ((LETTER,), False)):
        phrases = LexicalConstraints(((5,),), words=(word,), lead=lead)
        assert (phrases.bank((5,)) == 1) is is_written
        assert phrases.bank((6, 5)) == 1 and phrases.bank((3, 5)) == 0
        assert phrases.needed(()) == (1 if is_written else 2), "a separator is needed between the letter and the word"
