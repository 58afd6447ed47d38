"""Explicit cells against torch's kernels: states, gates, and those that a recorder records."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.inspection.trace.activation_recorder import ActivationRecorder, RecurrentStates
from clearhead.model.recurrent.cells import CELLS
from clearhead.model.recurrent.layers import RecurrentLayer
from clearhead.model.recurrent.translator import RecurrentTranslator
from tests.model.recurrent import FAMILIES, LENGTHS, D, N, S, T, config, ids, loud, padded

TORCH_CELLS: dict[str, Any] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_cells_equal_torch(family: str, bias: bool) -> None:
    reference, x_NI = loud(TORCH_CELLS[family](7, D, bias=bias)), torch.randn(N, 7)
    state = tuple(torch.randn(N, D) for _ in range(2 if family == "lstm" else 1))
    expected = reference(x_NI, state if family == "lstm" else state[0])
    actual = CELLS[family](x_NI, state, list(reference.parameters()))
    torch.testing.assert_close(actual.state, expected if family == "lstm" else (expected,))
    assert len(actual.gates) == {"rnn": 0, "gru": 3, "lstm": 4}[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_unrolled_layers_equal_the_fused_kernel(family: str) -> None:
    """Values and gradients."""
    layer, x_NSI = loud(RecurrentLayer(family, 7, D, bias=True)), torch.randn(N, S, 7, requires_grad=True)
    start = tuple(torch.randn(N, D) for _ in range(2 if family == "lstm" else 1))
    h_NSD, last = layer(x_NSI, start)
    steps = layer.unroll(x_NSI, start)
    found_NSD = torch.stack([step.state[0] for step in steps], 1)
    torch.testing.assert_close(found_NSD, h_NSD, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(steps[-1].state, last, atol=1e-6, rtol=1e-5)
    inputs, direction = [x_NSI, *layer.parameters()], torch.randn_like(h_NSD)
    gradients = [torch.autograd.grad((each * direction).sum(), inputs) for each in (found_NSD, h_NSD)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_lstm_gates_explain_the_cell() -> None:
    layer, x_NSI = loud(RecurrentLayer("lstm", 7, D, bias=True)), torch.randn(N, S, 7)
    steps = layer.unroll(x_NSI)
    for before, after in itertools.pairwise(steps):
        gates = after.gates
        cell = gates["forget"] * before.state[1] + gates["input"] * gates["candidate"]
        torch.testing.assert_close(after.state, (gates["output"] * cell.tanh(), cell))


def at_last_token(item: RecurrentStates) -> tuple[Tensor, ...]:
    """Return h, and c of an LSTM, after the last token of each row."""
    last_N = torch.tensor(LENGTHS) - 1 if item.name.startswith("encoder") else torch.full((N,), T - 1)
    states = (item.h_BTD,) if item.c_BTD is None else (item.h_BTD, item.c_BTD)
    return tuple(each_BTD[torch.arange(N), last_N] for each_BTD in states)


@pytest.mark.parametrize("attention", ["additive", "none"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_recorder_sees_every_step(family: str, attention: str) -> None:
    model = loud(RecurrentTranslator(config(family, attention, bidirectional=True))).eval()
    recorder, src_NS, tgt_NT = ActivationRecorder(model, recurrent_states=True), padded(), ids(N, T)
    hidden = recorder.network(src_NS, tgt_NT)
    torch.testing.assert_close(hidden, model(src_NS, tgt_NT))
    recorded = {(record.name, record.layer): record for record in recorder.recurrent_states}
    encoder = [(side, layer) for layer in range(2) for side in ("encoder", "encoder_backward")]
    assert [*recorded] == encoder + [("decoder", layer) for layer in range(3)]
    assert len(recorder.recurrent_states) == len(recorded)
    for layer, final in enumerate(model.encoder.encode(src_NS).final_states):
        both = (at_last_token(recorded[side, layer]) for side in ("encoder", "encoder_backward"))
        result = tuple(torch.cat(pair, 1) for pair in zip(*both, strict=True))
        torch.testing.assert_close(result, final, atol=1e-6, rtol=1e-5)
    _, state = model.start(model.encode(src_NS), 1)
    for layer, final in enumerate(model.step(tgt_NT, state).state.layers):
        torch.testing.assert_close(at_last_token(recorded["decoder", layer]), final, atol=1e-6, rtol=1e-5)
    for record in recorder.attention:
        assert record.scores_BHTS is not None
        scores_BHTS = record.scores_BHTS.masked_fill(~record.allowed_BHTS, -torch.inf)
        torch.testing.assert_close(scores_BHTS.softmax(-1), record.weights_BHTS)
    assert len(recorder.attention) == (attention != "none")


def test_states_are_recorded_only_on_demand() -> None:
    """Unrolling in Python takes many times as long as the fused kernel."""
    recorder = ActivationRecorder(RecurrentTranslator(config("gru")))
    recorder.network(padded(), ids(N, T))
    assert not recorder.recurrent_states
