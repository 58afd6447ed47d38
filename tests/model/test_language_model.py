"""The decoder-only language model: packed documents, prompts, rows that move, tied tables."""

from typing import Any

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_forward import TorchGenerator
from clearhead.model.language_model import LanguageModel
from clearhead.model.positions import positions_in_documents
from tests.model.options import POSITIONS, N, close, config, each_combination, ids, language_model, sources


@each_combination
@torch.inference_mode()
def test_documents_in_a_row_do_not_see_each_other(options: dict[str, Any]) -> None:
    model, first_N3, second_N5, third_N2 = language_model(options), ids(N, 3), ids(N, 5), ids(N, 2)
    documents_NT = torch.tensor([[4] * 3 + [9] * 5 + [1] * 2] * N)
    packed = model(torch.cat((first_N3, second_N5, third_N2), 1), documents_NT)
    close(packed, torch.cat((model(first_N3), model(second_N5), model(third_N2)), 1))


def test_positions_restart_with_each_document() -> None:
    documents = torch.tensor([[4, 4, 4, 9, 9, 1], [2, 7, 7, 7, 7, 7]])
    assert positions_in_documents(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]]


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_rows_of_the_language_model_are_reordered(positions: str) -> None:
    model, prompts_N3, width = language_model({"positions": positions}), ids(N, 3), 3
    first_R3, state = model.start(model.encode(prompts_N3), width)
    assert torch.equal(first_R3, prompts_N3[[0, 0, 0, 1, 1, 1]])
    state = model.step(first_R3, state).state
    tokens_RT, rows = ids(N * width, 2), torch.tensor([5, 3, 3])  # the first prompt leaves
    state = model.reorder(model.step(tokens_RT, state).state, rows)
    last = ids(3, 1)
    expected = model.logits(model(torch.cat((first_R3[rows], tokens_RT[rows], last), 1)))[:, -1:]
    close(model.step(last, state).logits_RTV, expected)


@torch.inference_mode()
def test_search_continues_a_prompt() -> None:
    model, prompts_N3 = language_model({"positions": "rotary"}), ids(N, 3)
    results = search(
        SearchBatch(
            TorchGenerator(model, 0), prompts_N3.tolist(), DecodingConfig(beam_size=1), [6] * N, eos_id=3, pad_id=0
        )
    )
    for prompt, [hypothesis] in zip(prompts_N3.tolist(), results, strict=True):
        written = list(prompt)
        while len(written) < 3 + 6 and written[-1] != 3:
            logits_V = model.logits(model(torch.tensor([written])))[0, -1]
            logits_V[0] = float("-inf")
            written.append(int(logits_V.argmax()))
        assert hypothesis.tokens == tuple(token for token in written[3:] if token != 3)


def test_prompts_of_several_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        language_model({}).encode(sources())


@pytest.mark.parametrize(("tied_embeddings", "tables"), [("all", 1), ("target", 1), ("none", 2)])
def test_output_of_the_language_model_is_tied_unless_separate(tied_embeddings: str, tables: int) -> None:
    model = LanguageModel(config(family="decoder", tied_embeddings=tied_embeddings))
    assert len({model.embedding.tokens.weight, model.output.weight}) == tables
