"""Bundles with random weights that never write the end piece, so that every contestant decodes equally many tokens."""

from pathlib import Path
from typing import Any

import torch

import clearhead.config
from clearhead.bundle.writing import save as save_bundle
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.transformer import Transformer
from clearhead.model.weights import named_weights

_WIDE = {"num_encoder_layers": 6, "num_decoder_layers": 6, "model_dim": 512, "feed_forward_dim": 2048, "num_heads": 8}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": ("tiny", {}),
    "small": ("small", {}),
    "wide": ("small", _WIDE),
}
"""Name -> preset, and the settings of its model section that are laid over it."""
NEVER = -1e4
# Logits of fresh weights are close together, and clearhead decodes close calls again: 8 of 1,014 sentences of 17 pieces
# with a beam of 1, and 23 with a beam of 4. Of a model trained on Multi30k (preset tiny, 25.7 BLEU) it was 1 and 4.
SPREAD = 6.0


def save_endless(folder: Path, shape: str, tokenizer: Tokenizer) -> None:
    """A bundle of that shape.

    Logits are spread as those of a trained model are. The first channel of the decoder's last norm is made a constant
    1, so that the first column of the output table is a bias, which rules the end out. Any engine can express that.
    """
    preset, settings = SHAPES[shape]
    model = {"vocab_size": tokenizer.vocab_size, "tied_embeddings": "none", **settings}
    config = clearhead.config.build({"model": model}, preset=preset)
    torch.manual_seed(1)
    network = Transformer(config.model)
    norm = network.decoder.norm
    assert isinstance(norm, torch.nn.LayerNorm)
    with torch.no_grad():
        norm.weight[0], norm.bias[0] = 0.0, 1.0
        network.output.weight.mul_(SPREAD)
        network.output.weight[:, 0] = 0.0
        network.output.weight[config.model.eos_id, 0] = NEVER
    save_bundle(
        folder,
        weights=named_weights(network),
        config=config.model_dump(mode="json"),
        tokenizer=tokenizer.to_json(),
        weights_kind="last",
        data={},
        training={},
    )
