"""The adapter of torch modules: what it returns, and that returning only the best tokens changes nothing."""

import numpy as np
import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.decoding.search import search
from clearhead.decoding.search_batch import SearchBatch
from clearhead.engines.torch_forward import TorchGenerator
from tests.engines.small_models import END, PAD, START, VOCAB, random_model, random_requests

torch.set_num_threads(1)


@pytest.mark.parametrize("all_positions", [False, True])
def test_steps_return_log_probabilities(all_positions: bool) -> None:
    model, sources = random_model(), [(7, 9, 11, END), (13, END)]
    generator = TorchGenerator(model, PAD)
    first_RT, state = generator.start(generator.encode(sources), 3)
    assert first_RT.tolist() == [[START]] * 6
    tokens_RT = np.concatenate((first_RT, np.full((6, 2), 17)), 1)
    step = generator.step(tokens_RT, state, want_attention=True, all_positions=all_positions)
    src_NS = torch.tensor([[7, 9, 11, END], [13, END, PAD, PAD]])
    with torch.no_grad():
        expected_NTV = model.logits(model(src_NS, torch.tensor([[START, 17, 17]] * 2))).log_softmax(-1)
    expected_RTV = expected_NTV.repeat_interleave(3, 0).numpy()
    np.testing.assert_allclose(step.log_probs_RTV, expected_RTV if all_positions else expected_RTV[:, 2:], atol=1e-5)
    assert step.log_probs_RTV.dtype == np.float32
    assert step.cross_RHTS is not None and step.cross_RHTS.shape == (6, 3, 3, 4)
    np.testing.assert_allclose(step.cross_RHTS.sum(-1), 1, atol=1e-5)
    assert np.abs(step.cross_RHTS[3:, :, :, 2:]).max() == 0, "padding is not attended to"


@pytest.mark.parametrize(
    "settings",
    [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 3, "min_length": 6}, {"beam_size": 4, "beam_groups": 2}],
)
def test_transferring_only_the_best_tokens_changes_nothing(settings: dict[str, int]) -> None:
    decoding, model = DecodingConfig.model_validate(settings), random_model()
    sources = [request.source for request in random_requests(12)]
    result = [
        search(
            SearchBatch(
                TorchGenerator(model, PAD, transfers_all=transfers_all), sources, decoding, [9] * 12, END, PAD,
                decoding.beam_size,
            )
        )
        for transfers_all in (True, False)
    ]  # fmt: skip
    assert result[0] == result[1]


def test_only_the_best_tokens_are_transferred() -> None:
    generator = TorchGenerator(random_model(), PAD, transfers_all=False)
    first_RT, state = generator.start(generator.encode([(7, END)]), 1)
    whole = TorchGenerator(random_model(), PAD)
    expected_V = whole.step(first_RT, whole.start(whole.encode([(7, END)]), 1)[1]).log_probs_RTV[0, 0]
    step = generator.step(first_RT, state, num_best=5)
    assert step.tokens_RK is not None and step.log_probs_RTV.shape == (1, 1, 5)
    assert step.tokens_RK[0].tolist() == sorted(np.argsort(-expected_V)[:5].tolist())
    assert (step.log_probs_RTV[0, 0] == expected_V[step.tokens_RK[0]]).all()
    assert len(expected_V) == VOCAB
