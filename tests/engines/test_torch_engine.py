"""The torch engine: order, limits, refusals, and the KV cache."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.requests import NoOutputError, Request
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.errors import DecodingError
from clearhead.model.decoder import Memory
from clearhead.model.transformer import Transformer
from tests.engines.small_models import END, PAD, START, VOCAB, engine, random_model, random_requests
from tests.engines.test_batch_independence import assert_same


def test_greedy_equals_a_loop_without_a_cache() -> None:
    model, settings = random_model(), DecodingConfig(beam_size=1, max_length="input+3")
    for request, [result] in zip(requests := random_requests(30), engine(model).run(requests, settings), strict=True):
        written = [START]
        while len(written) <= len(request.source) + 2 and written[-1] != END:
            with torch.no_grad():
                logits_V = model.logits(model(torch.tensor([request.source]), torch.tensor([written])))[0, -1]
            logits_V[[PAD, START]] = float("-inf")
            written.append(int(logits_V.argmax()))
        assert result.tokens == tuple(token for token in written[1:] if token != END)


@pytest.mark.parametrize("width", [1, 3])
def test_cached_steps_equal_one_long_step(width: int) -> None:
    model = random_model()
    src_NS = torch.randint(END + 1, VOCAB, (5, 7))
    src_NS[2:, 4:] = PAD
    tokens_RT = torch.randint(END + 1, VOCAB, (5 * width, 11))
    with torch.inference_mode():
        _, state = model.start(model.encode(src_NS), width)
        whole_RTV = model.step(tokens_RT, state).logits_RTV
        steps = []
        for position in range(11):
            step = model.step(tokens_RT[:, position : position + 1], state)
            state = step.state
            steps.append(step.logits_RTV)
    torch.testing.assert_close(torch.cat(steps, 1), whole_RTV, atol=1e-5, rtol=1e-5)


def test_selected_rows_continue_as_if_alone() -> None:
    model, width = random_model(), 3
    src_NS = torch.randint(END + 1, VOCAB, (5, 7))
    tokens_RT = torch.randint(END + 1, VOCAB, (15, 4))
    rows_R = torch.tensor([14, 12, 12, 1, 1, 0])  # of sentences 4 and 0
    next_R1 = torch.randint(END + 1, VOCAB, (6, 1))
    with torch.inference_mode():
        _, state = model.start(model.encode(src_NS), width)
        moved = model.reorder(model.step(tokens_RT, state).state, rows_R)
        found_R1V = model.step(next_R1, moved).logits_RTV
        _, fresh = model.start(model.encode(src_NS[[4, 0]]), width)
        expected_RTV = model.step(torch.cat((tokens_RT[rows_R], next_R1), 1), fresh).logits_RTV
    torch.testing.assert_close(found_R1V[:, 0], expected_RTV[:, -1], atol=1e-5, rtol=1e-5)


def test_answers_come_in_the_order_of_the_requests() -> None:
    model, settings = random_model(), DecodingConfig(beam_size=2, max_length="input+5")
    requests = random_requests(40)
    answers = engine(model, batch_tokens=64, threads=2).run(requests, settings)
    for request, answer in zip(requests, answers, strict=True):
        limits = [len(request.source) + 4]
        assert [each.tokens for each in answer] == [
            each.tokens
            for each in search(
                SearchBatch(TorchGenerator(model, PAD), [request.source], settings, limits, END, PAD, 1)
            )[0]
        ]
    assert engine(model).run([], settings) == []


def sources_read(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return a list to which every encoded batch of sources is appended."""
    encoded_sources, encode = list[Tensor](), model.encode

    def watched(src_NS: Tensor) -> Memory:
        encoded_sources.append(src_NS)
        return encode(src_NS)

    monkeypatch.setattr(model, "encode", watched)
    return encoded_sources


def test_sentences_of_similar_length_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    encoded_sources = sources_read(model, monkeypatch)
    requests = [Request((*[7] * length, END)) for length in (19, 27, 21) * 8]
    engine(model, batch_tokens=224).run(requests, DecodingConfig(beam_size=1, max_length="2"))
    assert sum(len(src_NS) for src_NS in encoded_sources) == 24
    assert all(src_NS.numel() <= 224 for src_NS in encoded_sources)
    # There are 24 sentences of 20, 22 and 28 tokens, so only batches at the boundaries are padded.
    assert sum(int((src_NS == PAD).sum()) for src_NS in encoded_sources) <= 52


def test_each_request_gets_as_many_hypotheses_as_it_asks_for() -> None:
    source = (7, 11, END)
    answers = engine(random_model()).run([Request(source, n) for n in (1, 3, 2)], DecodingConfig(beam_size=3))
    assert [len(each) for each in answers] == [1, 3, 2]
    assert_same(answers[0], answers[1][:1])
    assert_same(answers[2], answers[1][:2])


def test_limits_follow_the_settings_and_the_model() -> None:
    """With weights that never generate the end token, each output reaches its limit."""
    model = random_model(max_positions=13)
    with torch.no_grad():
        model.output.weight[END] = 0.0
    requests = [Request((*[7] * length, END)) for length in (1, 5, 12)]
    for max_length, expected in (("input+3", [4, 8, 13]), ("5", [5, 5, 5]), ("99", [13, 13, 13])):
        answers = engine(model).run(requests, DecodingConfig(beam_size=2, max_length=max_length))
        assert [len(answer[0].tokens) for answer in answers] == expected
        assert {answer[0].finish_reason for answer in answers} == {"length"}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((*[7] * 64, END)), r"sentence 2 has 65 tokens .* 1 to 64"),
        (Request(()), r"sentence 2 has 0 tokens"),
        (Request((VOCAB, END)), rf"sentence 2 has tokens 3 to {VOCAB}; expected 0 to {VOCAB - 1}"),
        (Request((7, END), n_best=4), r"sentence 2 asks for 4 hypotheses; expected 1 to decoding\.beam_size=3"),
    ],
)
def test_invalid_requests_are_refused_by_number(request_: Request, message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        engine(random_model()).run([Request((7, END)), request_], DecodingConfig(beam_size=3))


def test_decoding_in_the_middle_of_a_training_is_without_dropout() -> None:
    model, settings = random_model(), DecodingConfig(beam_size=1, max_length="input+5")
    requests = random_requests(10)
    expected = engine(model).run(requests, settings)
    assert engine(model.train()).run(requests, settings) == expected
    assert model.training


@pytest.mark.parametrize(("count", "beam", "most"), [(1000, 1, 4096), (1000, 4, 2048), (333, 4, 4096), (30, 1, 4096)])
def test_workers_finish_together(count: int, beam: int, most: int) -> None:
    requests, settings = random_requests(count), DecodingConfig(beam_size=beam)
    alone, shared = ([*engine(random_model(), most, n)._batches(requests, settings)] for n in (1, 2))
    for batches in (alone, shared):
        assert sorted(index for batch in batches for index in batch) == [*range(count)]
        inside = sorted([len(requests[index].source) for index in batch] for batch in batches)
        lengths = [length for batch in inside for length in batch]
        assert lengths == sorted(lengths), "sentences of similar length are in one batch"
        assert all(len(batch) * beam * len(requests[batch[-1]].source) <= most for batch in batches)
    assert len(shared) >= len(alone)
    if count * beam > 4 * 64:
        free = [0, 0]  # estimated end of each worker: the time of a sentence is proportional to rows and positions
        for batch in shared:
            free[free.index(min(free))] += len(batch) * (beam + 1) * len(requests[batch[-1]].source)
        assert max(free) < 1.1 * sum(free) / 2, "no worker waits long for the last batch"


@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 3}, {"method": "sample"}], ids=str)
def test_a_diverged_network_is_reported(changes: dict[str, Any]) -> None:
    model, settings = random_model(), DecodingConfig(max_length="7", **changes)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1e30)
    first, second = random_requests(2)
    for requests in ([first], [first, second]):
        with pytest.raises(NoOutputError, match="sentence 1: the model returns no finite probabilities"):
            engine(model).run(requests, settings)
    with pytest.raises(NoOutputError, match="line 7: the model"):
        engine(model).run([replace(first, name="line 7")], settings)
    with pytest.raises(NoOutputError):
        [*engine(model).stream(first, settings)]
