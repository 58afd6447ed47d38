"""Forced decoding by torch, pair by pair against the network itself."""

import numpy as np
import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.engines import torch_forward
from clearhead.engines.torch_forward import TorchScoringEngine
from clearhead.model.registry import build_model

SOURCES = [[5, 7, 11, 3], [3], [13, 17, 3], [19, 23, 29, 31, 8, 9, 3]]
TARGETS = [[4, 3], [6, 10, 12, 3], [3], [14, 15, 3]]


@pytest.mark.parametrize("max_numbers", [1, 1 << 24], ids=["alone", "together"])
@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_scores_are_those_of_each_pair_alone(family: str, max_numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    monkeypatch.setattr(torch_forward, "MAX_NUMBERS", max_numbers)
    sizes = {"num_heads": 2, "num_decoder_layers": 3} if family == "transformer" else {}
    network = build_model(ModelConfig(family=family, vocab_size=37, model_dim=22, num_encoder_layers=1, **sizes))
    layer = 1 if family == "transformer" else 0
    result = TorchScoringEngine(network).score(SOURCES, TARGETS, layer)
    without = TorchScoringEngine(network).score(SOURCES, TARGETS)
    assert network.training, "training mode is restored"
    network.eval()
    for source, target, (log_probs_T, weights_HTS), (again_T, none) in zip(
        SOURCES, TARGETS, result, without, strict=True
    ):
        inputs_1T = torch.tensor([[network.config.decoder_start_id, *target[:-1]]])
        _, state = network.start(network.encode(torch.tensor([source])), 1)
        step = network.step(inputs_1T, state, want_attention=True)
        expected_TV = step.logits_RTV[0].log_softmax(-1).detach().numpy()
        expected_T = expected_TV[np.arange(len(target)), target]
        np.testing.assert_allclose(log_probs_T, expected_T, atol=1e-5)
        np.testing.assert_allclose(again_T, expected_T, atol=1e-5)
        assert none is None and weights_HTS is not None
        np.testing.assert_allclose(weights_HTS, step.attention[layer].cross_RHTS[0].detach().numpy(), atol=1e-5)
