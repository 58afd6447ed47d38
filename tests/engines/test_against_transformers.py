"""Search against `transformers`' `generate` on the same weights and with the same settings."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.decoding.logits_rules import TokenAutomaton
from clearhead.decoding.requests import Constraints, Hypothesis
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.model.transformer import Transformer
from tests.model.test_against_transformers import V, copy, ids, t5_links, t5_pair

PAD, START, END = 0, 2, 3
NEW = 13
NUM = 5


@pytest.fixture(scope="module")
def pair() -> tuple[Transformer, Any]:
    """Return a T5 and its reference."""
    torch.manual_seed(3)
    model, reference = t5_pair("1.1")
    copy(model, reference, t5_links(model, reference))
    with torch.no_grad():
        for weight in (model.output.weight, reference.lm_head.weight):
            weight.mul_(0.3)
            weight[END] *= 0.3
    return model, reference


def sources() -> Tensor:
    """Return sources of different lengths, each with its end token."""
    src_NS = ids(NUM, 7)
    src_NS[2:, 5:] = PAD
    src_NS[:2, -1] = src_NS[2:, 4] = END
    return src_NS


def unpadded(src_NS: Tensor) -> list[list[int]]:
    return [[token for token in row if token != PAD] for row in src_NS.tolist()]


def generate_with_transformers(
    model: Any, src_NS: Tensor, beam: int, prefix: tuple[int, ...] = (), **options: Any
) -> list[list[int]]:
    """Return the outputs of `generate`, without start, end and padding."""
    start_NP = torch.tensor([[START, *prefix]] * NUM)
    found_NT = model.generate(
        input_ids=src_NS, attention_mask=(src_NS != PAD).long(), decoder_input_ids=start_NP, num_beams=beam,
        do_sample=False, max_new_tokens=NEW - len(prefix), length_penalty=0.0, early_stopping=beam > 1,
        suppress_tokens=[PAD, START], eos_token_id=END, pad_token_id=PAD, use_cache=False, **options,
    )  # fmt: skip
    rows = [row.tolist()[1:] for row in found_NT]
    return [row[: row.index(END)] if END in row else [token for token in row if token != PAD] for row in rows]


def generate(
    model: Transformer, src_NS: Tensor, beam: int, search_constraints: Constraints | None = None, **options: Any
) -> list[Hypothesis]:
    decoding = DecodingConfig.model_validate({"beam_size": beam, "length_penalty_form": "none", **options})
    constraints = [search_constraints] * NUM if search_constraints else []
    return [
        each[0]
        for each in search(
            SearchBatch(
                TorchGenerator(model, PAD), unpadded(src_NS), decoding, [NEW] * NUM, END, PAD, 1, None, constraints
            )
        )
    ]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("options", "reference_options"),
    [
        ({}, {}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
        ({"min_length": 9}, {"min_new_tokens": 9}),
        ({"min_length": 6, "no_repeat_ngram_size": 3}, {"min_new_tokens": 6, "no_repeat_ngram_size": 3}),
    ],
)
def test_outputs_equal_transformers(
    pair: tuple[Transformer, Any], beam: int, options: dict[str, Any], reference_options: dict[str, Any]
) -> None:
    src_NS = sources()
    expected = generate_with_transformers(pair[1], src_NS, beam, **reference_options)
    assert [list(each.tokens) for each in generate(pair[0], src_NS, beam, **options)] == expected


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_after_a_prefix_equal_transformers(pair: tuple[Transformer, Any], beam: int) -> None:
    src_NS, prefix = sources(), (7, 11, 5)
    result = generate(pair[0], src_NS, beam, Constraints(prefix))
    assert [list(each.tokens) for each in result] == generate_with_transformers(pair[1], src_NS, beam, prefix)
    assert all(len(each.token_log_probs) == len(each.tokens) + (each.finish_reason == "end") for each in result)


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_without_excluded_words_equal_transformers(pair: tuple[Transformer, Any], beam: int) -> None:
    """Both searches exclude words with one segmentation, which may begin anywhere."""
    src_NS = sources()
    baseline = generate(pair[0], src_NS, beam)
    banned = [[baseline[0].tokens[0]], list(baseline[1].tokens[1:3]), list(baseline[2].tokens[:3])]
    constraints = Constraints(exclude=tuple(_only(word) for word in banned))
    result = generate(pair[0], src_NS, beam, constraints)
    assert [list(each.tokens) for each in result] == generate_with_transformers(
        pair[1], src_NS, beam, bad_words_ids=banned
    )
    assert result != baseline


def _only(word: list[int]) -> TokenAutomaton:
    go_on = tuple({word[position]: position + 1} for position in range(len(word)))
    return TokenAutomaton(len(word), go_on, {}, {word[0]: (1,)}, frozenset(range(V)))
