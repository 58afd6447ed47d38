"""Training without padding against the same with it: states, gradients, and what becomes of rows nobody asked for."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import DataError
from clearhead.model import packed as packed_module
from clearhead.model import transformer as transformer_module
from clearhead.model.dropout import dropout_seed
from clearhead.model.linear import GRAIN, WIDE
from clearhead.model.packed import Packed, can_pack
from clearhead.model.short_attention import LONGEST, REGISTER, behind_each_other
from clearhead.model.transformer import Transformer
from tests.model.options import COMBINATIONS, H, T, config, ids, transformer

PAD = 0
LIKE_HEADS = {"num_heads": 11, "key_dim": 0, "value_dim": 0}  # of one width, as keys and values must have here


def padded(lengths: list[int]) -> Tensor:
    """ids_BT of sentences of these lengths."""
    ids_BT = ids(len(lengths), max(lengths))
    for row, length in enumerate(lengths):
        ids_BT[row, length:] = PAD
    return ids_BT


def trained(
    model: Transformer, src: Tensor, tgt: Tensor, monkeypatch: pytest.MonkeyPatch, packs: bool
) -> tuple[Tensor, list[Tensor]]:
    """The states of what is no padding, and the gradients of all weights."""
    calls, forward = [], Transformer._forward_packed
    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "_forward_packed", lambda *given: calls.append(1) or forward(*given))  # type: ignore[func-returns-value]
        if not packs:
            patch.setattr(transformer_module, "can_pack", lambda *given: False)
        model.zero_grad()
        with dropout_seed(3):
            hidden_ND = model.train()(src, tgt)[tgt != PAD]
            (model.logits(hidden_ND).log_softmax(-1)[:, 7].sum() + hidden_ND.pow(3).sum()).backward()
    assert bool(calls) is packs
    # The bias of the keys changes no weight of attention: its gradient is rounding.
    gradients = [each.grad for name, each in model.named_parameters() if not name.endswith("key.bias")]
    return hidden_ND.detach(), [each.clone() for each in gradients if each is not None]


def compare(model: Transformer, src: Tensor, tgt: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, gradients = trained(model, src, tgt, monkeypatch, packs=True)
    plain_hidden, plain_gradients = trained(model, src, tgt, monkeypatch, packs=False)
    torch.testing.assert_close(hidden, plain_hidden, rtol=1e-5, atol=1e-5)
    assert len(gradients) == len(plain_gradients)
    assert all(each.grad is not None for each in model.parameters())
    for gradient, plain in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(gradient, plain, rtol=1e-5, atol=1e-5 * float(plain.abs().max()))


ALIKE = [each for each in ({**one, **LIKE_HEADS} for one in COMBINATIONS) if each.get("norm") not in ("batch", "group")]


@pytest.mark.parametrize("options", ALIKE, ids=lambda each: "-".join(map(str, each.values())))
def test_gradients_equal_those_with_padding(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In doubles, of all kinds of positions, norms and feed-forward networks; filled up and not."""
    model = transformer({**options, "dropout": 0.0})
    compare(model, padded([3, 7, 1, 5]), padded([5, 2, 4, 1]), monkeypatch)
    compare(model, padded([18, 16, 9]), padded([17, 18, 1]), monkeypatch)
    compare(model, padded([5, 5]), padded([4, 4]), monkeypatch)
    compare(model, padded([5, 3]), padded([1, 1]), monkeypatch)


@pytest.mark.parametrize("length", [1, 12, REGISTER, 20, LONGEST + 5])
def test_gradients_in_single_precision(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernels that train: short attention, filled up or not, and the fused one."""
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, max_positions=64))
    src, tgt = padded([length, max(1, length - 3), 1]), padded([1, length, max(1, length // 2)])
    compare(model, src, tgt, monkeypatch)


def test_gradients_of_a_wide_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """By oneDNN's products."""
    torch.manual_seed(1)
    wide = {
        "model_dim": WIDE,
        "feed_forward_dim": 2 * WIDE,
        "num_heads": 4,
        "key_dim": 0,
        "value_dim": 0,
        "dropout": 0.0,
    }
    model = Transformer(config(**wide))
    compare(model, padded([3, 17, 1, 5]), padded([5, 18, 4, 1]), monkeypatch)


def test_weights_that_are_dropped_and_layers_that_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With attention dropout weights are held; with checkpointing the same values are dropped twice."""
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.3, attention_dropout=0.2))
    src, tgt = padded([3, 7, 1, 5]), padded([5, 2, 4, 1])
    once = trained(model, src, tgt, monkeypatch, packs=True)
    model.encoder.recomputes = model.decoder.recomputes = True
    again = trained(model, src, tgt, monkeypatch, packs=True)
    torch.testing.assert_close(again, once, rtol=0, atol=0)


def test_a_pad_inside_a_sentence_keeps_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with padding: sources do not see it, targets behind it do."""
    model = transformer({**LIKE_HEADS, "dropout": 0.0})
    src, tgt = padded([6, 7, 3]), padded([5, 4, 5])
    src[0, 2] = tgt[0, 2] = PAD
    compare(model, src, tgt, monkeypatch)


def test_rows_of_padding_get_no_gradient() -> None:
    """Places without a row take theirs on the way back: it must be 0 everywhere, to the last bit."""
    model = Transformer(config(**LIKE_HEADS, dropout=0.1)).train()
    src, tgt = padded([3, 7, 1, 5]), padded([5, 2, 4, 1])
    seen: dict[str, Tensor] = {}
    joint = (".self_attention.query", ".key", ".value")  # of which only the weights are used
    watched = {
        name: each
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear | nn.LayerNorm) and not name.endswith(joint)
    }

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _, grads_in, grads: seen.update({name: grads[0]})

    for name, each in watched.items():
        each.register_full_backward_hook(watch(name))
    with dropout_seed(1):
        model(src, tgt)[tgt != PAD].pow(3).sum().backward()
    assert seen.keys() == watched.keys()
    for name, gradient_1MD in seen.items():
        count = int(((src if name.startswith("encoder") else tgt) != PAD).sum())
        assert gradient_1MD.shape[:2] == (1, count + 1)
        assert bool((gradient_1MD[:, count:] == 0).all()) and bool((gradient_1MD[:, :count] != 0).any()), name


@pytest.mark.parametrize("lengths", [[1], [GRAIN], [GRAIN - 1], [5, 2, 4], [7] * 64])
def test_rows_and_places(lengths: list[int]) -> None:
    ids_BT = padded(lengths)
    with torch.autocast("cpu", torch.bfloat16):
        packed = Packed.of(ids_BT, config(**LIKE_HEADS))
    assert packed.count == sum(lengths) and packed.total % GRAIN == 0
    assert 0 < packed.total - packed.count <= GRAIN, "at least one row of padding"
    rows = packed.ids(ids_BT)[0, : packed.count]
    assert rows.tolist() == ids_BT[ids_BT != PAD].tolist()
    assert packed.places_1M[0, : packed.count].tolist() == [place for each in lengths for place in range(each)]
    x_1MC = torch.arange(packed.total * 3 * H * 4.0).view(1, packed.total, -1)
    q_BHTK, k_BHPK, v_BHPK = packed.spread(x_1MC, H, packed.length, packed.num_keys, packed.num_keys)
    assert k_BHPK.shape == v_BHPK.shape == (len(lengths), H, max(max(lengths), REGISTER), 4)
    start = 0
    for row, length in enumerate(lengths):
        expected_3HTK = x_1MC[0, start : start + length].view(length, 3, H, 4).permute(1, 2, 0, 3)
        for part, expected_HTK in zip((q_BHTK, k_BHPK, v_BHPK), expected_3HTK, strict=True):
            assert torch.equal(part[row, :, :length], expected_HTK)
        start += length
    back_1MC = packed.take((q_BHTK, k_BHPK, v_BHPK))
    assert torch.equal(back_1MC[:, : packed.count], x_1MC[:, : packed.count])
    assert not back_1MC[:, packed.count :].any()
    assert torch.equal(packed.pack(q_BHTK), back_1MC[..., : H * 4])


def test_numbers_of_rows_that_come_again() -> None:
    """Where oneDNN has a kernel for each: wide models, and all in bfloat16."""
    ids_BT = padded([5, 2, 4])
    assert Packed.of(ids_BT, config(**LIKE_HEADS)).total == 12
    assert Packed.of(ids_BT, config(model_dim=WIDE, num_heads=4, key_dim=0, value_dim=0)).total == GRAIN


def test_parts_are_joined_without_a_copy_where_they_stand_so() -> None:
    one, two = behind_each_other(torch.empty(2, 3), torch.empty(4))
    one.fill_(1), two.fill_(2)
    joined = packed_module._joined((one, two))
    assert joined.tolist() == [1] * 6 + [2] * 4 and joined.data_ptr() == one.data_ptr()
    for parts in ((two, one), (one, two.clone()), (one.t(), two)):
        copied = packed_module._joined(parts)
        assert copied.tolist() == [number for part in parts for number in part.flatten().tolist()]
        assert copied.data_ptr() not in (one.data_ptr(), two.data_ptr())


def test_where_padding_is_left() -> None:
    """At run time, without gradients, where a norm sees the batch, and where heads have two widths."""
    alike, ids_BT = config(**LIKE_HEADS), ids(2, T)
    assert can_pack(alike, ids_BT, True)
    assert not can_pack(alike, ids_BT, False)
    assert not can_pack(alike, ids_BT.to("meta"), True)
    assert not can_pack(config(**LIKE_HEADS, norm="batch"), ids_BT, True)
    assert not can_pack(config(), ids_BT, True)
    with torch.no_grad():
        assert not can_pack(alike, ids_BT, True)


def test_a_sentence_beyond_the_last_place_is_refused() -> None:
    model = Transformer(config(**LIKE_HEADS)).train()
    with pytest.raises(DataError, match=r"at most model.max_positions=19 tokens in a row, got 20"):
        model(padded([3, 20]), padded([2, 2]))


def test_a_part_that_does_not_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen encoder goes through the fused kernel, with and without padding."""
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, tied_embeddings="none"))
    model.encoder.requires_grad_(False)
    model.source_embedding.requires_grad_(False)
    tgt = padded([4, 2])
    for src in (padded([5, 5]), padded([5, 3])):
        packed, plain = (trained(model, src, tgt, monkeypatch, packs) for packs in (True, False))
        torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-4)


def test_weights_of_bfloat16() -> None:
    """Without autocast all of it is in that type."""
    model = Transformer(config(**LIKE_HEADS, dropout=0.0)).bfloat16().train()
    hidden = model(padded([3, 7]), padded([5, 2]))
    hidden.sum().backward()
    assert hidden.dtype == torch.bfloat16


def test_a_target_that_is_only_a_start_which_is_a_pad() -> None:
    tgt = torch.tensor([[PAD, 5, 6, 7], [PAD] * 4, [PAD, 8, PAD, PAD]])
    assert Packed.of(tgt, config(**LIKE_HEADS)).count == 4 + 4 + 2


def test_bfloat16_is_close_to_float32() -> None:
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0)).train()
    src, tgt = padded([3, 7, 1, 5]), padded([5, 2, 4, 1])
    states, gradients = [], []
    for is_short in (False, True):
        network = copy.deepcopy(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_short):
            hidden_ND = network(src, tgt)[tgt != PAD].float()
        hidden_ND.pow(3).sum().backward()
        states.append(hidden_ND.detach())
        gradients.append(torch.cat([each.grad.flatten() for each in network.parameters() if each.grad is not None]))
    torch.testing.assert_close(*states, rtol=0.05, atol=0.05)
    assert float(torch.cosine_similarity(gradients[0], gradients[1], dim=0)) > 0.99
