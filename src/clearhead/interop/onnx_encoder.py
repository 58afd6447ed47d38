"""Encoders with a head as one ONNX graph: classifiers, taggers, masked language models, sentence embeddings, images.

    model.onnx       ids (or pixels) -> logits (or sentence_embedding), for any batch size and length, with padding
    config.json      the model section of the bundle, the task and the labels
    tokenizer.json   a file of the `tokenizers` library that adds the tokens around a text
    README.md        a Python example

B batch, S positions, C channels, Y height, X width, I input width, D model width, G gates, L labels, V vocabulary
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.files import write_new
from clearhead.interop.onnx import export_graph, require_onnx
from clearhead.interop.onnx_readme import readme
from clearhead.interop.tokenizer_files import framed_pipeline
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.recurrent.cells import LayerState
from clearhead.model.recurrent.layers import RecurrentLayer

GRAPH = "model.onnx"
# The operator of each family, and the order in which ONNX stores the gates; torch: (r, z, n) and (i, f, g, o).
_OPERATORS: dict[type[nn.Module], tuple[str, tuple[int, ...]]] = {
    nn.RNN: ("RNN", (0,)),
    nn.GRU: ("GRU", (1, 0, 2)),
    nn.LSTM: ("LSTM", (0, 3, 1, 2)),
}


class HeadGraph(nn.Module):
    """Encoder and head: logits_BL per sequence, or logits_BSL (tags) or logits_BSV (masked words) per position."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of ids_BS or of pixels_BCYX."""
        logits: Tensor = self.network.logits(self.network(inputs))
        return logits


class EmbeddingGraph(nn.Module):
    """Sentence embedding as `clearhead embed` computes it: the mean state over all positions but padding."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids_BS: Tensor) -> Tensor:
        """Return embedding_BD."""
        encoded: EncoderOutput = self.network.backbone(ids_BS)
        return pool(encoded.states_BSD, ids_BS != self.network.config.pad_id, "mean")


def write(config: Config, network: Any, tokenizer: Tokenizer | None, folder: Path) -> None:
    """Write the graph, its settings and an example into an empty folder."""
    require_onnx(network)
    model = config.model
    is_embedding = model.head == "embedding"
    batch = torch.export.Dim("B")
    if model.has_text:
        axes = {0: batch, 1: torch.export.Dim("S", max=model.max_positions)}
        example = torch.full((3, min(5, model.max_positions)), model.eos_id)
    else:
        axes = {0: batch}
        example = torch.zeros(3, model.image_channels, model.image_size, model.image_size)
    graph = EmbeddingGraph(network) if is_embedding else HeadGraph(network)
    names = [input_name(config)], ["sentence_embedding" if is_embedding else "logits"]
    with _onnx_recurrence(network):
        export_graph(graph, (example,), (axes,), *names, folder / GRAPH)
    facts = {"task": config.task, "labels": list(config.labels), **model.model_dump(mode="json")}
    write_new(folder / "config.json", (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())
    mask_token = ""
    if tokenizer is not None:
        write_new(folder / "tokenizer.json", (framed_pipeline(tokenizer, config) + "\n").encode())
        mask_token = "" if tokenizer.mask_id is None else tokenizer.piece(tokenizer.mask_id)
    write_new(folder / "README.md", readme(config, mask_token).encode())


def input_name(config: Config) -> str:
    """Return the name of the graph's input."""
    return "ids" if config.model.has_text else "pixels"


@contextmanager
def _onnx_recurrence(network: nn.Module) -> Iterator[None]:
    """Run recurrent layers as ONNX operators inside: torch.export would unroll them to the length of the example."""
    layers = [module for module in network.modules() if isinstance(module, RecurrentLayer)]
    for layer in layers:
        layer.run_kernel = lambda *given, layer=layer: _run_operator(layer, *given)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.run_kernel


def _run_operator(
    layer: RecurrentLayer, x_BSI: Tensor, start: LayerState, weights: Sequence[Tensor]
) -> tuple[Tensor, LayerState]:
    """Return h_BSD and the last state, as `RecurrentLayer.run_kernel`, from one ONNX operator."""
    operator, order = _OPERATORS[type(layer.rnn)]
    batch, length, width = x_BSI.shape[0], x_BSI.shape[1], layer.model_dim
    parts = [weight.view(len(order), width, *weight.shape[1:])[list(order)].flatten(0, 1)[None] for weight in weights]
    bias = torch.cat(parts[2:], 1) if layer.rnn.bias else None
    shapes = [(length, 1, batch, width), *[(1, batch, width)] * len(start)]
    attributes: dict[str, Any] = {"hidden_size": width}
    if operator == "GRU":
        attributes["linear_before_reset"] = 1  # as torch: the reset gate acts on the product, not on the state
    y_S1BD, *lasts = torch.onnx.ops.symbolic_multi_out(
        f"ai.onnx::{operator}",
        (x_BSI.transpose(0, 1), parts[0], parts[1], bias, None, *(each[None] for each in start)),
        attributes,
        dtypes=[x_BSI.dtype] * len(shapes),
        shapes=shapes,
    )
    return y_S1BD[:, 0].transpose(0, 1), tuple(each[0] for each in lasts)
