"""Encoders run by torch, row by row against the network itself."""

from typing import Any

import numpy as np
import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.model.registry import build_model
from tests.model.options import padded_layout

ROWS = [[2, 5, 7, 11, 3], [2, 3], [2, 13, 3], [2, 17, 19, 23, 29, 31, 3], [2, 8, 3]]


def network(head: str, **changes: Any) -> Any:
    torch.manual_seed(3)
    shape = {
        "family": "encoder",
        "vocab_size": 37,
        "model_dim": 22,
        "num_heads": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "num_labels": 5,
    }
    return build_model(ModelConfig(**(shape | {"head": head} | changes)))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def alone(rows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor([row]) for row in rows]


@pytest.mark.parametrize("batch_tokens", [1, 12, 1000])
def test_logits_are_those_of_each_row_alone(batch_tokens: int) -> None:
    for head, shape in (("classification", lambda row: (5,)), ("token_classification", lambda row: (len(row), 5))):
        model = network(head)
        assert model.training
        result = TorchEncoderEngine(model, batch_tokens).logits(ROWS)
        assert model.training, "training mode is restored"
        assert [row_logits.shape for row_logits in result] == [shape(row) for row in ROWS]
        model.eval()
        for row_logits, ids_1S in zip(result, alone(ROWS), strict=True):
            np.testing.assert_allclose(row_logits, model.logits(model(ids_1S))[0].detach().numpy(), atol=1e-5)


def test_vectors_are_pooled_and_mean_states_over_real_positions() -> None:
    model = network("embedding", pooling="first", pooler=True).eval()
    engine = TorchEncoderEngine(model, 12)
    for number, ids_1S in enumerate(alone(ROWS)):
        read = model.backbone(ids_1S)
        np.testing.assert_allclose(engine.pooled(ROWS)[number], read.pooled_BD[0].detach().numpy(), atol=1e-5)
        expected_D = read.states_BSD[0].mean(0).detach().numpy()
        np.testing.assert_allclose(engine.mean_states(ROWS)[number], expected_D, atol=1e-5)


def test_mean_states_of_a_translator_are_those_of_its_encoder() -> None:
    model = network("generation", family="transformer").eval()
    vectors_ND = TorchEncoderEngine(model, 12).mean_states(ROWS)
    for vector_D, ids_1S in zip(vectors_ND, alone(ROWS), strict=True):
        layout = padded_layout(ids_1S.shape[1])
        states_1SD, _ = model.encoder(model.source_embedding(ids_1S, layout), layout)
        np.testing.assert_allclose(vector_D, states_1SD[0].mean(0).detach().numpy(), atol=1e-5)


def test_masked_positions_keep_their_order() -> None:
    model = network("masked_lm").eval()
    positions = [[1, 3], [0], [], [5, 6], [2]]
    result = TorchEncoderEngine(model, 12).masked_lm(ROWS, positions)
    for log_probs_MV, row_positions, ids_1S in zip(result, positions, alone(ROWS), strict=True):
        assert log_probs_MV.shape == (len(row_positions), 37)
        expected_SV = model.logits(model(ids_1S))[0].log_softmax(-1).detach().numpy()
        np.testing.assert_allclose(log_probs_MV, expected_SV[row_positions], atol=1e-5)


def test_no_rows_give_no_results() -> None:
    engine = TorchEncoderEngine(network("classification"))
    assert engine.logits([]) == [] and engine.mean_states([]).shape == (0, 22)
