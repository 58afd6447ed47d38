"""Export of translation and language models to CTranslate2, with the public model specification classes of the library.

A model with a setting that CTranslate2 does not support is refused; the error names the setting.

L positions, D model width, U buckets of relative positions, H heads, N outputs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.config.model import field_default
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import InteropError
from clearhead.extras import require_package
from clearhead.interop.settings import require_unchanged, unsupported_settings
from clearhead.kernels.linear_layers import concatenate_weights
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import PositionedEmbedding
from clearhead.model.encoder import Stack, TransformerLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.runtime import ComputeType

if TYPE_CHECKING:
    from clearhead.model.language_model import LanguageModel
    from clearhead.model.transformer import Transformer

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
_SUPPORTED = {
    "num_encoder_layers", "num_decoder_layers", "model_dim", "feed_forward_dim", "num_heads", "scale_attention",
    "dropout", "norm_epsilon", "norm_placement", "gated", "bias", "positions", "max_positions", "relative_max_distance",
    "tied_embeddings",
    "scale_embeddings", "embedding_norm", "scale_output", "vocab_size", "pad_id", "decoder_start_id", "eos_id",
    "pooling",
    "family", "head", "input", "norm", "activation", "key_dim", "value_dim", "relative_buckets", "source_vocab_size",
    "output_bias", "sinusoidal_layout", "final_norm", "attention_dropout",
}  # fmt: skip
"""Settings that this module converts, or that only affect training."""
_MIN_BUCKETS = 4
"""Fewest buckets of relative positions: CTranslate2 divides by the number of buckets for exact distances, which is 0
with fewer buckets."""


@dataclass(frozen=True)
class CTranslate2Vocabulary:
    """Tokens as strings, the input and output of CTranslate2, in the order of their ids."""

    tokens: Sequence[str]
    separate_source_tokens: Sequence[str] = ()
    """Tokens of sources, if they have another vocabulary."""
    unknown_id: int = 1
    """Id of <unk>, or of the token that replaces it."""

    @property
    def source_tokens(self) -> Sequence[str]:
        """Tokens of sources."""
        return self.separate_source_tokens or self.tokens


def _library() -> Any:
    """Return the module `ctranslate2`."""
    return require_package("ctranslate2", "CTranslate2")


def unsupported(config: ModelConfig) -> list[str]:
    """Return the settings that CTranslate2 does not support, each with its value and the expected one."""
    supported: dict[str, Any] = {
        "family": ("transformer", "decoder"),
        "head": "generation",
        "input": "tokens",
        "norm": ("layer", "rms"),
        "activation": tuple(_ACTIVATIONS),
    }
    if config.head_key_dim != config.head_value_dim:  # CTranslate2 has one head width
        supported["value_dim"] = config.head_key_dim
    if config.positions == "relative" and config.relative_buckets < _MIN_BUCKETS:
        supported["relative_buckets"] = f"at least {_MIN_BUCKETS}"
    if config.family in supported["family"]:  # settings of other families have no counterpart
        for name in ModelConfig.model_fields:
            if name not in _SUPPORTED:
                supported.setdefault(name, field_default(name))
    return unsupported_settings(config, supported)


def vocabulary_of(tokenizer: Tokenizer) -> CTranslate2Vocabulary:
    """Return the tokens of source and target; the end token replaces <unk> if a vocabulary such as GPT-2's has none."""
    sides = [[side.token(index) for index in range(side.vocab_size)] for side in (tokenizer, tokenizer.target)]
    unknown = tokenizer.target.unk_id if tokenizer.target.unk_id >= 0 else tokenizer.target.eos_id
    return CTranslate2Vocabulary(sides[1], sides[0] if sides[0] != sides[1] else (), unknown)


def convert(
    network: nn.Module, vocabulary: CTranslate2Vocabulary, folder: Path, compute_type: ComputeType = "float32"
) -> None:
    """Write the files of the converted network into an empty folder; with int8, matrices take a quarter of the size."""
    spec = _build_spec(network, vocabulary)
    spec.validate()
    spec.optimize(quantization=compute_type)
    spec.save(str(folder))


def _build_spec(network: Any, vocabulary: CTranslate2Vocabulary) -> Any:
    """Return a translation model as a `TransformerSpec`, or a language model as a `TransformerDecoderModelSpec`."""
    require_unchanged(network)
    config: ModelConfig = network.config
    if settings := unsupported(config):
        raise InteropError(f"CTranslate2 cannot express {', '.join(settings)}")
    with torch.no_grad():
        spec = (
            _transformer_spec(network, vocabulary)
            if config.family == "transformer"
            else _language_model_spec(network, vocabulary)
        )
    tokens = vocabulary.tokens
    spec.config.unk_token = tokens[vocabulary.unknown_id]
    spec.config.bos_token = tokens[config.decoder_start_id]
    spec.config.eos_token = tokens[config.eos_id]
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _transformer_spec(network: "Transformer", vocabulary: CTranslate2Vocabulary) -> Any:
    """Return the spec of an encoder-decoder."""
    config, specs = network.config, _library().specs
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, **_spec_options(config))
    decoder = specs.TransformerDecoderSpec(config.num_decoder_layers, **_spec_options(config))
    assert isinstance(network.source_embedding, PositionedEmbedding)
    _fill_stack(encoder, network.encoder, network.source_embedding, config)
    _fill_stack(decoder, network.decoder, network.target_embedding, config)
    for layer_spec, layer in zip(decoder.layer, network.decoder.layers, strict=True):
        _fill_cross(layer_spec.attention, layer.cross_attention)  # type: ignore[arg-type]
        _fill_norm(layer_spec.attention.layer_norm, layer.cross_attention_residual.norm)  # type: ignore[arg-type]
    _fill_linear(decoder.projection, network.output)
    if config.scale_output:
        decoder.scale_outputs = config.model_dim**-0.5
    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(list(vocabulary.source_tokens))
    spec.register_target_vocabulary(list(vocabulary.tokens))
    spec.config.decoder_start_token = vocabulary.tokens[config.decoder_start_id]
    return spec


def _language_model_spec(network: "LanguageModel", vocabulary: CTranslate2Vocabulary) -> Any:
    """Return the spec of a decoder-only model."""
    config, specs = network.config, _library().specs
    shape = _spec_options(config)
    decoder = specs.TransformerDecoderSpec(config.num_decoder_layers, **shape, with_encoder_attention=False)
    _fill_stack(decoder, network.decoder, network.embedding, config)
    decoder.projection.weight = _array(network.output.weight)
    spec = specs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(list(vocabulary.tokens))
    return spec


def _spec_options(config: ModelConfig) -> dict[str, Any]:
    """Return the arguments that encoder and decoder specs have in common."""
    activations = _library().specs.Activation
    shape: dict[str, Any] = {
        "num_heads": config.num_heads,
        "pre_norm": config.has_final_norm,  # adds the final norm; the placement is set on the stack
        "activation": activations[_ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.gated,
        "rms_norm": config.norm == "rms",
        "relative_attention_bias": config.positions == "relative",
    }
    if config.head_key_dim * config.num_heads != config.model_dim:
        shape["head_dim"] = config.head_key_dim
    if config.positions == "rotary":  # all dimensions of a head, the first half paired with the second
        shape |= {"rotary_dim": config.head_key_dim, "rotary_interleave": False, "rotary_base": 10000.0}
    return shape


def _fill_stack(spec: Any, stack: Stack, embedding: PositionedEmbedding, config: ModelConfig) -> None:
    """Fill the embeddings and positions, the layers except for cross-attention, and the final norm."""
    tables = spec.embeddings if isinstance(spec.embeddings, list) else [spec.embeddings]
    tables[0].weight = _array(embedding.tokens.weight)
    spec.pre_norm = config.norm_placement == "pre"
    spec.scale_embeddings = config.scale_embeddings
    if stack.relative_bias is None and stack.rotary is None:
        spec.position_encodings.encodings = _positions(embedding, config.max_positions)
    if config.embedding_norm:
        _fill_norm(spec.layernorm_embedding, embedding.norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, TransformerLayer)
        _fill_self(layer_spec.self_attention, layer.self_attention, stack)
        _fill_norm(layer_spec.self_attention.layer_norm, layer.self_attention_residual.norm)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward)
        _fill_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    if not isinstance(stack.norm, nn.Identity):
        _fill_norm(spec.layer_norm, stack.norm)


def _positions(embedding: PositionedEmbedding, max_positions: int) -> Any:
    """Return table_LD of the position encodings; all zeros for a model without positions.

    The table has one additional row, because CTranslate2 also reads the row after the last position when it scores an
    output of maximum length; it ignores the result.
    """
    if embedding.positions is None:
        return _array(torch.zeros(max_positions + 1, embedding.tokens.weight.shape[1]))
    return _array(F.pad(embedding.positions.weight, (0, 0, 0, 1)))


def _fill_self(spec: Any, attention: MultiHeadAttention, stack: Stack) -> None:
    """Fill self-attention; CTranslate2 concatenates the projections of queries, keys and values."""
    _fill_linear(spec.linear[0], attention.query, attention.key, attention.value)
    _fill_linear(spec.linear[1], attention.output)
    _fill_scale(spec, attention)
    if stack.relative_bias is not None:
        table_UH = stack.relative_bias.weight
        num_exact = len(table_UH) // (4 if stack.relative_bias.is_bidirectional else 2)
        spec.relative_attention_bias = _array(table_UH)
        distance = max(stack.relative_bias.max_distance, num_exact + 1)
        spec.relative_attention_max_distance = _array(torch.tensor(distance, dtype=torch.int32))


def _fill_cross(spec: Any, attention: MultiHeadAttention) -> None:
    """Fill cross-attention; CTranslate2 concatenates the projections of keys and values."""
    _fill_linear(spec.linear[0], attention.query)
    _fill_linear(spec.linear[1], attention.key, attention.value)
    _fill_linear(spec.linear[2], attention.output)
    _fill_scale(spec, attention)


def _fill_scale(spec: Any, attention: MultiHeadAttention) -> None:
    """Set the scale of queries. By default, CTranslate2 divides by sqrt(model_dim / num_heads)."""
    spec.queries_scale = float(attention.scale)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward) -> None:
    _fill_linear(spec.linear_0, feed_forward.w1)
    _fill_linear(spec.linear_1, feed_forward.w2)
    if feed_forward.w3 is not None:
        _fill_linear(spec.linear_0_noact, feed_forward.w3)


def _fill_linear(spec: Any, *projections: Any) -> None:
    """Fill one linear layer; several projections are concatenated."""
    weight_ND, bias_N = concatenate_weights(projections)
    spec.weight = _array(weight_ND)
    if bias_N is not None:
        spec.bias = _array(bias_N)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    """Fill a norm; layer norm without a bias gets a bias of zeros."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _array(tensor: Tensor) -> Any:
    """Return a NumPy copy, since CTranslate2 quantizes in place."""
    return tensor.detach().cpu().clone().numpy()
