"""The CTranslate2 engine behind prompts: what the torch engine writes, or refused by name."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.decoding.requests import Constraints, Request
from clearhead.decoding.search import run_search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.ctranslate2_engine import CTranslate2Engine
from clearhead.engines.ctranslate2_models import Vocabulary
from clearhead.engines.torch_engine import TorchEngine
from clearhead.engines.torch_generator import TorchGenerator
from clearhead.errors import DecodingError
from clearhead.interop.ctranslate2 import convert
from clearhead.model.language import LanguageModel

VOCAB, START, END, CONTEXT = 101, 2, 3, 41
PIECES = [f"piece{index}" for index in range(VOCAB)]
NEVER = [0, 1, START]
NEAR_TIE = 5e-3  # in log-probability


@pytest.fixture(scope="module", params=["rotary", "learned"])
def trained(request: pytest.FixtureRequest) -> LanguageModel:
    """Taught to count upwards, in steps of 1 to 3 that stay in doubt, and to end sometimes."""
    torch.manual_seed(7)
    config = ModelConfig(family="decoder", num_decoder_layers=2, model_dim=24, feed_forward_dim=37, num_heads=3,
    dropout=0.0,
                         vocab_size=VOCAB, max_positions=CONTEXT, positions=request.param)  # fmt: skip
    model = LanguageModel(config).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        steps = torch.randint(1, 4, (32, 14)).cumsum(1) + torch.randint(0, 50, (32, 1))
        ids_NT = steps % (VOCAB - 4) + 4
        ids_NT[torch.rand(ids_NT.shape) < 0.08] = END
        logits_NTV = model.logits(model(ids_NT[:, :-1]))
        loss = F.cross_entropy(logits_NTV.flatten(0, 1), ids_NT[:, 1:].flatten(), label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


@pytest.fixture
def fast(trained: LanguageModel, tmp_path: Path) -> CTranslate2Engine:
    convert(trained, Vocabulary(PIECES), tmp_path)
    return CTranslate2Engine(
        tmp_path, trained.config, Vocabulary(PIECES), threads=1, batch_tokens=512, suppressed_tokens=NEVER
    )


def exact(model: LanguageModel) -> TorchEngine:
    return TorchEngine(model, END, 0, VOCAB, CONTEXT, threads=1, is_prompted=True, suppressed_tokens=NEVER)


def prompts(count: int, n_best: int = 1, limit: int = 15) -> list[Request]:
    draw = random.Random(3)
    sources = [tuple(draw.randrange(END + 1, VOCAB) for _ in range(draw.randint(1, 7))) for _ in range(count)]
    return [Request(source, n_best, Constraints(prompt=source), limit=limit) for source in sources]


def margin(model: LanguageModel, request: Request, settings: DecodingConfig) -> float:
    """How close the closest decision of our own search was, in log-probability."""
    job = SearchBatch(
        TorchGenerator(model, 0), [request.source], settings, [15], END, 0, request.n_best, suppressed_tokens=NEVER
    )
    return run_search(job)[0].margin


@pytest.mark.parametrize("beam", [1, 4])
def test_prompts_are_continued_as_by_the_torch_engine(
    beam: int, trained: LanguageModel, fast: CTranslate2Engine
) -> None:
    settings, asked = DecodingConfig(beam_size=beam), prompts(300)
    ours, theirs = exact(trained).run(asked, settings), fast.run(asked, settings)
    different = [place for place in range(300) if ours[place][0].tokens != theirs[place][0].tokens]
    print(f"beam {beam}: {len(different)} of 300 differ from the torch engine")
    assert len(different) <= 2
    assert all(margin(trained, asked[place], settings) < NEAR_TIE for place in different)
    for [mine], [other] in zip(ours, theirs, strict=True):
        if mine.tokens == other.tokens:
            assert other.finish_reason == mine.finish_reason
            assert other.token_log_probs == pytest.approx(mine.token_log_probs, abs=1e-4)
            assert (other.score, other.log_prob) == pytest.approx((mine.score, mine.log_prob), abs=1e-4)
    assert {mine.finish_reason for [mine] in ours} == {"end", "length"}


@pytest.mark.parametrize("norm", [{"length_penalty": 1.3}, {"length_penalty_form": "none"}])
def test_the_n_best(norm: dict[str, Any], trained: LanguageModel, fast: CTranslate2Engine) -> None:
    settings, asked = DecodingConfig.model_validate({"beam_size": 4, **norm}), prompts(60, 3)
    ours, theirs = exact(trained).run(asked, settings), fast.run(asked, settings)
    different = [
        request
        for request, mine, other in zip(asked, ours, theirs, strict=True)
        if [each.tokens for each in mine] != [each.tokens for each in other]
    ]
    print(f"{norm}: {len(different)} of 60 lists of three differ")
    assert len(different) <= 8, "what is never written has up to 2 % of the probability here, which is shared there"
    assert all(margin(trained, request, settings) < NEAR_TIE for request in different)


def test_the_longest_that_fits(trained: LanguageModel, fast: CTranslate2Engine) -> None:
    """The last token is not read: behind 5 pieces there is room for 37 of 41."""
    settings, source = DecodingConfig(beam_size=2), (7, 8, 9, 10, 11)
    [[mine]], [[other]] = (engine.run([Request(source, limit=37)], settings) for engine in (exact(trained), fast))
    assert mine.tokens == other.tokens
    assert other.token_log_probs == pytest.approx(mine.token_log_probs, abs=1e-4)
    with pytest.raises(DecodingError, match=r"its 5 pieces and 38 more do not fit into the 41 .* max_tokens to 37"):
        fast.run([Request(source, limit=38)], settings)


@pytest.mark.parametrize(
    ("settings", "asked", "named"),
    [
        ({"method": "sample"}, {}, r"cannot honour decoding\.method;"),
        ({"sampling": {"stop": "x"}}, {}, r"cannot honour decoding\.sampling\.stop;"),
        ({"min_length": 3}, {}, r"cannot honour decoding\.min_length;"),
        ({}, {"is_stopped": bool}, "cannot honour is_stopped;"),
        ({}, {"prefix": (7,)}, "cannot honour prefix;"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(
    settings: dict[str, Any], asked: dict[str, Any], named: str, fast: CTranslate2Engine
) -> None:
    with pytest.raises(DecodingError, match=named):
        fast.run([Request((7, 8), constraints=Constraints(**asked), limit=5)], DecodingConfig.model_validate(settings))


def test_how_to_draw_does_not_matter_where_nothing_is_drawn(fast: CTranslate2Engine) -> None:
    drawn = {"temperature": 0.5, "max_tokens": 9, "add_start_token": False}
    assert fast.unsupported(DecodingConfig.model_validate({"sampling": drawn})) == []
    assert "decoding.sampling.temperature" in fast.unsupported(
        DecodingConfig.model_validate({"method": "sample", "sampling": drawn})
    )
