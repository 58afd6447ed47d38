"""Parts of the model, each compared with a formula or with torch."""

import math

import pytest
import torch

from clearhead.kernels import AttentionLayout
from clearhead.model.masks import document_mask, padding_mask
from clearhead.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from tests.model.options import padded_layout


@pytest.mark.parametrize("width", [10, 7], ids=["even", "odd"])
def test_sinusoids_follow_the_formula(width: int) -> None:
    table = sinusoids(13, width)
    for position in (0, 1, 12):
        for i in range(width):
            angle = position / 10000 ** (2 * (i // 2) / width)
            assert table[position, i] == pytest.approx(math.sin(angle) if i % 2 == 0 else math.cos(angle), abs=1e-6)


def test_sinusoids_of_an_offset_are_a_rotation() -> None:
    """PE(pos + k) is the same linear map of PE(pos) for every pos: a rotation of each sine-cosine pair."""
    table, offset = sinusoids(50, 6).double(), 9
    for pair in range(3):
        angle = offset / 10000 ** (2 * pair / 6)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double()
        both = table[:, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(both[:-offset] @ turn.T, both[offset:], atol=1e-6, rtol=0)


def test_positions_start_anywhere() -> None:
    for positions in (SinusoidalPositions(11, 6), LearnedPositions(11, 6)):
        torch.testing.assert_close(positions(padded_layout(5, start=3)), positions(padded_layout(11))[3:8])
    assert not SinusoidalPositions(11, 6).state_dict()


def test_masks_are_true_where_attention_is_allowed() -> None:
    assert padding_mask(torch.tensor([[5, 6], [7, 8]]), 0) is None
    allowed = padding_mask(torch.tensor([[5, 0], [7, 8]]), 0)
    assert allowed is not None and allowed.shape == (2, 1, 1, 2)
    assert allowed.flatten().tolist() == [True, False, True, True]
    causal_TS = AttentionLayout(padded_layout(2, start=2), padded_layout(4), is_causal=True).mask(2, 4)
    assert causal_TS is not None and causal_TS.tolist() == [[True, True, True, False], [True] * 4]
    assert document_mask(torch.tensor([[7, 7, 9]])).int().tolist() == [[[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]]
