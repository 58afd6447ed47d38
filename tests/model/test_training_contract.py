"""Training of every family: gradients of the kernels equal those of plain torch, and the loss falls.

B batch, S source length, T tokens, D model width
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.kernels import dropout_seed
from clearhead.model.loss import cross_entropy
from tests.model.contract_networks import (
    ALL,
    CAPTIONING,
    ENCODER_HEADS,
    ENCODERS,
    GENERATORS,
    PAD,
    SMALL,
    START,
    build,
    source,
)
from tests.model.options import with_random_weights

TRAINED: dict[str, dict[str, Any]] = {
    **ALL,
    **ENCODER_HEADS,
    "encoder, relative": {**ENCODERS["encoder"], "positions": "relative", "head": "classification", "num_labels": 7},
    "encoder, rotary": {**ENCODERS["encoder"], "positions": "rotary", "num_heads": 1, "head": "token_classification",
                        "num_labels": 7},
    "BERT, segments": ENCODER_HEADS["BERT, classification"],
    "decoder, documents": GENERATORS["decoder"],
    "transformer, images": CAPTIONING,
    "transformer, output bias": {"output_bias": True},
}  # fmt: skip


def states_and_loss(model: Any, name: str) -> tuple[Tensor, Tensor]:
    """Return the hidden states of the tokens of a batch with padding, and the training loss."""
    settings = TRAINED[name]
    ids_BS, tgt_BT = source(), source(length=5)
    inputs = torch.randn(3, 1, 6, 6) if "image_size" in settings else ids_BS
    if "head" not in settings:
        target_BT = tgt_BT
        if name == "decoder, documents":
            documents_BT = (torch.arange(6) > torch.tensor([[2], [3], [0]])).long()
            hidden_BTD, target_BT = model(ids_BS[:, :-1], documents_BT), ids_BS[:, 1:]
        elif name == "decoder":
            hidden_BTD, target_BT = model(ids_BS[:, :-1]), ids_BS[:, 1:]
        else:
            hidden_BTD = model(inputs, F.pad(tgt_BT, (1, -1), value=START))
        loss = cross_entropy(hidden_BTD, model.output.weight, target_BT, PAD, 0.1, model.output.bias)
        return hidden_BTD[target_BT != PAD], loss.smoothed
    if settings["head"] == "masked_lm":
        is_masked_BS = (torch.arange(7) % 2 == 0) & (ids_BS != PAD)
        hidden_D, target = model(ids_BS, is_masked_BS), ids_BS[is_masked_BS]
    elif settings["head"] == "token_classification":
        hidden_D, target = model(ids_BS)[ids_BS != PAD], ids_BS[ids_BS != PAD] % 7
    else:
        hidden_D, target = model(inputs), torch.arange(3)
        if name == "BERT, segments":
            segments_BS = (torch.arange(7) > torch.tensor([[2], [4], [0]])).long()
            hidden_D = model.dropout(model.backbone(ids_BS, segments_BS=segments_BS).pooled_BD)
    return hidden_D, F.cross_entropy(model.logits(hidden_D), target, reduction="sum", label_smoothing=0.1)


def train_once(model: Any, name: str) -> list[Tensor]:
    """Return the hidden states, the loss and the gradients of all weights; batch and dropout are the same each time."""
    torch.manual_seed(1)
    model.train().zero_grad()
    with dropout_seed(3):
        hidden_D, loss = states_and_loss(model, name)
        loss.backward()  # type: ignore[no-untyped-call]
    # The gradients of these biases are rounding: that of the keys changes no weight of attention, and a batch norm
    # subtracts what is added to all positions.
    cancelled: tuple[str, ...] = ("key.bias",)
    if TRAINED[name].get("norm") == "batch":
        cancelled += ("value.bias", "attention.output.bias", "feed_forward.w2.bias", "encoder.norm.bias")
    named = [(key, each.grad) for key, each in model.named_parameters() if not key.endswith(cancelled)]
    return [hidden_D.detach(), loss.detach(), *(grad.clone() for _, grad in named if grad is not None)]


def compare_with_plain_torch(model: Any, name: str) -> None:
    """Compare hidden states, loss and gradients with those of plain torch, with padding."""
    actual = train_once(model, name)
    with kernels.disabled():
        expected = train_once(model, name)
    assert len(actual) == len(expected)
    for record, second in zip(actual, expected, strict=True):
        torch.testing.assert_close(record, second, rtol=1e-5, atol=1e-5 * float(second.abs().max()))


@pytest.mark.parametrize("name", TRAINED)
def test_kernels_give_the_gradients_of_plain_torch(name: str) -> None:
    compare_with_plain_torch(with_random_weights(build(TRAINED[name], dropout=0.0)), name)


def is_always_padded(settings: dict[str, Any]) -> bool:
    """Return whether a network is trained with padding: decoder-only, recurrent, of images, or with batch norm."""
    config = ModelConfig(**{**SMALL, **settings})
    return not config.can_drop_padding or config.family not in ("transformer", "encoder")


@pytest.mark.parametrize("name", [name for name, settings in TRAINED.items() if is_always_padded(settings)])
def test_kernels_drop_what_plain_torch_drops(name: str) -> None:
    """A padding-free mask has other rows; with padding, all masks are equal."""
    model = with_random_weights(build(TRAINED[name], dropout=0.1))
    compare_with_plain_torch(model, name)
    without = train_once(with_random_weights(build(TRAINED[name], dropout=0.0)), name)
    assert not torch.allclose(train_once(model, name)[0], without[0], atol=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_the_loss_falls_on_a_toy(name: str) -> None:
    """Generators learn to copy; encoders to name the first token."""
    settings = ALL[name]
    model = build(settings, dropout=0.0, model_dim=44).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    ids_BS = torch.randint(4, 11, (32, 5), generator=torch.Generator().manual_seed(3))
    images_BCYX = F.one_hot(ids_BS[:, :1] - 4, 36).float().view(32, 1, 6, 6)
    losses = []
    for _ in range(60):
        if "head" in settings:
            logits = model.logits(model(images_BCYX if "image_size" in settings else ids_BS))
            target = ids_BS[:, 0] - 4
        elif name == "decoder":
            logits, target = model.logits(model(ids_BS[:, :-1])), ids_BS[:, 1:]
        else:
            logits, target = model.logits(model(ids_BS, F.pad(ids_BS, (1, -1), value=START))), ids_BS
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert min(losses[-5:]) < 0.6 * losses[0]
