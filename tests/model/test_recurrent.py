"""Recurrent networks: equal to `torch.nn.RNN`, `GRU` and `LSTM`, and what must hold for any weights."""

import copy
import math
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.decoding.search import search
from clearhead.model import recurrent, recurrent_attention
from clearhead.model.dropout import dropout_seed
from clearhead.model.heads import LabelNetwork, TagNetwork
from clearhead.model.loss import cross_entropy
from clearhead.model.recurrent import RecurrentLayer, RecurrentReader, RecurrentStack, RecurrentTranslator
from clearhead.model.recurrent_attention import Additive, Cosine, General, SourceAttention

# N sentences, S source length, T target length, D model width, V vocabulary: distinct primes
N, S, T, D, V = 3, 7, 5, 11, 23
LENGTHS = [5, 7, 2]
PAD, START, END = 0, 2, 3
FAMILIES = ["rnn", "gru", "lstm"]
KERNELS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
ATTENTIONS = ["dot", "scaled_dot", "general", "additive", "cosine"]
CASES = [
    ("rnn", "none", False),
    ("rnn", "scaled_dot", True),
    ("gru", "cosine", False),
    ("gru", "dot", True),
    ("lstm", "additive", False),
    ("lstm", "general", True),
    ("lstm", "none", True),
]


def config(family: str, attention: str = "none", bidirectional: bool = False, **more: Any) -> ModelConfig:
    """Sizes in which no two axes are alike."""
    return ModelConfig.model_validate(
        {"family": family, "attention": attention, "bidirectional": bidirectional, "num_encoder_layers": 2,
         "num_decoder_layers": 3, "model_dim": D, "num_heads": 1, "vocab_size": V, **more}
    )  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'both' if case[2] else 'one'}")
def model(request: pytest.FixtureRequest) -> RecurrentTranslator:
    """A small network with random weights, far enough from zero that everything matters."""
    return loud(RecurrentTranslator(config(*request.param))).eval()


Module = TypeVar("Module", bound=nn.Module)


def loud(module: Module) -> Module:
    """With noise on every weight, biases included."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return module


def ids(rows: int, length: int) -> Tensor:
    """Random tokens that are not special."""
    return torch.randint(4, V, (rows, length))


def padded() -> Tensor:
    """Sources of different lengths."""
    src_NS = ids(N, S)
    for row, length in enumerate(LENGTHS):
        src_NS[row, length:] = PAD
    return src_NS


def copy_stack(ours: RecurrentStack, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Their weights into ours; the pairs, to compare gradients."""
    pairs = []
    for suffix, layers in (("", ours.onward), ("_reverse", ours.reverse)):
        for number, layer in enumerate(layers or ()):
            for name, parameter in layer.kernel.named_parameters():  # type: ignore[union-attr]
                pairs.append((parameter, getattr(theirs, name.replace("_l0", f"_l{number}{suffix}"))))
    with torch.no_grad():
        for parameter, truth in pairs:
            parameter.copy_(truth)
    assert len(pairs) == len(list(theirs.parameters()))
    return pairs


def run_torch(theirs: nn.Module, x_NSD: Tensor, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """States, zero at padding, and each kind of last state as (layers * directions, N, D)."""
    packed = pack_padded_sequence(x_NSD, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    output, last = theirs(packed)
    states, _ = pad_packed_sequence(output, batch_first=True, total_length=x_NSD.shape[1])
    return states, list(last) if isinstance(last, tuple) else [last]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("lengths", [[S] * N, LENGTHS], ids=["full", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_stack_equals_torch(family: str, bidirectional: bool, lengths: list[int], training: bool) -> None:
    ours = RecurrentStack(config(family, dropout=0.0), 2, bidirectional).train(training)
    theirs = loud(KERNELS[family](D, D, 2, batch_first=True, bidirectional=bidirectional)).train(training)
    pairs = copy_stack(ours, theirs)
    x = torch.randn(N, S, D, requires_grad=True)
    their_x = x.detach().clone().requires_grad_()
    real = torch.arange(S) < torch.tensor(lengths)[:, None]
    states, lasts = ours(x, real_BS=None if bool(real.all()) else real)
    their_states, their_lasts = run_torch(theirs, their_x, lengths)
    torch.testing.assert_close(states * real[:, :, None], their_states, atol=2e-6, rtol=1e-5)
    for kind, their_last in enumerate(their_lasts):
        directions = their_last.view(2, -1, N, D).transpose(1, 2).flatten(2)  # layer, N, directions * D
        torch.testing.assert_close(torch.stack([last[kind] for last in lasts]), directions, atol=2e-6, rtol=1e-5)

    weights = torch.randn_like(their_states) * real[:, :, None]
    ours_sum = (states * weights).sum() + sum((last[-1] * last[-1]).sum() for last in lasts)
    ours_sum.backward()
    theirs_sum = (their_states * weights).sum() + (their_lasts[-1] * their_lasts[-1]).sum()
    theirs_sum.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, their_x.grad, atol=1e-5, rtol=1e-4)
    for parameter, truth in pairs:
        torch.testing.assert_close(parameter.grad, truth.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_translator_without_attention_equals_torch(family: str) -> None:
    """The last encoder state starts the decoder, whose states go through one layer with tanh."""
    ours: RecurrentTranslator = RecurrentTranslator(config(family, num_decoder_layers=2, dropout=0.0))
    encoder, decoder = (loud(KERNELS[family](D, D, 2, batch_first=True)) for _ in range(2))
    pairs = copy_stack(ours.encoder.stack, encoder) + copy_stack(ours.decoder, decoder)
    src, tgt = padded(), ids(N, T)
    _, last = run_torch(encoder, F.embedding(src, ours.output.weight.detach()), LENGTHS)
    states, _ = decoder(F.embedding(tgt, ours.output.weight.detach()), tuple(last) if family == "lstm" else last[0])
    expected = torch.tanh(ours.feed_forward(states))
    hidden = ours(src, tgt)
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
    lasts, starts = model.encoder(src).lasts, model.encode(src).starts
    assert len(starts) == decoder
    for start, layer in zip(starts, expected, strict=True):
        for kind in range(2):
            torch.testing.assert_close(start[kind], lasts[layer][kind])


def score_by_hand(attention: SourceAttention, q: Tensor, k: Tensor) -> float:
    """The formula for one pair, number by number."""
    similarity, plain = attention.similarity, sum(float(q[i] * k[i]) for i in range(D))
    if isinstance(similarity, General):
        m = similarity.bilinear.weight
        return sum(float(q[i] * m[i, j] * k[j]) for i in range(D) for j in range(D))
    if isinstance(similarity, Additive):
        a, b, bias = similarity.query.weight, similarity.key.weight, similarity.key.bias
        total = 0.0
        for i in range(D):
            inner = float(bias[i]) + sum(float(a[i, j] * q[j] + b[i, j] * k[j]) for j in range(D))
            total += float(similarity.v_D[i]) * math.tanh(inner)
        return total
    if isinstance(similarity, Cosine):
        norms = math.sqrt(sum(float(q[i]) ** 2 for i in range(D)) * sum(float(k[i]) ** 2 for i in range(D)))
        return math.exp(float(similarity.log_sharpness)) * plain / norms
    return plain * similarity.scale


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_follows_its_formula(kind: str) -> None:
    attention = loud(SourceAttention(config("lstm", kind)))
    q, states = torch.randn(N, 2, D), torch.randn(N, S, D)
    real = padded() != PAD
    with torch.no_grad():
        context, weights = attention(q, attention.source(states, real))
        for n in range(N):
            for t in range(2):
                scores = [math.exp(score_by_hand(attention, q[n, t], states[n, s])) for s in range(LENGTHS[n])]
                expected = torch.tensor(scores + [0.0] * (S - LENGTHS[n])) / sum(scores)
                torch.testing.assert_close(weights[n, t], expected, atol=1e-5, rtol=1e-4)
                mixed = sum(expected[s] * states[n, s] for s in range(LENGTHS[n]))
                torch.testing.assert_close(context[n, t], mixed, atol=1e-5, rtol=1e-4)


def test_the_kinds_of_dot_differ_by_their_scale() -> None:
    scales = {kind: SourceAttention(config("lstm", kind)).similarity.scale for kind in ("dot", "scaled_dot")}
    assert scales == {"dot": 1.0, "scaled_dot": pytest.approx(1 / math.sqrt(D))}


@pytest.mark.parametrize("chunk", [1, 2 * T * S * D, 10**6], ids=["one", "two", "all"])
def test_gradients_of_additive_scores(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_attention, "CHUNK_NUMBERS", chunk)
    similarity = loud(Additive(D, bias=True))
    q, k = torch.randn(N, T, D, requires_grad=True), torch.randn(N, S, D, requires_grad=True)
    gradient = torch.randn(N, T, S)
    inputs = (q, k, *similarity.parameters())
    found = similarity(q, similarity.keys(k))
    expected = torch.tanh(similarity.query(q)[:, :, None] + similarity.key(k)[:, None]) @ similarity.v_D
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, inputs, gradient), torch.autograd.grad(expected, inputs, gradient), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("few_rows", [0, 32], ids=["kernel", "cell"])
def test_cached_steps_equal_one_pass(
    model: RecurrentTranslator, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "_FEW_ROWS", few_rows)
    src, tgt = padded(), ids(N, T)
    expected = model.logits(model(src, torch.cat((torch.full((N, 1), START), tgt), 1)))
    first, state = model.start(model.encode(src), 1)
    assert first.tolist() == [[START]] * N
    found = []
    for tokens in (first, tgt[:, :1], tgt[:, 1:3], tgt[:, 3:]):  # one token, and several at once
        step = model.step(tokens, state)
        found.append(step.logits_RTV)
        state = step.state
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=2e-5, rtol=1e-5)


def test_more_padding_changes_nothing(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    padded_src = torch.cat((src, torch.full((N, 4), PAD)), 1)
    padded_tgt = torch.cat((tgt, torch.full((N, 2), PAD)), 1)
    torch.testing.assert_close(model(padded_src, padded_tgt)[:, :T], model(src, tgt), atol=2e-6, rtol=1e-5)


def test_any_batch_equals_alone(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    together = model(src, tgt)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, atol=2e-6, rtol=1e-5)


def test_what_padding_looks_like_does_not_matter(model: RecurrentTranslator) -> None:
    """Neither its embedding, however large, nor a gradient reaches anything."""
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    with torch.no_grad():
        model.encoder.tokens.weight[PAD] = 100.0
    after = model(src, tgt)
    torch.testing.assert_close(after, before, atol=2e-6, rtol=1e-5)
    after.square().sum().backward()
    assert model.encoder.tokens.weight.grad is not None
    assert model.encoder.tokens.weight.grad[PAD].abs().max() == 0
    assert model.encoder.tokens.weight.grad[src[0, 0]].abs().max() > 0


def test_every_source_token_matters(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    for row, length in enumerate(LENGTHS):
        for place in range(length):
            changed = src.clone()
            changed[row, place] = (changed[row, place] - 3) % (V - 4) + 4
            is_touched = (model(changed, tgt) - before).abs().amax((1, 2)) > 1e-6
            assert is_touched.tolist() == [each == row for each in range(N)]


def test_future_cannot_touch_the_past(model: RecurrentTranslator) -> None:
    src, tgt = padded(), ids(N, T)
    before = model(src, tgt)
    for position in range(1, T):
        changed = tgt.clone()
        changed[:, position:] = (changed[:, position:] - 3) % (V - 4) + 4
        torch.testing.assert_close(model(src, changed)[:, :position], before[:, :position], atol=1e-6, rtol=0)
        assert not torch.allclose(model(src, changed)[:, position], before[:, position], atol=1e-3)


@pytest.mark.parametrize(
    "rows", [[5, 4, 0, 0], [1, 0, 2, 2, 4, 5], [4, 4, 2, 3, 1, 0]], ids=["one leaves", "beams move", "sentences move"]
)
def test_rows_share_their_sentence_and_move_with_select(model: RecurrentTranslator, rows: list[int]) -> None:
    src, tgt, width = padded(), ids(N * 2, T), 2
    first, state = model.start(model.encode(src), width)
    with_start = torch.cat((first, tgt), 1)
    state = model.step(with_start, state).state
    if state.source is not None:
        assert len(state.source.states_NSD) == N
    last = ids(len(rows), 1)
    found = model.step(last, model.select(state, torch.tensor(rows))).logits_RTV
    sentences = torch.tensor(rows) // width
    expected = model.logits(model(src[sentences], torch.cat((with_start[rows], last), 1)))[:, -1:]
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_attention_rows_are_probabilities_and_change_nothing(model: RecurrentTranslator) -> None:
    src, width = padded(), 2
    _, state = model.start(model.encode(src), width)
    tokens = ids(N * width, T)
    plain, traced = model.step(tokens, state), model.step(tokens, state, want_attention=True)
    torch.testing.assert_close(traced.logits_RTV, plain.logits_RTV)
    assert plain.attention is None and traced.attention is not None
    assert len(traced.attention) == (0 if model.config.attention == "none" else 1)
    for layer in traced.attention:
        assert layer.cross_RHTS.shape == (N * width, 1, T, S)
        torch.testing.assert_close(layer.cross_RHTS.sum(-1), torch.ones(N * width, 1, T))
        for row in range(N * width):
            assert layer.cross_RHTS[row, :, :, LENGTHS[row // width] :].abs().sum() == 0


def test_beam_of_one_is_the_argmax_loop(model: RecurrentTranslator) -> None:
    src, limit = padded(), 9
    found = search(model, src, DecodingConfig(beam=1), [limit] * N, END, PAD)
    for row, length in enumerate(LENGTHS):
        tokens: list[int] = []
        while len(tokens) < limit and (not tokens or tokens[-1] != END):
            logits = model.logits(model(src[row : row + 1, :length], torch.tensor([[START, *tokens]])))[0, -1]
            logits[[PAD, START]] = float("-inf")
            tokens.append(int(logits.argmax()))
        assert found[row][0].tokens == tuple(token for token in tokens if token != END)


def test_beam_search_gives_the_models_own_probabilities(model: RecurrentTranslator) -> None:
    src, limit = padded(), 9
    for row, hypotheses in enumerate(search(model, src, DecodingConfig(beam=3), [limit] * N, END, PAD, n_best=3)):
        assert len({each.tokens for each in hypotheses}) == 3
        for each in hypotheses:
            written = [*each.tokens, *([END] if each.finish_reason == "end" else [])]
            logits = model.logits(model(src[row : row + 1], torch.tensor([[START, *written[:-1]]])))[0]
            log_probs = logits.log_softmax(-1)[range(len(written)), written]
            assert each.token_log_probs == pytest.approx(log_probs.tolist(), abs=2e-4)


@pytest.mark.parametrize("embeddings", ["shared", "output", "separate"])
def test_tied_tables_are_one_tensor(embeddings: str) -> None:
    model = RecurrentTranslator(config("gru", embeddings=embeddings))
    tables = [model.encoder.tokens.weight, model.target_tokens.weight, model.output.weight]
    assert len({table.data_ptr() for table in tables}) == {"shared": 1, "output": 2, "separate": 3}[embeddings]
    assert model.logits(model(ids(N, S), ids(N, T))).shape == (N, T, V)


@pytest.mark.parametrize("family", FAMILIES)
def test_bias_is_a_choice(family: str) -> None:
    model = RecurrentTranslator(config(family, "additive", True, bias=False))
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    assert model(padded(), ids(N, T)).shape == (N, T, D)
    assert [name for name, _ in RecurrentTranslator(config(family)).named_parameters() if "bias" in name]


def test_every_weight_learns(model: RecurrentTranslator) -> None:
    model.train()
    model.logits(model(padded(), ids(N, T))).square().sum().backward()  # type: ignore[no-untyped-call]
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_forget_gate_starts_open_and_states_keep_their_length() -> None:
    _, state_weight, *biases = RecurrentLayer("lstm", 7, D, bias=True).kernel.all_weights[0]
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


def test_a_copy_over_the_same_weights_has_gradients_of_its_own(model: RecurrentTranslator) -> None:
    """What training on several cores does."""
    replica = copy.deepcopy(model)
    for parameter, copied in zip(model.parameters(), replica.parameters(), strict=True):
        copied.data = parameter.data
    with torch.no_grad():
        next(iter(model.encoder.stack.parameters())).add_(0.1)
    src, tgt = padded(), ids(N, T)
    torch.testing.assert_close(replica(src, tgt), model(src, tgt))
    replica(src, tgt).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in replica.encoder.stack.parameters())


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_reader_equals_torch(family: str, bidirectional: bool, pooling: str) -> None:
    reader = RecurrentReader(config(family, "additive", bidirectional, head="label", pooling=pooling)).eval()
    theirs = loud(KERNELS[family](D, D, 2, batch_first=True, bidirectional=bidirectional))
    copy_stack(reader.encoder.stack, theirs)
    src = padded()
    states, last = run_torch(theirs, reader.encoder.tokens(src), LENGTHS)
    ends = torch.cat(tuple(last[0][-2:]), 1) if bidirectional else last[0][-1]
    states, ends = reader.merge(states), reader.merge(ends)
    read = reader(src, want_attention=True)
    assert read.attention == () and reader.width == D
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(read.states_BSD[row, :length], states[row, :length], atol=2e-6, rtol=1e-5)
        real = states[row, :length]
        expected = {"first": real[0], "mean": real.mean(0), "last": ends[row]}[pooling]
        torch.testing.assert_close(read.pooled_BD[row], expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("head", "network"), [("label", LabelNetwork), ("tags", TagNetwork)])
def test_heads_stand_on_the_reader(head: str, network: type[LabelNetwork | TagNetwork]) -> None:
    sizes = config("gru", "additive", True, head=head, num_labels=13)
    model = network(sizes, RecurrentReader(sizes))
    assert model(padded()).shape == ((N, 13) if head == "label" else (N, S, 13))


@pytest.mark.parametrize("family", FAMILIES)
def test_copying_is_learnt(family: str) -> None:
    model = RecurrentTranslator(
        config(family, "general", True, model_dim=32, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(120):
        src = ids(32, 2 + step % 3)
        end, start = torch.full((32, 1), END), torch.full((32, 1), START)
        hidden = model(torch.cat((src, end), 1), torch.cat((start, src), 1))
        loss = cross_entropy(hidden, model.output.weight, torch.cat((src, end), 1), PAD, 0.0)
        optimiser.zero_grad()
        (loss.smoothed / loss.tokens).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.nll) / loss.tokens)
    assert losses[0] == pytest.approx(math.log(V), abs=0.6)
    assert sum(losses[-10:]) / 10 < 0.5 * losses[0]
