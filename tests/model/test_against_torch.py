"""The Transformer equals `torch.nn.Transformer` on the same weights: forward and gradients, post-norm and pre-norm."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels import AttentionLayout
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.encoder import EncoderLayer
from clearhead.model.transformer import Transformer
from tests.model.options import padded_layout

# N sentences, S source length, T target length, V vocabulary: distinct primes
N, S, T, V = 3, 7, 5, 23


def config(norm: str) -> ModelConfig:
    """Sizes in which no two axes are alike."""
    return ModelConfig.model_validate(
        {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 22, "feed_forward_dim": 17, "num_heads": 11,
         "dropout": 0.0, "norm_placement": norm, "vocab_size": V}
    )  # fmt: skip


def copy_attention(model: MultiHeadAttention, reference: nn.MultiheadAttention) -> None:
    """Copy the weights; queries, keys and values are one matrix in torch."""
    assert reference.in_proj_weight is not None
    parts = zip(reference.in_proj_weight.chunk(3), reference.in_proj_bias.chunk(3), strict=True)
    for projection, (weight, bias) in zip((model.query, model.key, model.value), parts, strict=True):
        projection.load_state_dict({"weight": weight, "bias": bias})
    model.output.load_state_dict(reference.out_proj.state_dict())


def copy_layer(model: EncoderLayer | DecoderLayer, reference: nn.Module) -> None:
    """Copy the weights of one layer."""
    copy_attention(model.self_attention, reference.self_attn)  # type: ignore[arg-type]
    residuals = [model.self_attention_residual]
    if isinstance(model, DecoderLayer):
        copy_attention(model.cross_attention, reference.multihead_attn)  # type: ignore[arg-type]
        residuals.append(model.cross_attention_residual)
    residuals.append(model.feed_forward_residual)
    for number, residual in enumerate(residuals, 1):
        residual.norm.load_state_dict(getattr(reference, f"norm{number}").state_dict())
    model.feed_forward.w1.load_state_dict(reference.linear1.state_dict())  # type: ignore[union-attr]
    model.feed_forward.w2.load_state_dict(reference.linear2.state_dict())  # type: ignore[union-attr]


def pair(norm: str) -> tuple[Transformer, nn.Transformer]:
    """Return a network and torch's with the same random weights, including biases and norms."""
    sizes = config(norm)
    reference = nn.Transformer(
        sizes.model_dim, sizes.num_heads, sizes.num_encoder_layers, sizes.num_decoder_layers, sizes.feed_forward_dim,
        dropout=0.0, batch_first=True, norm_first=norm == "pre",
    )  # fmt: skip
    if norm == "post":  # torch always has a last norm; the paper's post-norm stack has none
        reference.encoder.norm = None
        reference.decoder.norm = None
    model = Transformer(sizes)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for stack, reference_stack in ((model.encoder, reference.encoder), (model.decoder, reference.decoder)):
            for layer, reference_layer in zip(stack.layers, reference_stack.layers, strict=True):
                copy_layer(layer, reference_layer)  # type: ignore[arg-type]
            if norm == "pre":
                stack.norm.load_state_dict(reference_stack.norm.state_dict())
    return model, reference


def padded_sources() -> Tensor:
    """Source ids with padding in two rows."""
    src_NS = torch.randint(4, V, (N, S))
    src_NS[0, 5:] = 0
    src_NS[2, 3:] = 0
    return src_NS


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a warning of torch's fast path
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_forward_and_gradients_equal_torch(norm: str) -> None:
    model, reference = pair(norm)
    src_NS, tgt_NT = padded_sources(), torch.randint(4, V, (N, T))
    x_NSD = model.source_embedding(src_NS, padded_layout(S)).detach().requires_grad_()
    y_NTD = model.target_embedding(tgt_NT, padded_layout(T)).detach().requires_grad_()
    padding_NS = src_NS == 0
    expected = reference(
        x_NSD, y_NTD, tgt_mask=nn.Transformer.generate_square_subsequent_mask(T),
        src_key_padding_mask=padding_NS, memory_key_padding_mask=padding_NS, tgt_is_causal=True,
    )  # fmt: skip
    hidden = model(src_NS, tgt_NT)
    torch.testing.assert_close(hidden, expected, atol=2e-6, rtol=1e-5)

    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    hidden.backward(gradient)
    for layer, reference_layer in zip(model.decoder.layers, reference.decoder.layers, strict=True):
        for name in ("self_attention", "cross_attention"):
            projections = reference_layer.self_attn if name == "self_attention" else reference_layer.multihead_attn
            attention: MultiHeadAttention = getattr(layer, name)
            gradients = [each.weight.grad for each in (attention.query, attention.key, attention.value)]
            torch.testing.assert_close(gradients, [*projections.in_proj_weight.grad.chunk(3)], atol=1e-5, rtol=1e-4)
    layers: Any = model.encoder.layers
    for part, reference_part in (
        (layers[0].feed_forward.w1, reference.encoder.layers[0].linear1),
        (layers[1].feed_forward.w2, reference.encoder.layers[1].linear2),
    ):
        torch.testing.assert_close(part.weight.grad, reference_part.weight.grad, atol=1e-5, rtol=1e-4)


def test_weights_equal_torchs_heads() -> None:
    reference = nn.MultiheadAttention(22, 11, batch_first=True)
    model = MultiHeadAttention(config("post"))
    with torch.no_grad():
        copy_attention(model, reference)
    x_NTD, memory_NSD = torch.randn(N, T, 22), torch.randn(N, S, 22)
    allowed_N11S = (padded_sources() != 0)[:, None, None, :]
    expected, reference_weights = reference(
        x_NTD, memory_NSD, memory_NSD, key_padding_mask=~allowed_N11S[:, 0, 0], average_attn_weights=False
    )
    layout = AttentionLayout(padded_layout(T), padded_layout(S), allowed=allowed_N11S)
    for want_weights in (False, True):
        y, weights = model(model.queries(x_NTD), model.keys_values(memory_NSD), layout, want_weights)
        torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights, reference_weights, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(N, 11, T))
