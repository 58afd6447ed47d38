"""Encoders with a head as one ONNX graph: classifiers, taggers, masked language models, sentence embeddings, images.

    model.onnx       ids (or pixels) -> logits (or sentence_embedding), for any batch size and length, with padding
    config.json      the model section of the bundle, the task and the labels
    tokenizer.json   a file of the `tokenizers` library that adds the special tokens around a text
    README.md        a description and a Python example for the head of the model

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
from clearhead.interop.huggingface.tokenizers import pipeline_with_special_tokens
from clearhead.interop.onnx.generators import export_graph, require_onnx
from clearhead.model.encoder_output import EncoderOutput, pool
from clearhead.model.recurrent.cells import LayerState
from clearhead.model.recurrent.layers import RecurrentLayer

GRAPH = "model.onnx"
# ONNX operator of each layer type, and the order in which it stores the gates of torch: (r, z, n) and (i, f, g, o).
_OPERATORS: dict[type[nn.Module], tuple[str, tuple[int, ...]]] = {
    nn.RNN: ("RNN", (0,)),
    nn.GRU: ("GRU", (1, 0, 2)),
    nn.LSTM: ("LSTM", (0, 3, 1, 2)),
}
_HEAD = """# {title}

`model.onnx` maps `{input}` to `{output}`; batch size{dynamic} variable. {limits}`config.json` contains
the settings and the labels of the model{tokenizer}.

```python
import json
from pathlib import Path

import numpy as np
import onnxruntime
"""
_TEXT = """from tokenizers import Tokenizer

folder = Path(".")
config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_padding(pad_id=config["pad_id"])
session = onnxruntime.InferenceSession(folder / "model.onnx")

texts = {texts}
encodings = tokenizer.encode_batch(texts)
ids = np.array([encoding.ids for encoding in encodings])
(outputs,) = session.run(None, {{"ids": ids}})
"""
_IMAGE = """from PIL import Image

folder = Path(".")
config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
session = onnxruntime.InferenceSession(folder / "model.onnx")

image = Image.open(folder / "image.png").convert("{mode}").resize((config["image_size"], config["image_size"]))
pixels = np.asarray(image, dtype=np.float32).reshape(config["image_size"], config["image_size"], -1)
(outputs,) = session.run(None, {{"pixels": pixels.transpose(2, 0, 1)[None] / 127.5 - 1}})
print(config["labels"][outputs[0].argmax()])
"""
_OUTPUTS = {
    "classification": """for text, logits in zip(texts, outputs):
    print(config["labels"][logits.argmax()], text, sep="\\t")
""",
    "token_classification": """for encoding, logits in zip(encodings, outputs):  # a word has the tag of its first token
    for token, tag in zip(encoding.tokens, logits.argmax(-1)):
        print(token, config["labels"][tag], sep="\\t")
""",
    "masked_lm": """for row, logits in zip(ids, outputs):
    for position in np.flatnonzero(row == tokenizer.token_to_id("{mask}")):
        print(tokenizer.id_to_token(logits[position].argmax()))
""",
    "embedding": """print(outputs / np.linalg.norm(outputs, axis=1, keepdims=True))
""",
}
_TITLES = {
    "classification": "Classifier",
    "token_classification": "Tagger: one label per token",
    "masked_lm": "Masked language model",
    "embedding": "Sentence embeddings",
}


def readme(config: Config, mask_token: str) -> str:
    """Return the text of README.md; its example runs in the folder."""
    model = config.model
    head = _HEAD.format(
        title=_TITLES[model.head],
        input="ids" if model.has_text else "pixels",
        output="sentence_embedding" if model.head == "embedding" else "logits",
        dynamic=" and length are" if model.has_text else " is",
        limits=f"A text has at most {_max_tokens(config):,} tokens. " if model.has_text else "",
        tokenizer="; `tokenizer.json` contains the tokenizer" if model.has_text else "",
    )
    if not model.has_text:
        return head + _IMAGE.format(mode="L" if model.image_channels == 1 else "RGB") + "```\n"
    texts = ["The first text.", "A second text, which is longer."]
    if model.head == "masked_lm":
        texts = [f"The {mask_token} text.", f"A second text {mask_token} is longer."]
    return head + _TEXT.format(texts=texts) + _OUTPUTS[model.head].replace("{mask}", mask_token) + "```\n"


def _max_tokens(config: Config) -> int:
    """Return the length limit in tokens; learned positions after the longest training text are not trained."""
    limit = config.model.max_positions
    return min(limit, config.data.max_tokens) if config.model.positions == "learned" else limit


class HeadGraph(nn.Module):
    """Encoder and head: logits_BL of labels, logits_BSL of tags, or logits_BSV of masked words."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of ids_BS or of pixels_BCYX."""
        logits: Tensor = self.network.logits(self.network(inputs))
        return logits


class EmbeddingGraph(nn.Module):
    """Encoder and pooling: the sentence embedding of `clearhead embed`, the mean state of all positions but padding."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids_BS: Tensor) -> Tensor:
        """Return embedding_BD."""
        encoded: EncoderOutput = self.network.backbone(ids_BS)
        return pool(encoded.states_BSD, ids_BS != self.network.config.pad_id, "mean")


def write_encoder(config: Config, network: Any, tokenizer: Tokenizer | None, folder: Path) -> None:
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
    settings = {"task": config.task, "labels": list(config.labels), **model.model_dump(mode="json")}
    write_new(folder / "config.json", (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode())
    mask_token = ""
    if tokenizer is not None:
        write_new(folder / "tokenizer.json", (pipeline_with_special_tokens(tokenizer, config) + "\n").encode())
        mask_token = "" if tokenizer.mask_id is None else tokenizer.token(tokenizer.mask_id)
    write_new(folder / "README.md", readme(config, mask_token).encode())


def input_name(config: Config) -> str:
    """Return the name of the graph's input."""
    return "ids" if config.model.has_text else "pixels"


@contextmanager
def _onnx_recurrence(network: nn.Module) -> Iterator[None]:
    """Run recurrent layers as ONNX operators, since torch.export would unroll them to the length of the example."""
    layers = [module for module in network.modules() if isinstance(module, RecurrentLayer)]
    for layer in layers:
        layer.run_kernel = lambda *arguments, layer=layer: _run_operator(layer, *arguments)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.run_kernel


def _run_operator(
    layer: RecurrentLayer, x_BSI: Tensor, start: LayerState, weights: Sequence[Tensor]
) -> tuple[Tensor, LayerState]:
    """Return h_BSD and the last state like `RecurrentLayer.run_kernel`, computed by one ONNX operator."""
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
