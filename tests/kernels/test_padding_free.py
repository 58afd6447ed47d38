"""Training without padding against plain torch with padding: states, gradients, unused rows."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import kernels
from clearhead.errors import DataError
from clearhead.kernels import Layout, PaddedLayout, dropout_seed, sequence_layout
from clearhead.kernels.onednn import WIDE
from clearhead.kernels.padding_free import (
    ROW_MULTIPLE,
    PaddingFreeLayout,
    adjacent_empties,
    gather,
    join_columns,
    scatter,
)
from clearhead.kernels.short_attention import MAX_KEYS, SIMD_WIDTH
from clearhead.model.encoder import TransformerLayer
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer
from tests.model.options import COMBINATIONS, H, T, config, ids, transformer

PAD = 0
LIKE_HEADS = {"num_heads": 11, "key_dim": 0, "value_dim": 0}  # keys and values of one width, which the comparison needs


def padded(lengths: list[int]) -> Tensor:
    """Return ids_BT of sentences of these lengths."""
    ids_BT = ids(len(lengths), max(lengths))
    for row, length in enumerate(lengths):
        ids_BT[row, length:] = PAD
    return ids_BT


def trained(model: Transformer, src: Tensor, tgt: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the states of all tokens, and the gradients of all weights."""
    model.zero_grad()
    with dropout_seed(3):
        hidden_ND = model.train()(src, tgt)[tgt != PAD]
        (model.logits(hidden_ND).log_softmax(-1)[:, 7].sum() + hidden_ND.pow(3).sum()).backward()
    # The bias of the keys has no effect on attention weights, so its gradient consists of rounding errors.
    gradients = [each.grad for name, each in model.named_parameters() if not name.endswith("key.bias")]
    return hidden_ND.detach(), [each.clone() for each in gradients if each is not None]


@contextmanager
def watch_layouts(**stacks: nn.Module) -> Iterator[set[str]]:
    """Yield the names of the stacks that run without padding inside."""
    padding_free: set[str] = set()

    def watch(name: str, layout: Layout) -> None:
        if isinstance(layout, PaddingFreeLayout):
            padding_free.add(name)

    hooks = [
        stack.register_forward_pre_hook(lambda _, args, name=name: watch(name, args[1]))
        for name, stack in stacks.items()
    ]
    try:
        yield padding_free
    finally:
        for hook in hooks:
            hook.remove()


def compare(model: Transformer, src: Tensor, tgt: Tensor, padded_stack: str = "") -> None:
    """Compare training without padding, except in `padded_stack`, with plain torch and padding."""
    with watch_layouts(encoder=model.encoder, decoder=model.decoder) as padding_free:
        hidden, gradients = trained(model, src, tgt)
    assert padding_free == {"encoder", "decoder"} - {padded_stack}
    with kernels.disabled(), watch_layouts(encoder=model.encoder, decoder=model.decoder) as padding_free:
        plain_hidden, plain_gradients = trained(model, src, tgt)
    assert not padding_free
    torch.testing.assert_close(hidden, plain_hidden, rtol=1e-5, atol=1e-5)
    assert len(gradients) == len(plain_gradients)
    assert all(each.grad is not None for each in model.parameters())
    for gradient, baseline in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(gradient, baseline, rtol=1e-5, atol=1e-5 * float(baseline.abs().max()))


ALIKE = [each for each in ({**one, **LIKE_HEADS} for one in COMBINATIONS) if each.get("norm") not in ("batch", "group")]
TWO_WIDTHS = [each for each in COMBINATIONS if each.get("norm") not in ("batch", "group") and "num_heads" not in each]


@pytest.mark.parametrize("options", ALIKE + TWO_WIDTHS, ids=lambda each: "-".join(map(str, each.values())))
def test_gradients_equal_those_with_padding(options: dict[str, Any]) -> None:
    """This is tested in doubles, with all positions, norms and feed-forward networks, with and without padded keys."""
    model = transformer({**options, "dropout": 0.0})
    if options.get("norm") == "none":  # keep the states small: gradients of saturated attention are rounding
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
    compare(model, padded([3, 7, 1, 5]), padded([5, 2, 4, 1]))
    compare(model, padded([18, 16, 9]), padded([17, 18, 1]))
    compare(model, padded([5, 5]), padded([4, 4]))
    compare(model, padded([5, 3]), padded([1, 1]))


@pytest.mark.parametrize("attention_dropout", [0.0, 0.2])
def test_one_stack_with_padding_and_one_without(attention_dropout: float) -> None:
    """Long sources without padding keep their layout, and targets of the same batch lose their padding."""
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, max_positions=64, attention_dropout=attention_dropout))
    src, tgt = padded([MAX_KEYS + 5] * 3), padded([4, 7, 2])
    for padding_free_stack in ("decoder", "encoder"):
        with watch_layouts(encoder=model.encoder, decoder=model.decoder) as padding_free, dropout_seed(3):
            hidden_ND = model.train()(src, tgt)[tgt != PAD]
        assert padding_free == {padding_free_stack} and hidden_ND.isfinite().all()
        src, tgt = padded([7, 4, 2]), padded([MAX_KEYS + 5] * 3)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, max_positions=64))
    compare(model, padded([MAX_KEYS + 5] * 3), padded([4, 7, 2]), padded_stack="encoder")
    compare(model, padded([4, 7, 2]), padded([MAX_KEYS + 5] * 3), padded_stack="decoder")


@pytest.mark.parametrize("length", [1, 12, SIMD_WIDTH, 20, MAX_KEYS + 5])
def test_gradients_in_single_precision(length: int) -> None:
    """Training uses short attention, with or without padded keys, or the fused kernel."""
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, max_positions=64))
    src, tgt = padded([length, max(1, length - 3), 1]), padded([1, length, max(1, length // 2)])
    compare(model, src, tgt)


def test_gradients_of_a_wide_model() -> None:
    """Wide models use the products of oneDNN."""
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
    compare(model, padded([3, 17, 1, 5]), padded([5, 18, 4, 1]))


@pytest.mark.parametrize("attention_dropout", [0.0, 0.2])
def test_layers_that_are_computed_again_drop_the_same_values(attention_dropout: float) -> None:
    from clearhead.training.distributed.device_setup import recompute_layers

    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.3, attention_dropout=attention_dropout))
    src, tgt = padded([3, 7, 1, 5]), padded([5, 2, 4, 1])
    once = trained(model, src, tgt)
    recompute_layers(model)
    assert all("forward" in layer.__dict__ for layer in model.modules() if isinstance(layer, TransformerLayer))
    torch.testing.assert_close(trained(model, src, tgt), once, rtol=0, atol=0)


def test_a_pad_inside_a_sentence_keeps_its_row() -> None:
    """As in a padded layout, sources do not attend to this position, and later targets do."""
    model = transformer({**LIKE_HEADS, "dropout": 0.0})
    src, tgt = padded([6, 7, 3]), padded([5, 4, 5])
    src[0, 2] = tgt[0, 2] = PAD
    compare(model, src, tgt)


def test_rows_of_padding_get_no_gradient() -> None:
    """Positions without a row pass their gradient to an unused row: it must be exactly 0."""
    model = Transformer(config(**LIKE_HEADS, dropout=0.1)).train()
    src, tgt = padded([3, 7, 1, 5]), padded([5, 2, 4, 1])
    recorded: dict[str, Tensor] = {}
    joint = (".self_attention.query", ".key", ".value")  # of which only the weights are used
    watched = {
        name: each
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear | nn.LayerNorm) and not name.endswith(joint)
    }

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _, grads_in, grads: recorded.update({name: grads[0]})

    for name, each in watched.items():
        each.register_full_backward_hook(watch(name))
    with dropout_seed(1):
        model(src, tgt)[tgt != PAD].pow(3).sum().backward()
    assert recorded.keys() == watched.keys()
    for name, gradient_MD in recorded.items():
        count = int(((src if name.startswith("encoder") else tgt) != PAD).sum())
        assert len(gradient_MD) == count + 1
        assert bool((gradient_MD[count:] == 0).all()) and bool((gradient_MD[:count] != 0).any()), name


@pytest.mark.parametrize("lengths", [[1], [ROW_MULTIPLE], [ROW_MULTIPLE - 1], [5, 2, 4], [7] * 64])
def test_rows_and_positions(lengths: list[int]) -> None:
    ids_BT = padded(lengths)
    layout = PaddingFreeLayout(ids_BT, PAD, None, rounds_rows=True)
    used, count = layout.num_used, layout.num_rows
    assert used == sum(lengths) and count % ROW_MULTIPLE == 0
    assert 0 < count - used <= ROW_MULTIPLE, "at least one unused row"
    assert layout.unpad(ids_BT)[:used].tolist() == ids_BT[ids_BT != PAD].tolist()
    assert layout.positions[:used].tolist() == [position for each in lengths for position in range(each)]
    x_M3HK = torch.arange(count * 3 * H * 4.0).view(count, 3, H, 4)
    num_keys = max(max(lengths), SIMD_WIDTH)
    parts = scatter(x_M3HK.unbind(1), layout, [layout.length, num_keys, num_keys])
    assert parts[1].shape == parts[2].shape == (len(lengths), H, num_keys, 4)
    start = 0
    for row, length in enumerate(lengths):
        for part, x_BHLK in enumerate(parts):
            assert torch.equal(x_BHLK[row, :, :length], x_M3HK[start : start + length, part].transpose(0, 1))
        start += length
    back_MHK = gather(parts[0], layout)
    assert torch.equal(back_MHK[:used], x_M3HK[:used, 0]) and not back_MHK[used:].any()
    assert torch.equal(layout.pad(x_M3HK[:, 0, 0])[ids_BT != PAD], x_M3HK[:used, 0, 0])


def test_gradients_of_scatter_and_gather() -> None:
    """Gradients equal finite differences; those of unused rows and of positions without a row are 0."""
    layout = PaddingFreeLayout(padded([3, 1, 2]), PAD, None, rounds_rows=False)
    x_M2HK = torch.randn(layout.num_rows, 2, H, 3, dtype=torch.float64, requires_grad=True)
    is_used_BL = torch.arange(4) < torch.tensor([3, 1, 2])[:, None]

    def run(x_M2HK: Tensor) -> Tensor:
        one, two = scatter(x_M2HK.unbind(1), layout, [3, 4])
        total: Tensor = gather(one * 3, layout)[: layout.num_used].square().sum()
        return total + (two * is_used_BL[:, None, :, None]).pow(3).sum()

    assert torch.autograd.gradcheck(run, (x_M2HK,))


def test_rows_are_rounded_for_compiled_products() -> None:
    """oneDNN compiles a kernel for each number of rows: in wide models, and always in bfloat16."""
    ids_BT = padded([5, 2, 4])

    def num_rows(width: int) -> int:
        layout = sequence_layout(ids_BT, PAD, None, width, can_drop_padding=True)
        assert isinstance(layout, PaddingFreeLayout)
        return layout.num_rows

    assert (num_rows(WIDE - 1), num_rows(WIDE)) == (12, ROW_MULTIPLE)
    with torch.autocast("cpu", torch.bfloat16):
        assert num_rows(WIDE - 1) == ROW_MULTIPLE


def test_columns_are_joined_without_a_copy_if_they_are_adjacent() -> None:
    joint = torch.randn(5, 7)
    one, two = joint.split_with_sizes([3, 4], 1)
    assert join_columns([one, two]).data_ptr() == joint.data_ptr()
    for parts in ([two, one], [one, two.clone()], [joint[:, 1:4], two]):
        joined = join_columns(parts)
        assert torch.equal(joined, torch.cat(parts, 1)) and joined.data_ptr() != joint.data_ptr()


def test_empty_tensors_are_adjacent() -> None:
    one, two = adjacent_empties(torch.empty(2, 3), torch.empty(4))
    assert two.data_ptr() == one.data_ptr() + one.nbytes and one.shape == (2, 3)


def test_cases_with_a_padded_layout() -> None:
    """Layouts are padded at inference, without gradients, if a layer depends on padding, and without the kernels."""
    ids_BT = ids(2, T)

    def is_padded(ids_BT: Tensor, can_drop_padding: bool = True) -> bool:
        return isinstance(sequence_layout(ids_BT, PAD, None, 22, can_drop_padding), PaddedLayout)

    assert not is_padded(ids_BT)
    assert is_padded(ids_BT, can_drop_padding=False)
    assert is_padded(ids_BT.to("meta"))
    long_BT = ids(2, MAX_KEYS + 1)
    assert is_padded(long_BT), "attention would have to copy"
    long_BT[0, MAX_KEYS // 2 :] = PAD
    assert not is_padded(long_BT)
    with torch.no_grad():
        assert is_padded(ids_BT)
    with kernels.disabled():
        assert is_padded(ids_BT)


@pytest.mark.parametrize(
    ("options", "is_padding_free"), [({}, True), ({"norm": "batch"}, False), ({"attention_dropout": 0.1}, True)]
)
def test_which_models_train_without_padding(options: dict[str, Any], is_padding_free: bool) -> None:
    ids_BT = ids(2, T)
    model = Transformer(config(**options))
    text_encoder = TextEncoder(config(**options, family="encoder", head="classification"))
    stacks = {"encoder": model.encoder, "decoder": model.decoder, "text encoder": text_encoder.encoder}
    with watch_layouts(**stacks) as padding_free:
        model.train()(ids_BT, ids_BT)
        text_encoder.train()(ids_BT)
    assert padding_free == (stacks.keys() if is_padding_free else set())
    with watch_layouts(**stacks) as padding_free:
        model.eval()(ids_BT, ids_BT)
        text_encoder.eval()(ids_BT)
    assert not padding_free, "inference is padded"


def test_a_sentence_beyond_the_last_position_is_refused() -> None:
    model = Transformer(config(**LIKE_HEADS)).train()
    with pytest.raises(DataError, match=r"at most model.max_positions=19 tokens per sequence, got 20"):
        model(padded([3, 20]), padded([2, 2]))


def test_a_part_that_does_not_learn() -> None:
    """A frozen encoder goes through the fused kernel, with and without padding."""
    torch.manual_seed(1)
    model = Transformer(config(**LIKE_HEADS, dropout=0.0, tied_embeddings="none"))
    model.encoder.requires_grad_(False)
    model.source_embedding.requires_grad_(False)
    tgt = padded([4, 2])
    for src in (padded([5, 5]), padded([5, 3])):
        result = trained(model, src, tgt)
        with kernels.disabled():
            baseline = trained(model, src, tgt)
        torch.testing.assert_close(result, baseline, rtol=1e-4, atol=1e-4)


def test_weights_of_bfloat16() -> None:
    """Without autocast, all computations are in bfloat16."""
    model = Transformer(config(**LIKE_HEADS, dropout=0.3)).bfloat16().train()
    hidden = model(padded([3, 7]), padded([5, 2]))
    hidden.sum().backward()
    assert hidden.dtype == torch.bfloat16


def test_a_target_that_is_only_a_start_which_is_a_pad() -> None:
    tgt = torch.tensor([[PAD, 5, 6, 7], [PAD] * 4, [PAD, 8, PAD, PAD]])
    assert PaddingFreeLayout(tgt, PAD, None, rounds_rows=False).num_used == 4 + 4 + 2


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
