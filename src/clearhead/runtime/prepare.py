"""Preparation of a model for the C++ core: numeric settings, position tables, and the check of its architecture."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from clearhead.config import ModelConfig
from clearhead.errors import BundleError
from clearhead.runtime.availability import instruction_set, why_unavailable
from clearhead.runtime.native_model import ComputeType, NativeModel

Floats = NDArray[np.float32]

ARCHITECTURES = {"transformer": 0, "decoder": 1, "encoder": 2}
NORMS = {"layer": 1, "rms": 2, "sample": 3}
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "tanh": 4}
POOLINGS = {"first": 0, "mean": 1, "last": 2}
POSITIONS = {"none": 0, "sinusoidal": 1, "learned": 1, "relative": 2, "rotary": 3}
FAIRSEQ_OFFSET = 2  # fairseq counts positions from 2: 0 and 1 are reserved for padding


def why_unsupported(model: ModelConfig) -> str:
    """Return one reason why the core cannot run this architecture; empty if it can."""
    if model.family not in ARCHITECTURES:
        return f"model.family={model.family} runs in torch"
    if model.input == "image":
        return "images are encoded in torch"
    if model.norm not in NORMS:
        return f"model.norm={model.norm} runs in torch"
    if not model.residual:
        return "model.residual=false, an ablation, runs in torch"
    return ""


def prepare(
    model: ModelConfig, tensors: Mapping[str, NDArray[np.generic]], compute_type: ComputeType = "float32"
) -> NativeModel:
    """Return the model with its weights prepared for the core.

    `tensors` are those of a bundle; both names of a tied tensor refer to the same array. Raises BundleError if a tensor
    is missing, unexpected or does not have the shape in the settings, or if tied tensors differ.
    """
    if problem := why_unavailable() or why_unsupported(model):
        raise BundleError(problem)
    from clearhead.runtime import _core

    arrays: dict[str, Floats] = {}
    converted: dict[int, Floats] = {}
    for name, tensor in tensors.items():
        arrays[name] = converted.setdefault(id(tensor), np.ascontiguousarray(tensor, dtype=np.float32))
    try:
        arrays = _replace_position_tables(model, _with_tied_names(model, arrays))
        core = _core.Model(_settings(model, compute_type), arrays, instruction_set())
    except (ValueError, IndexError, OverflowError) as error:
        raise BundleError(f"the weights do not fit the settings: {error}") from error
    return NativeModel(core, model, compute_type)


def _with_tied_names(model: ModelConfig, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """Return the tensors with every name of tied embeddings. Raises ValueError if tied tensors differ."""
    source, target = "source_embedding.tokens.weight", "target_embedding.tokens.weight"
    tied: dict[str, str] = {}
    if model.family == "encoder":
        tied = {"output.weight": "backbone.embedding.tokens.weight"} if model.head == "masked_lm" else {}
    elif model.family == "decoder":
        tied = {"output.weight": "embedding.tokens.weight"} if model.tied_embeddings in ("all", "target") else {}
    elif model.tied_embeddings == "all":
        tied = {target: source, "output.weight": source}
    elif model.tied_embeddings == "target":
        tied = {"output.weight": target}
    elif model.tied_embeddings == "input":
        tied = {target: source}
    for name, first in tied.items():
        if first not in arrays:
            raise ValueError(f"the tensor {first} is missing")
        if not np.array_equal(arrays.get(name, arrays[first]), arrays[first], equal_nan=True):
            raise ValueError(f"the tensor {name} must be tied to {first}, but differs from it")
    return {**arrays, **{name: arrays[first] for name, first in tied.items()}}


def _settings(model: ModelConfig, compute_type: ComputeType) -> dict[str, float]:
    """Return the settings that the core reads."""
    is_encoder = model.family == "encoder"
    return {
        "architecture": ARCHITECTURES[model.family],
        "encoder_layers": 0 if model.family == "decoder" else model.num_encoder_layers,
        "decoder_layers": 0 if is_encoder else model.num_decoder_layers,
        "width": model.model_dim,
        "feed_forward": model.feed_forward_dim,
        "heads": model.num_heads,
        "key_width": model.head_key_dim,
        "value_width": model.head_value_dim,
        "vocabulary": model.vocab_size,
        "source_vocabulary": model.input_vocab_size,
        "max_positions": model.max_positions,
        "labels": model.num_labels if is_encoder else 0,
        "segments": model.num_segments,
        "query_scale": model.head_key_dim**-0.5 if model.scale_attention else 1.0,
        "embedding_scale": math.sqrt(model.model_dim) if model.scale_embeddings else 1.0,
        "output_scale": model.model_dim**-0.5 if model.scale_output else 1.0,
        "norm_epsilon": model.norm_epsilon,
        "norm": NORMS[model.norm],
        "activation": ACTIVATIONS[model.activation],
        "pooler_activation": ACTIVATIONS[model.pooler_activation],
        "pooling": POOLINGS[model.pooling],
        "positions": POSITIONS[model.positions],
        "bias": model.bias,
        "output_bias": model.output_bias or model.head == "masked_lm",
        "pre_norm": model.norm_placement == "pre",
        "final_norm": model.has_final_norm,
        "gated": model.gated,
        "embedding_norm": model.embedding_norm,
        "int8": compute_type == "int8",
        "has_masked_head": model.head == "masked_lm",
        "has_classifier": model.head in ("classification", "token_classification"),
        "has_pooler": is_encoder and model.pooler,
    }


def _replace_position_tables(model: ModelConfig, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """Return the tensors with the position tables in the form that the core reads.

    Raises ValueError for relative biases of the wrong shape, and if `arrays` already contains the name of a table.
    """
    tables: dict[str, Floats] = {}
    if model.positions == "sinusoidal":
        table_LD = sinusoids(model.max_positions, model.model_dim, model.sinusoidal_layout)
        names = {"transformer": ("source_embedding", "target_embedding"), "decoder": ("embedding",)}
        tables = {f"{name}.positions.weight": table_LD for name in names.get(model.family, ("backbone.embedding",))}
    elif model.positions == "rotary":
        table_LK = sinusoids(model.max_positions, model.head_key_dim, "interleaved")
        cos_LK, sin_LK = (np.ascontiguousarray(table_LK[:, first::2]) for first in (1, 0))
        tables = {"rotary.cos": cos_LK, "rotary.sin": sin_LK}
    elif model.positions == "relative":
        stacks = {"transformer": ("encoder", "decoder"), "decoder": ("decoder",)}
        for stack in stacks.get(model.family, ("backbone.encoder",)):
            bias = f"{stack}.relative_bias"
            tables[bias] = _relative_table(model, arrays.pop(f"{bias}.weight", None), bias)
    for name in tables:
        if name in arrays:
            raise ValueError(f"the tensor {name} does not belong to the model")
    return {**arrays, **tables}


def _relative_table(model: ModelConfig, weight_BH: Floats | None, name: str) -> Floats:
    """Return the relative biases [heads, offsets] of a stack, by offset: key minus query.

    Column i is offset i - (L - 1); in a decoder, which attends to earlier keys only, it is offset -i.
    B buckets, H heads, L positions
    """
    shape, length = (model.relative_buckets, model.num_heads), model.max_positions
    if weight_BH is None or weight_BH.shape != shape:
        problem = "is missing" if weight_BH is None else f"has shape {[*weight_BH.shape]}; the settings say {[*shape]}"
        raise ValueError(f"the tensor {name}.weight {problem}")
    is_causal = name.startswith("decoder.")
    offsets = -np.arange(length) if is_causal else np.arange(1 - length, length)
    buckets = relative_buckets(offsets, model.relative_buckets, model.relative_max_distance, not is_causal)
    return np.ascontiguousarray(weight_BH[buckets].T)


def sinusoids(num_positions: int, model_dim: int, layout: str) -> Floats:
    """Return the table [positions, model_dim] of section 3.5 in one of the layouts of model.sinusoidal_layout."""
    positions_L1 = np.arange(num_positions, dtype=np.float64)[:, None]
    even = np.arange(0, model_dim, 2, dtype=np.float64)
    if layout == "fairseq":
        positions_L1, half = positions_L1 + FAIRSEQ_OFFSET, model_dim // 2
        even = np.arange(half, dtype=np.float64) * (model_dim / max(1, half - 1))
    angles = positions_L1 / 10000.0 ** (even / model_dim)
    table_LD = np.zeros((num_positions, model_dim))
    if layout == "interleaved":
        table_LD[:, 0::2] = np.sin(angles)
        table_LD[:, 1::2] = np.cos(angles)[:, : model_dim // 2]
    else:
        num_sines = angles.shape[1]
        num_cosines = min(num_sines, model_dim - num_sines)
        table_LD[:, :num_sines] = np.sin(angles)
        table_LD[:, num_sines : num_sines + num_cosines] = np.cos(angles)[:, :num_cosines]
    return table_LD.astype(np.float32)


def relative_buckets(
    offsets: NDArray[np.int64], num_buckets: int, max_distance: int, is_bidirectional: bool
) -> NDArray[np.int64]:
    """Return the bucket of each offset (position of the key minus that of the query), as in T5."""
    first = np.zeros_like(offsets)
    if is_bidirectional:
        num_buckets //= 2
        first = (offsets > 0) * num_buckets
    distances = np.abs(offsets) if is_bidirectional else np.maximum(-offsets, 0)
    num_exact = max(1, num_buckets // 2)
    growth = math.log(max(max_distance, num_exact + 1) / num_exact)
    ratio = np.maximum(distances, num_exact).astype(np.float32) / np.float32(num_exact)
    steps = np.log(ratio) / np.float32(growth) * np.float32(num_buckets - num_exact)
    far = np.minimum(num_exact + steps.astype(np.int64), num_buckets - 1)
    return np.asarray(first + np.where(distances < num_exact, distances, far))
