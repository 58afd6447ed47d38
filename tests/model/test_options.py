"""Every option of the Transformer: against its formula, and what must hold whichever options are combined."""

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from clearhead.config import DecodingConfig, ModelConfig, build
from clearhead.decoding.search import search
from clearhead.errors import DataError
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import PositionedEmbedding, TokenEmbedding
from clearhead.model.feed_forward import FeedForward
from clearhead.model.language import LanguageModel
from clearhead.model.normalisation import build_norm
from clearhead.model.positions import RelativeBias, RotaryPositions, places_in_documents, relative_buckets
from clearhead.model.residual import Residual
from clearhead.model.text_reader import TextReader
from clearhead.model.transformer import Transformer
from clearhead.model.weights import count_parameters

# N sentences, S source length, T target length, V vocabulary, D model width, H heads, K and E head widths, F inner
# width: no two alike
N, S, T, V, D, H, K, E, F = 2, 7, 5, 23, 22, 3, 4, 13, 17

Module = TypeVar("Module", bound=nn.Module)
SIZES = {
    "num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": D, "inner_dim": F, "num_heads": H, "key_dim": K,
    "value_dim": E, "norm_groups": 11, "vocab_size": V, "max_positions": 19, "relative_buckets": 6,
    "relative_distance": 5,
}  # fmt: skip
POSITIONS = ("sinusoidal", "learned", "relative", "rotary", "none")
COMBINATIONS: list[dict[str, Any]] = [
    {"positions": positions, "norm": norm, "norm_placement": placement}
    for positions, norm, placement in itertools.product(POSITIONS, ("layer", "rms", "batch", "group"), ("pre", "post"))
] + [
    {"activation": "gelu_tanh", "gated": True, "bias": False},
    {"activation": "gelu", "scale_embeddings": False, "embedding_norm": True, "embeddings": "separate"},
    {"positions": "relative", "scale_attention": False, "scale_embeddings": False},
    # With values as wide as keys torch takes another kernel.
    *({"positions": positions, "num_heads": 11, "key_dim": 0, "value_dim": 0} for positions in POSITIONS),
]
each_combination = pytest.mark.parametrize("options", COMBINATIONS, ids=lambda each: "-".join(map(str, each.values())))


def config(**options: Any) -> ModelConfig:
    """Small sizes with some options."""
    return ModelConfig.model_validate({**SIZES, **options})


def shaken(module: Module) -> Module:
    """The module at run time with weights among which none is 0 or 1, running figures included."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
    return module.eval()


def ids(rows: int, length: int) -> Tensor:
    """Random tokens that are not special."""
    return torch.randint(4, V, (rows, length))


def close(found: Tensor, expected: Tensor) -> None:
    tolerance = 1e-10 if expected.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


# The parts, each against its formula


def centred(x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    variance = x.var(axes, unbiased=False, keepdim=True)
    return (x - x.mean(axes, keepdim=True)) / (variance + epsilon).sqrt()


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": lambda x: centred(x, (2,), 0.01),
    "rms": lambda x: x / (x.square().mean(2, keepdim=True) + 0.01).sqrt(),
    "group": lambda x: centred(x.reshape(N, T, 11, 2), (3,), 0.01).flatten(2),
    "batch": lambda x: centred(x, (0, 1), 0.01),
}


@pytest.mark.parametrize("kind", NORMS)
def test_norms_follow_their_formulas(kind: str) -> None:
    norm: Any = shaken(build_norm(config(norm=kind, norm_epsilon=0.01)))
    norm.train()  # batch norm: by the figures of the batch
    x_NTD = torch.randn(N, T, D) * 3 + 1
    shift = 0.0 if kind == "rms" else norm.bias
    close(norm(x_NTD), NORMS[kind](x_NTD) * norm.weight + shift)


def test_batch_norm_runs_on_figures_of_training() -> None:
    norm: Any = shaken(build_norm(config(norm="batch", norm_epsilon=0.01)))
    x_NTD = torch.randn(N, T, D)
    close(norm(x_NTD), (x_NTD - norm.running_mean) / (norm.running_var + 0.01).sqrt() * norm.weight + norm.bias)


@pytest.mark.parametrize("kind", NORMS)
def test_residuals_and_stacks_have_the_norm_where_it_is_wanted(kind: str) -> None:
    x_NTD, y_NTD = torch.randn(N, T, D), torch.randn(N, T, D)
    for placement in ("pre", "post"):
        settings = config(norm=kind, norm_placement=placement, norm_epsilon=0.01)
        residual, norm = Residual(settings), NORMS[kind]
        residual.dropout.eval()
        close(residual.enter(x_NTD), norm(x_NTD) if placement == "pre" else x_NTD)
        total_NTD = x_NTD + y_NTD
        close(residual(x_NTD, y_NTD), total_NTD if placement == "pre" else norm(total_NTD))
        model = Transformer(settings)
        for stack in (model.encoder, model.decoder):
            close(stack.norm(x_NTD), norm(x_NTD) if placement == "pre" else x_NTD)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_feed_forward_follows_its_formula(kind: str, gated: bool, bias: bool) -> None:
    network, x_ND = shaken(FeedForward(config(activation=kind, gated=gated, bias=bias))), torch.randn(N, D)

    def apply(linear: nn.Linear, x: Tensor) -> Tensor:
        return x @ linear.weight.T + (linear.bias if bias else 0)

    inner_NF = ACTIVATIONS[kind](apply(network.inner, x_ND))
    if gated:
        assert network.gate is not None
        inner_NF = inner_NF * apply(network.gate, x_ND)
    close(network(x_ND[:, None])[:, 0], apply(network.outer, inner_NF))
    assert bias == any("bias" in name for name, _ in network.named_parameters())


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_attention_equals_plain_loops(scaled: bool, bias: bool) -> None:
    attention = MultiHeadAttention.build(config(scale_attention=scaled, bias=bias))
    nn.init.normal_(attention.in_weight, std=0.3)
    shaken(attention)
    assert attention.in_weight.shape == (2 * H * K + H * E, D) and attention.out.weight.shape == (D, H * E)
    x_NTD, source_NSD = torch.randn(N, T, D), torch.randn(N, S, D)
    w = attention.in_weight
    b = attention.in_bias if bias else torch.zeros(len(w))
    expected_NTD = torch.zeros(N, T, D)
    for n, t in itertools.product(range(N), range(T)):
        mixed = []
        for h in range(H):
            q_rows, k_rows = slice(h * K, (h + 1) * K), slice(H * K + h * K, H * K + (h + 1) * K)
            v_rows = slice(2 * H * K + h * E, 2 * H * K + (h + 1) * E)
            q = w[q_rows] @ x_NTD[n, t] + b[q_rows]
            scores = torch.stack([q @ (w[k_rows] @ source_NSD[n, s] + b[k_rows]) for s in range(S)])
            share = torch.softmax(scores / math.sqrt(K) if scaled else scores, 0)
            mixed.append(sum(share[s] * (w[v_rows] @ source_NSD[n, s] + b[v_rows]) for s in range(S)))
        expected_NTD[n, t] = attention.out(torch.cat(mixed))  # type: ignore[arg-type]
    for want_weights in (False, True):
        q, memory = attention.queries(x_NTD), attention.keys_values(source_NSD)
        close(attention(q, memory, want_weights=want_weights).y_BTD, expected_NTD)
    q_itself, itself = attention.project(x_NTD)
    close(q_itself, q)
    close(itself.v_BHSE, attention.keys_values(x_NTD).v_BHSE)


def test_rotary_is_a_rotation_of_complex_numbers() -> None:
    rotary, x_NHTK = RotaryPositions(19, K), torch.randn(N, H, T, K)
    pairs = torch.complex(x_NHTK[..., : K // 2], x_NHTK[..., K // 2 :])
    angles = torch.tensor([[(3 + t) / 10000 ** (2 * c / K) for c in range(K // 2)] for t in range(T)])
    turned = pairs * torch.exp(1j * angles)
    close(rotary(3, T)(x_NHTK), torch.cat((turned.real, turned.imag), -1))
    assert not rotary.state_dict()
    attention, x_NTD = MultiHeadAttention.build(config()), torch.randn(N, T, D)
    nn.init.normal_(attention.in_weight)
    (q, memory), (turned_q, turned_memory) = attention.project(x_NTD), attention.project(x_NTD, rotary(3, T))
    close(turned_q, rotary(3, T)(q))
    close(turned_memory.k_BHSK, rotary(3, T)(memory.k_BHSK))
    close(turned_memory.v_BHSE, memory.v_BHSE)


def test_rotary_scores_depend_on_the_difference_of_places_only() -> None:
    rotary, q_K, k_K = RotaryPositions(19, K), torch.randn(K), torch.randn(K)

    def score(place_of_q: int, place_of_k: int) -> float:
        return float(rotary(place_of_q, 1)(q_K[None]) @ rotary(place_of_k, 1)(k_K[None]).T)

    for shift in (1, 7):
        assert score(9, 4) == pytest.approx(score(9 + shift, 4 + shift), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


@pytest.mark.parametrize(
    ("offset", "bidirectional", "bucket"),
    [
        # 32 buckets up to 128. One direction: 16 exact ones, then 16 + floor(log(d / 16) / log(128 / 16) * 16).
        (0, False, 0), (3, False, 0), (-1, False, 1), (-15, False, 15), (-16, False, 16), (-20, False, 17),
        (-64, False, 26), (-128, False, 31), (-5000, False, 31),
        # Two directions: 16 each, 8 of them exact, then 8 + floor(log(d / 8) / log(128 / 8) * 8).
        (0, True, 0), (-1, True, 1), (1, True, 17), (-8, True, 8), (20, True, 26), (-127, True, 15), (5000, True, 31),
    ],
)  # fmt: skip
def test_buckets_of_relative_positions(offset: int, bidirectional: bool, bucket: int) -> None:
    assert relative_buckets(torch.tensor(offset), 32, 128, bidirectional) == bucket


@pytest.mark.parametrize(("buckets", "distance"), [(2, 2), (3, 128), (6, 2), (32, 4)])
def test_buckets_of_odd_sizes_are_in_the_table(buckets: int, distance: int) -> None:
    offsets = torch.arange(-50, 51)
    for bidirectional in (False, True):
        found = relative_buckets(offsets, buckets, distance, bidirectional)
        assert int(found.min()) >= 0 and int(found.max()) < buckets


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_relative_bias_is_looked_up_by_difference(bidirectional: bool) -> None:
    bias = RelativeBias(config(), bidirectional)
    found_1HTS = bias(2, T)
    assert found_1HTS.shape == (1, H, T, 2 + T)
    for h, t, s in itertools.product(range(H), range(T), range(2 + T)):
        bucket = int(relative_buckets(torch.tensor(s - (2 + t)), 6, 5, bidirectional))
        assert found_1HTS[0, h, t, s] == bias.table_UH[bucket, h]


def test_embedding_sums_tokens_positions_and_segments_under_a_norm() -> None:
    options = {"family": "encoder", "head": "masked", "positions": "learned", "num_segments": 3}
    settings = config(**options, embedding_norm=True, scale_embeddings=False)
    embedding: Any = shaken(PositionedEmbedding(TokenEmbedding(V, D), settings))
    tokens_NT, segments_NT = ids(N, T), torch.randint(3, (N, T))
    table_LD, norm = embedding.positions.table_LD, embedding.norm
    for given in (segments_NT, None):
        kind = torch.zeros(N, T, dtype=torch.long) if given is None else given
        total = embedding.tokens.weight[tokens_NT] + table_LD[:T] + embedding.segments.weight[kind]
        close(embedding(tokens_NT, segments_BT=given), centred(total, (2,), 1e-5) * norm.weight + norm.bias)
    plain = PositionedEmbedding(TokenEmbedding(V, D), config(positions="none")).eval()
    close(plain(tokens_NT, 4), plain.tokens.weight[tokens_NT] * math.sqrt(D))
    with pytest.raises(ValueError, match="num_segments"):
        plain(tokens_NT, segments_BT=segments_NT)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_too_many_tokens_are_refused(positions: str) -> None:
    model = LanguageModel(config(family="decoder", positions=positions))
    with pytest.raises(DataError, match="max_positions=19 tokens in a row, got 20"):
        model(ids(N, 20))


# Whatever is combined: with doubles, because a group norm of two channels makes a rounding error as large as its
# channels are close to each other


def transformer(options: dict[str, Any]) -> Transformer:
    return shaken(Transformer(config(**options, scale_output="scale_attention" in options))).double()


def language_model(options: dict[str, Any]) -> LanguageModel:
    return shaken(LanguageModel(config(**options, family="decoder"))).double()


def text_reader(options: dict[str, Any]) -> TextReader:
    return shaken(TextReader(config(**options, family="encoder", head="label"))).double()


def sources() -> Tensor:
    """With padding in one row."""
    src_NS = ids(N, S)
    src_NS[1, 4:] = 0
    return src_NS


def steps(model: Any, first: Tensor, state: Any, tgt_NT: Tensor) -> Tensor:
    """Logits in steps of one token and of several."""
    found = []
    for tokens in (first, tgt_NT[:, :1], tgt_NT[:, 1:3], tgt_NT[:, 3:]):
        step = model.step(tokens, state)
        found.append(step.logits_RTV)
        state = step.state
    return torch.cat(found, 1)


@each_combination
@torch.inference_mode()
def test_cached_steps_equal_one_pass(options: dict[str, Any]) -> None:
    tgt_NT = ids(N, T)
    translator, src_NS = transformer(options), sources()
    first, state = translator.start(translator.encode(src_NS), 1)
    close(
        steps(translator, first, state, tgt_NT),
        translator.logits(translator(src_NS, torch.cat((first, tgt_NT), 1))),
    )
    writer, prompt_N3 = language_model(options), ids(N, 3)
    first, empty = writer.start(writer.encode(prompt_N3), 1)
    assert torch.equal(first, prompt_N3)
    close(steps(writer, first, empty, tgt_NT), writer.logits(writer(torch.cat((prompt_N3, tgt_NT), 1))))


@each_combination
@torch.inference_mode()
def test_the_future_cannot_touch_the_past(options: dict[str, Any]) -> None:
    translator, writer, src_NS, tgt_NT = transformer(options), language_model(options), sources(), ids(N, T)
    changed = tgt_NT.clone()
    changed[:, 2:] = (changed[:, 2:] - 3) % (V - 4) + 4
    readers: list[Callable[[Tensor], Tensor]] = [writer, lambda tgt_NT: translator(src_NS, tgt_NT)]
    for read in readers:
        close(read(changed)[:, :2], read(tgt_NT)[:, :2])
        assert not torch.allclose(read(changed)[:, 2], read(tgt_NT)[:, 2], atol=1e-3)


@each_combination
@torch.inference_mode()
def test_more_padding_changes_nothing(options: dict[str, Any]) -> None:
    src_NS, tgt_NT = sources(), ids(N, T)
    padded_src = torch.cat((src_NS, torch.zeros(N, 4, dtype=torch.long)), 1)
    padded_tgt = torch.cat((tgt_NT, torch.zeros(N, 2, dtype=torch.long)), 1)
    translator, writer = transformer(options), language_model(options)
    close(translator(padded_src, padded_tgt)[:, :T], translator(src_NS, tgt_NT))
    close(writer(padded_tgt)[:, :T], writer(tgt_NT))
    for pooling in ("first", "mean", "last"):
        reader = text_reader({**options, "pooling": pooling, "pooler": True})
        padded, plain = reader(padded_src), reader(src_NS)
        close(padded.states_BSD[0, :S], plain.states_BSD[0])
        close(padded.states_BSD[1, :4], plain.states_BSD[1, :4])
        close(padded.pooled_BD, plain.pooled_BD)


@each_combination
@torch.inference_mode()
def test_asking_for_weights_changes_nothing(options: dict[str, Any]) -> None:
    """The fused kernel equals the explicit weights, whose rows are probabilities."""
    src_NS, tgt_NT = sources(), ids(N, T)
    reader = text_reader(options)
    traced = reader(src_NS, want_attention=True)
    close(traced.states_BSD, reader(src_NS).states_BSD)
    assert not reader(src_NS).attention and len(traced.attention) == 2
    seen = [*traced.attention]
    models: list[Any] = [transformer(options), language_model(options)]
    for model in models:
        _, state = model.start(model.encode(tgt_NT if isinstance(model, LanguageModel) else src_NS), 1)
        state = model.step(tgt_NT[:, :2], state).state
        plain, step = model.step(tgt_NT[:, 2:], state), model.step(tgt_NT[:, 2:], state, want_attention=True)
        close(step.logits_RTV, plain.logits_RTV)
        assert plain.attention is None and step.attention is not None and len(step.attention) == 2
        for layer in step.attention:
            assert (
                layer.self_RHTT.shape == (N, model.config.num_heads, T - 2, T)
                and layer.self_RHTT.triu(3).abs().max() == 0
            )
            seen.append(layer.self_RHTT)
            seen += [layer.cross_RHTS] if hasattr(layer, "cross_RHTS") else []
    assert len(seen) == 2 + 2 * 2 + 2
    for weights in seen:
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
        assert weights.min() >= 0
    for weights_NHXS in (*traced.attention, seen[3]):
        assert weights_NHXS[1, :, :, 4:].abs().max() == 0  # padding


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_fused_kernel_equals_explicit_weights_in_single_precision(positions: str, scaled: bool) -> None:
    options = {"positions": positions, "scale_attention": scaled, "num_heads": 11, "key_dim": 0, "value_dim": 0}
    reader, writer = text_reader(options).float(), language_model(options).float()
    src_NS, tgt_NT = sources(), ids(N, T)
    close(reader(src_NS, want_attention=True).states_BSD, reader(src_NS).states_BSD)
    first, state = writer.start(writer.encode(tgt_NT), 1)
    close(writer.step(first, state, want_attention=True).logits_RTV, writer.logits(writer(tgt_NT)))


# The language model


@each_combination
@torch.inference_mode()
def test_documents_in_a_row_do_not_see_each_other(options: dict[str, Any]) -> None:
    model, first_N3, second_N5, third_N2 = language_model(options), ids(N, 3), ids(N, 5), ids(N, 2)
    documents_NT = torch.tensor([[4] * 3 + [9] * 5 + [1] * 2] * N)
    packed = model(torch.cat((first_N3, second_N5, third_N2), 1), documents_NT)
    close(packed, torch.cat((model(first_N3), model(second_N5), model(third_N2)), 1))


def test_places_start_again_with_each_document() -> None:
    documents = torch.tensor([[4, 4, 4, 9, 9, 1], [2, 7, 7, 7, 7, 7]])
    assert places_in_documents(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 4]]


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_rows_of_the_language_model_move_with_select(positions: str) -> None:
    model, prompts_N3, width = language_model({"positions": positions}), ids(N, 3), 3
    first_R3, state = model.start(model.encode(prompts_N3), width)
    assert torch.equal(first_R3, prompts_N3[[0, 0, 0, 1, 1, 1]])
    state = model.step(first_R3, state).state
    tokens_RT, rows = ids(N * width, 2), torch.tensor([5, 3, 3])  # the first prompt leaves
    state = model.select(model.step(tokens_RT, state).state, rows)
    last = ids(3, 1)
    expected = model.logits(model(torch.cat((first_R3[rows], tokens_RT[rows], last), 1)))[:, -1:]
    close(model.step(last, state).logits_RTV, expected)


@torch.inference_mode()
def test_search_writes_on_from_a_prompt() -> None:
    model, prompts_N3 = language_model({"positions": "rotary"}), ids(N, 3)
    found = search(model, prompts_N3, DecodingConfig(beam=1), [6] * N, end_id=3, pad_id=0)
    for prompt, [hypothesis] in zip(prompts_N3.tolist(), found, strict=True):
        written = list(prompt)
        while len(written) < 3 + 6 and written[-1] != 3:
            logits_V = model.logits(model(torch.tensor([written])))[0, -1]
            logits_V[0] = float("-inf")
            written.append(int(logits_V.argmax()))
        assert hypothesis.tokens == tuple(token for token in written[3:] if token != 3)


def test_prompts_of_several_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        language_model({}).encode(sources())


@pytest.mark.parametrize(("embeddings", "tables"), [("shared", 1), ("output", 1), ("separate", 2)])
def test_output_of_the_language_model_is_tied_unless_separate(embeddings: str, tables: int) -> None:
    model = LanguageModel(config(family="decoder", embeddings=embeddings))
    assert len({model.embedding.tokens.weight, model.output.weight}) == tables


# The readers and writers of other things


def test_pooler_is_a_layer_on_the_pooled_state() -> None:
    reader = shaken(TextReader(config(family="encoder", head="label", pooling="first", pooler=True)))
    read = reader(sources())
    assert reader.width == D and reader.pooler is not None
    first_ND = read.states_BSD[:, 0]
    close(read.pooled_BD, torch.tanh(first_ND @ reader.pooler.weight.T + reader.pooler.bias))


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_a_transformer_writes_about_pictures(positions: str) -> None:
    model = shaken(Transformer(config(input="image", image_size=6, patch_size=2, channels=3, positions=positions)))
    pictures_NCYX, tgt_NT = torch.randn(N, 3, 6, 6), ids(N, T)
    pictures_NCYX[1] = 0  # black is no padding
    memory = model.encode(pictures_NCYX)
    assert memory.allowed_N11S is None and memory.source[0].k_BHSK.shape == (N, H, 9, K)
    first, state = model.start(memory, 1)
    expected = model.logits(model(pictures_NCYX, torch.cat((first, tgt_NT), 1)))
    close(steps(model, first, state, tgt_NT), expected)
    assert len({id(model.target_embedding.tokens.weight), id(model.output.weight)}) == 1


def test_scaled_output_divides_the_states() -> None:
    plain, scaled = Transformer(config()).eval(), Transformer(config(scale_output=True)).eval()
    scaled.load_state_dict(plain.state_dict())
    src_NS, tgt_NT = sources(), ids(N, T)
    close(scaled(src_NS, tgt_NT), plain(src_NS, tgt_NT) / math.sqrt(D))


# Beginnings and sizes


def deviation(weights: Tensor) -> float:
    return float(weights.detach().std())


def test_initial_weights_have_the_spread_of_their_scheme() -> None:
    sizes = {"model_dim": 128, "inner_dim": 256, "num_heads": 4, "key_dim": 32, "value_dim": 64, "vocab_size": 401}
    narrow = LanguageModel(config(**sizes, family="decoder", positions="learned", scale_embeddings=False))
    layer: Any = narrow.decoder.layers[0]
    assert narrow.embedding.positions is not None
    for weights in (
        narrow.output.weight, narrow.embedding.positions.table_LD, layer.attention.in_weight,
        layer.attention.out.weight, layer.feed_forward.outer.weight,
    ):  # fmt: skip
        assert deviation(weights) == pytest.approx(0.02, rel=0.1)
    assert layer.feed_forward.inner.bias.abs().max() == 0

    t5 = {"positions": "relative", "scale_attention": False, "scale_embeddings": False, "scale_output": True}
    layer = Transformer(config(**sizes, **t5)).encoder.layers[0]
    q, k, v = layer.attention.in_parts()
    for weights, expected in (
        (q, (128 * 32) ** -0.5), (k, 128**-0.5), (v, 128**-0.5), (layer.attention.out.weight, (4 * 64) ** -0.5),
        (layer.feed_forward.inner.weight, 128**-0.5), (layer.feed_forward.outer.weight, 256**-0.5),
    ):  # fmt: skip
        assert deviation(weights) == pytest.approx(expected, rel=0.1)

    layer = Transformer(config(**sizes)).encoder.layers[0]
    for part, rows in zip(layer.attention.in_parts(), (128, 128, 256), strict=True):
        assert float(part.detach().abs().max()) == pytest.approx(math.sqrt(6 / (128 + rows)), rel=0.01)


@pytest.mark.parametrize("scaled", [True, False], ids=["tied and scaled", "separate"])
def test_t5_starts_with_logits_of_variance_one(scaled: bool) -> None:
    options = {"positions": "relative", "scale_attention": False, "scale_embeddings": False, "norm": "rms"}
    embeddings = "shared" if scaled else "separate"
    model = Transformer(config(**options, scale_output=scaled, embeddings=embeddings, model_dim=128, vocab_size=401))
    logits = model.eval().logits(model(ids(N, S), ids(N, T)))
    assert 0.5 < deviation(logits) < 2


@pytest.mark.parametrize(
    ("preset", "network", "vocab_size", "millions"),
    [
        ("bert-base", TextReader, 30522, (109, 111)),
        ("bert-large", TextReader, 30522, (334, 341)),
        ("gpt2", LanguageModel, 50257, (124, 125)),
        ("t5-small", Transformer, 32128, (60, 61)),
    ],
)
def test_parameter_counts_of_the_papers(
    preset: str, network: type[nn.Module], vocab_size: int, millions: tuple[int, int]
) -> None:
    with torch.device("meta"):
        model = network(build({"model": {"vocab_size": vocab_size}}, preset=preset).model)
    assert millions[0] * 1e6 <= count_parameters(model) <= millions[1] * 1e6
