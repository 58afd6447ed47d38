"""Models that generate text as ONNX graphs: the encoder, and one decoder step whose KV cache is input and output.

    encoder.onnx   src -> allowed, and source_k_0, source_v_0, ... of every decoder layer
    decoder.onnx   token, allowed, source_k_0, ..., past_k_0, past_v_0, ... -> logits, past_k_0_next, ...
    config.json    the model section of the bundle, with the special ids and the number of positions

Each row of a batch is a hypothesis: beam search repeats the rows of the source, and reorders the rows of the past. The
past is empty (length 0) at the first step and grows by one position per step. A language model has no encoder and no
source.

N rows, S source length, P length of the past, H heads, K and E widths of a head, V vocabulary
"""

import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.extras import require_package
from clearhead.files import write_new
from clearhead.interop.settings import require_unchanged, unsupported_settings
from clearhead.kernels import PaddedLayout
from clearhead.model.attention import KVCache
from clearhead.model.decoder import Memory
from clearhead.model.language_model import LanguageModelState
from clearhead.model.transformer import DecoderState

if TYPE_CHECKING:
    from clearhead.model.language_model import LanguageModel
    from clearhead.model.transformer import Transformer

_MAX_SINGLE_FILE = 1 << 30
"""Bytes of weights up to which the graph and its weights are one file; ONNX limits a file to 2 GiB."""


class EncoderGraph(nn.Module):
    """Encoder, and the keys and values of cross-attention."""

    def __init__(self, network: "Transformer") -> None:
        super().__init__()
        self.network = network

    def forward(self, src_NS: Tensor) -> tuple[Tensor, ...]:
        """Return allowed_N11S, also for sources without padding, and the keys and values of each decoder layer."""
        network = self.network
        memory = network.encode(src_NS)
        assert memory.layout.allowed_B11S is not None
        return memory.layout.allowed_B11S, *_flatten_caches(memory.keys_values)


class DecoderGraph(nn.Module):
    """One decoder step of an encoder-decoder."""

    def __init__(self, network: "Transformer") -> None:
        super().__init__()
        self.network = network

    def forward(self, token_N1: Tensor, allowed_N11S: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """Return logits_NV of the next token, and the past extended by this one.

        `cache` contains the keys and values of the source, then those of the past.
        """
        pairs = _to_caches(cache)
        source, past = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
        layout = PaddedLayout.of(allowed_N11S.shape[3], token_N1.device, allowed_B11S=allowed_N11S)
        state = DecoderState(Memory(source, layout), 1, past, past[0].k_HK.shape[1])
        step = self.network.step(token_N1, state)
        return step.logits_RTV[:, 0], *_flatten_caches(step.state.caches)


class LanguageGraph(nn.Module):
    """One step of a language model."""

    def __init__(self, network: "LanguageModel") -> None:
        super().__init__()
        self.network = network

    def forward(self, token_N1: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """Return logits_NV of the next token, and the past extended by this one."""
        past = _to_caches(cache)
        step = self.network.step(token_N1, LanguageModelState(past, past[0].k_HK.shape[1]))
        return step.logits_RTV[:, 0], *_flatten_caches(step.state.caches)


def unsupported(config: ModelConfig) -> list[str]:
    """Return the settings that cannot be exported; every encoder and every Transformer that reads text can be."""
    if config.head != "generation":
        return []
    return unsupported_settings(config, {"family": ("transformer", "decoder"), "input": "tokens"})


def write_generator(network: Any, folder: Path) -> None:
    """Write the graphs of a network into an empty folder."""
    require_onnx(network)
    config: ModelConfig = network.config
    if config.family == "transformer":
        _write_encoder(network, folder / "encoder.onnx")
    _write_decoder(network, folder / "decoder.onnx")
    write_new(folder / "config.json", (json.dumps(config.model_dump(mode="json"), indent=2) + "\n").encode())


def _write_encoder(network: "Transformer", path: Path) -> None:
    config = network.config
    axes = {0: torch.export.Dim("N"), 1: torch.export.Dim("S", max=config.max_positions)}
    outputs = ["allowed", *_cache_names("source", config.num_decoder_layers)]
    src_NS = torch.full((3, min(5, config.max_positions)), config.eos_id)
    export_graph(EncoderGraph(network), (src_NS,), ({**axes},), ["src"], outputs, path)


def _write_decoder(network: Any, path: Path) -> None:
    """Write the decoder step. The example has a non-empty past, but the graph accepts any length from 0 on."""
    config: ModelConfig = network.config
    layers, has_source = config.num_decoder_layers, config.family == "transformer"
    rows, source_length, past_length = 3, 5, min(4, config.max_positions - 1)
    by_row = {0: torch.export.Dim("N")}
    by_source = {**by_row, 2: torch.export.Dim("S", max=config.max_positions)}
    by_past = {**by_row, 2: torch.export.Dim("P", max=config.max_positions - 1)}
    inputs, arguments, axes = ["token"], [torch.full((rows, 1), config.decoder_start_id)], [by_row]
    cache: list[Tensor] = []
    cache_axes: list[dict[int, Any]] = []
    if has_source:
        inputs += ["allowed", *_cache_names("source", layers)]
        arguments.append(torch.ones(rows, 1, 1, source_length, dtype=torch.bool))
        axes.append({**by_row, 3: by_source[2]})
        cache += _flatten_caches(_zeros(config, rows, source_length) for _ in range(layers))
        cache_axes += [by_source] * (2 * layers)
    inputs += _cache_names("past", layers)
    cache += _flatten_caches(_zeros(config, rows, past_length) for _ in range(layers))
    cache_axes += [by_past] * (2 * layers)
    outputs = ["logits", *(f"{name}_next" for name in _cache_names("past", layers))]
    graph = DecoderGraph(network) if has_source else LanguageGraph(network)
    export_graph(graph, (*arguments, *cache), (*axes, tuple(cache_axes)), inputs, outputs, path)


def require_onnx(network: nn.Module) -> None:
    """Raise an error if the network cannot be traced: hooks are attached, or the package onnxscript is missing."""
    require_unchanged(network)
    require_package("onnxscript", "export --to onnx")  # used by torch.onnx


def export_graph(
    graph: nn.Module,
    arguments: tuple[Tensor, ...],
    axes: tuple[Any, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    path: Path,
) -> None:
    """Trace a module with dynamic axes and write it as one file; weights above _MAX_SINGLE_FILE go to a second file."""
    size = sum(parameter.nbytes for parameter in graph.parameters())
    with torch.no_grad(), _suppress_messages():
        program = torch.onnx.export(
            graph.eval(),
            arguments,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=axes,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        _strip_metadata(program.model)
        program.save(path, external_data=size > _MAX_SINGLE_FILE)


def _strip_metadata(model: Any) -> None:
    """Remove the stack traces that torch's exporter adds: they contain local paths and are half of a small file."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()


@contextmanager
def _suppress_messages() -> Iterator[None]:
    """Suppress the exporter's messages to its own developers: missing packages, merged axes, constant folding."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _cache_names(prefix: str, num_layers: int) -> list[str]:
    """Return the names of keys and values, which are inputs or outputs of a graph."""
    return [f"{prefix}_{letter}_{layer}" for layer in range(num_layers) for letter in "kv"]


def _zeros(config: ModelConfig, rows: int, length: int) -> KVCache:
    """Return a cache for the example input of a graph."""
    shape = rows, length, config.num_heads
    return KVCache(torch.zeros(*shape, config.head_key_dim), torch.zeros(*shape, config.head_value_dim))


def _flatten_caches(caches: Iterable[KVCache]) -> list[Tensor]:
    """Return keys and values in the layout of the graph, [N, H, S, K]."""
    return [tensor.transpose(1, 2) for cache in caches for tensor in cache]


def _to_caches(tensors: Sequence[Tensor]) -> tuple[KVCache, ...]:
    """Return the KV caches from inputs of the graph."""
    pairs = zip(tensors[::2], tensors[1::2], strict=True)
    return tuple(KVCache(k_BHSK.transpose(1, 2), v_BHSE.transpose(1, 2)) for k_BHSK, v_BHSE in pairs)
