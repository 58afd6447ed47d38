"""Dropout masks from random bytes: rate, mean, seeds and gradients."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from clearhead.kernels import dropout_seed, replay_dropout
from clearhead.kernels.dropout_masks import keep_mask
from clearhead.model.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_the_rate(rate: float) -> None:
    with dropout_seed(1, 2, 3):
        mask = keep_mask(torch.Size((1009, 499)), rate)
    assert mask.mean().item() == pytest.approx(1.0, abs=0.01)
    assert (mask == 0).float().mean().item() == pytest.approx(round(rate * 256) / 256, abs=0.003)


def test_dropout_is_a_pure_function_of_its_seed() -> None:
    def draw(*words: int) -> torch.Tensor:
        with dropout_seed(*words):
            return torch.cat([keep_mask(torch.Size((7,)), 0.5) for _ in range(9)])

    assert torch.equal(draw(1, 2), draw(1, 2))
    assert not torch.equal(draw(1, 2), draw(1, 3))
    assert not torch.equal(draw(1, 2), draw(2, 2))


def test_dropped_sum_and_its_gradient() -> None:
    dropout = Dropout(0.5)
    skip, x = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    with dropout_seed(4):
        mask = keep_mask(x.shape, 0.5)
    with dropout_seed(4):
        total = dropout.add(skip, x)
    torch.testing.assert_close(total, skip + x * mask)
    total.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, mask)
    torch.testing.assert_close(skip.grad, torch.ones(5, 7))
    dropout.eval()
    torch.testing.assert_close(dropout.add(skip, x), skip + x)
    assert dropout(x) is x


def test_dropout_outside_a_seed_follows_torch() -> None:
    torch.manual_seed(5)
    first = nn.Sequential(Dropout(0.5))(torch.ones(101))
    assert 0 < int((first == 0).sum()) < 101
    for seed, is_same in ((5, True), (6, False)):
        torch.manual_seed(seed)
        assert torch.equal(Dropout(0.5)(torch.ones(101)), first) is is_same


def test_dropout_keeps_the_type_and_takes_any_rate() -> None:
    x = torch.ones(101, dtype=torch.bfloat16)
    for rate in (0.3, 0.999):
        dropout = Dropout(rate)
        assert dropout(x).dtype == dropout.add(x, x).dtype == torch.bfloat16
        assert torch.isfinite(dropout(x)).all()


def test_replayed_masks_are_equal_with_and_without_a_seed() -> None:
    for seed in (nullcontext(), dropout_seed(7)):
        with seed:
            first, again = replay_dropout()
            masks = []
            for context in (first, again):
                with context:
                    masks.append(torch.stack([keep_mask(torch.Size((31,)), 0.5) for _ in range(3)]))
        assert torch.equal(*masks)
