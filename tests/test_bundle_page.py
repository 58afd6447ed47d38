"""docs/bundle.md lists every tensor that a network saves, and tensor names contain no axis letters."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import build
from clearhead.model.registry import build_model

PAGE = (Path(__file__).parents[1] / "docs" / "bundle.md").read_text(encoding="utf-8")
SIZES = {
    "vocab_size": 11, "model_dim": 6, "feed_forward_dim": 5, "num_heads": 2, "num_encoder_layers": 2, "num_labels": 3,
    "num_decoder_layers": 2, "image_size": 4, "patch_size": 2, "max_positions": 7, "norm_groups": 2,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"gated": True, "output_bias": True, "embedding_norm": True, "positions": "learned"},
    "T5": {"positions": "relative", "norm": "rms", "bias": False, "tied_embeddings": "input"},
    "captions": {"input": "image", "positions": "learned", "tied_embeddings": "target"},
    "decoder": {"family": "decoder", "tied_embeddings": "none"},
    "BERT": {"family": "encoder", "head": "masked_lm", "num_segments": 2, "pooler": True},
    "batch norm": {"family": "encoder", "head": "classification", "norm": "batch"},
    "tagger": {"family": "lstm", "head": "token_classification", "bidirectional": True},
    "embedding": {"family": "encoder", "head": "embedding", "pooler": True},
    **{
        family: {"family": family, "head": "classification", "positions": "learned"} for family in ("vit", "cnn", "mlp")
    },
    **{
        f"lstm, {kind}": {"family": "lstm", "attention": kind, "bidirectional": True}
        for kind in ("none", "dot", "general", "additive", "cosine")
    },
}


def expanded(pattern: str) -> list[str]:
    """Return the names that a pattern with braces describes: `a.b` and `a.c` for `a.{b,c}`."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def documented() -> set[str]:
    """Return all names in the tables, with the prefixes of the headings."""
    found = {name for code in re.findall(r"`([^`]+)`", PAGE) for name in expanded(code)}
    below = {
        prefix + name
        for prefix in ("encoder.", "decoder.")
        for name in found
        if name.startswith(("layers.", "norm.", "rel"))
    }
    kinds = ("tokens.", "positions.", "segments.", "norm.", "projection.", "class_token")
    found_names = ("source_embedding.", "target_embedding.", "embedding.")
    below |= {prefix + name for prefix in found_names for name in found if name.startswith(kinds)}
    figures = ("running_mean", "running_var", "num_batches_tracked")
    below |= {name.replace("norm.weight", f"norm.{figure}") for name in below for figure in figures}
    return {prefix + name for prefix in ("", "backbone.") for name in found | below}


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_documented(name: str) -> None:
    network = build_model(build({"model": {**SIZES, **MODELS[name]}}).model)
    tensors = [
        re.sub(r"\.\d+", ".N", tensor).replace("bridges.N.N.", "bridges.N.M.") for tensor in network.state_dict()
    ]
    assert not {*tensors} - documented()
    assert not [tensor for tensor in tensors if re.search(r"_[A-Z]+$", tensor)]
