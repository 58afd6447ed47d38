"""Recurrent networks: equal to `torch.nn.RNN`, `GRU` and `LSTM`, and how they begin and learn."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.kernels import dropout_seed
from clearhead.model.loss import cross_entropy
from clearhead.model.output_heads import SequenceClassifier, TokenClassifier
from clearhead.model.recurrent.encoder import RecurrentTextEncoder
from clearhead.model.recurrent.layers import RecurrentLayer, RecurrentStack
from clearhead.model.recurrent.translator import RecurrentTranslator
from tests.model.recurrent import (
    END,
    FAMILIES,
    KERNELS,
    LENGTHS,
    PAD,
    START,
    D,
    N,
    S,
    T,
    V,
    config,
    ids,
    loud,
    padded,
)


def copy_stack(model: RecurrentStack, reference: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Copy the weights of the reference; return the pairs of weights, to compare gradients."""
    pairs = []
    for suffix, layers in (("", model.forward_layers), ("_reverse", model.backward_layers)):
        for number, layer in enumerate(layers or ()):
            for name, parameter in layer.rnn.named_parameters():  # type: ignore[union-attr]
                pairs.append((parameter, getattr(reference, name.replace("_l0", f"_l{number}{suffix}"))))
    with torch.no_grad():
        for parameter, truth in pairs:
            parameter.copy_(truth)
    assert len(pairs) == len(list(reference.parameters()))
    return pairs


def run_torch(reference: nn.Module, x_NSD: Tensor, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Return the states, zero at padding, and each kind of last state as (layers * directions, N, D)."""
    packed = pack_padded_sequence(x_NSD, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    output, last = reference(packed)
    states, _ = pad_packed_sequence(output, batch_first=True, total_length=x_NSD.shape[1])
    return states, list(last) if isinstance(last, tuple) else [last]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("lengths", [[S] * N, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_stack_equals_torch(family: str, bidirectional: bool, lengths: list[int], training: bool) -> None:
    model = RecurrentStack(config(family, dropout=0.0), 2, bidirectional).train(training)
    reference = loud(KERNELS[family](D, D, 2, batch_first=True, bidirectional=bidirectional)).train(training)
    pairs = copy_stack(model, reference)
    x = torch.randn(N, S, D, requires_grad=True)
    reference_x = x.detach().clone().requires_grad_()
    real = torch.arange(S) < torch.tensor(lengths)[:, None]
    states, lasts = model(x, is_token_BS=None if bool(real.all()) else real)
    reference_states, reference_lasts = run_torch(reference, reference_x, lengths)
    torch.testing.assert_close(states * real[:, :, None], reference_states, atol=2e-6, rtol=1e-5)
    for kind, reference_last in enumerate(reference_lasts):
        directions = reference_last.view(2, -1, N, D).transpose(1, 2).flatten(2)  # layer, N, directions * D
        torch.testing.assert_close(torch.stack([last[kind] for last in lasts]), directions, atol=2e-6, rtol=1e-5)

    weights = torch.randn_like(reference_states) * real[:, :, None]
    total = (states * weights).sum() + sum((last[-1] * last[-1]).sum() for last in lasts)
    total.backward()
    reference_total = (reference_states * weights).sum() + (reference_lasts[-1] * reference_lasts[-1]).sum()
    reference_total.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, reference_x.grad, atol=1e-5, rtol=1e-4)
    for parameter, truth in pairs:
        torch.testing.assert_close(parameter.grad, truth.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_translator_without_attention_equals_torch(family: str) -> None:
    """The last encoder state starts the decoder, whose states go through one layer with tanh."""
    model: RecurrentTranslator = RecurrentTranslator(config(family, num_decoder_layers=2, dropout=0.0))
    encoder, decoder = (loud(KERNELS[family](D, D, 2, batch_first=True)) for _ in range(2))
    pairs = copy_stack(model.encoder, encoder) + copy_stack(model.decoder, decoder)
    src, tgt = padded(), ids(N, T)
    _, last = run_torch(encoder, F.embedding(src, model.output.weight.detach()), LENGTHS)
    states, _ = decoder(F.embedding(tgt, model.output.weight.detach()), tuple(last) if family == "lstm" else last[0])
    expected = torch.tanh(model.feed_forward(states))
    hidden = model(src, tgt)
    torch.testing.assert_close(hidden, expected, atol=2e-6, rtol=1e-5)
    gradient = torch.randn_like(expected)
    torch.autograd.backward((expected, hidden), (gradient, gradient))
    for parameter, truth in pairs:
        torch.testing.assert_close(parameter.grad, truth.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("encoder", "decoder", "expected"), [(2, 2, [0, 1]), (3, 1, [2]), (1, 3, [0, 0, 0]), (2, 3, [0, 0, 1])]
)
def test_each_decoder_layer_starts_from_an_encoder_layer(encoder: int, decoder: int, expected: list[int]) -> None:
    model = RecurrentTranslator(config("lstm", num_encoder_layers=encoder, num_decoder_layers=decoder)).eval()
    src = padded()
    lasts, starts = model.encoder.encode(src).final_states, model.encode(src).initial_states
    assert len(starts) == decoder
    for start, layer in zip(starts, expected, strict=True):
        for kind in range(2):
            torch.testing.assert_close(start[kind], lasts[layer][kind])


@pytest.mark.parametrize("tied_embeddings", ["all", "target", "none"])
def test_tied_tables_are_one_tensor(tied_embeddings: str) -> None:
    model = RecurrentTranslator(config("gru", tied_embeddings=tied_embeddings))
    tables = [model.encoder.embedding.weight, model.target_embedding.weight, model.output.weight]
    assert len({table.data_ptr() for table in tables}) == {"all": 1, "target": 2, "none": 3}[tied_embeddings]
    assert model.logits(model(ids(N, S), ids(N, T))).shape == (N, T, V)


@pytest.mark.parametrize("family", FAMILIES)
def test_bias_is_a_choice(family: str) -> None:
    model = RecurrentTranslator(config(family, "additive", True, bias=False))
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    assert model(padded(), ids(N, T)).shape == (N, T, D)
    assert [name for name, _ in RecurrentTranslator(config(family)).named_parameters() if "bias" in name]


def test_forget_gate_starts_open_and_states_keep_their_length() -> None:
    _, state_weight, *biases = RecurrentLayer("lstm", 7, D, bias=True).rnn.all_weights[0]
    assert (biases[0] + biases[1]).view(4, D).tolist() == [[0.0] * D, [1.0] * D, [0.0] * D, [0.0] * D]
    for gate in state_weight.view(4, D, D):
        torch.testing.assert_close(gate @ gate.T, torch.eye(D), atol=1e-5, rtol=0)


def test_dropout_follows_its_seed() -> None:
    model = RecurrentTranslator(config("lstm", "dot", dropout=0.5))
    src, tgt = padded(), ids(N, T)

    def draw(seed: int) -> Tensor:
        with dropout_seed(seed):
            hidden: Tensor = model(src, tgt)
            return hidden

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    model.eval()
    assert torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_reader_equals_torch(family: str, bidirectional: bool, pooling: str) -> None:
    reader = RecurrentTextEncoder(
        config(family, "additive", bidirectional, head="classification", pooling=pooling)
    ).eval()
    reference = loud(KERNELS[family](D, D, 2, batch_first=True, bidirectional=bidirectional))
    copy_stack(reader.encoder, reference)
    src = padded()
    states, last = run_torch(reference, reader.encoder.embedding(src), LENGTHS)
    ends = torch.cat(tuple(last[0][-2:]), 1) if bidirectional else last[0][-1]
    states, ends = reader.encoder_projection(states), reader.encoder_projection(ends)
    read = reader(src, want_attention=True)
    assert read.attention == () and reader.width == D
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(read.states_BSD[row, :length], states[row, :length], atol=2e-6, rtol=1e-5)
        real = states[row, :length]
        expected = {"first": real[0], "mean": real.mean(0), "last": ends[row]}[pooling]
        torch.testing.assert_close(read.pooled_BD[row], expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("head", "network"), [("classification", SequenceClassifier), ("token_classification", TokenClassifier)]
)
def test_heads_on_recurrent_encoders(head: str, network: type[SequenceClassifier | TokenClassifier]) -> None:
    sizes = config("gru", "additive", True, head=head, num_labels=13)
    model = network(sizes, RecurrentTextEncoder(sizes))
    assert model.logits(model(padded())).shape == ((N, 13) if head == "classification" else (N, S, 13))


@pytest.mark.parametrize("family", FAMILIES)
def test_copying_is_learnt(family: str) -> None:
    model = RecurrentTranslator(
        config(family, "general", True, model_dim=32, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(120):
        src = ids(32, 2 + step % 3)
        end, start = torch.full((32, 1), END), torch.full((32, 1), START)
        hidden = model(torch.cat((src, end), 1), torch.cat((start, src), 1))
        loss = cross_entropy(hidden, model.output.weight, torch.cat((src, end), 1), PAD, 0.0)
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.nll) / loss.tokens)
    assert losses[0] == pytest.approx(math.log(V), abs=0.6)
    assert sum(losses[-10:]) / 10 < 0.5 * losses[0]
