"""Converted networks compute the same values as their origins; unsupported settings are refused by name."""

from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.ctranslate2 import CTranslate2Vocabulary, convert
from clearhead.model.registry import build_model

VOCAB, PAD, START, END, LONGEST = 37, 0, 2, 3, 61
VOCABULARY = [f"token{index}" for index in range(VOCAB)]
VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm_placement": "post"},
    "learned positions": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "few distances": {"positions": "relative", "relative_buckets": 6, "relative_max_distance": 11},
    "near distances": {"positions": "relative", "relative_buckets": 22, "relative_max_distance": 3},
    "t5": {"positions": "relative", "norm": "rms", "bias": False, "scale_attention": False, "gated": True},
    "gelu": {"activation": "gelu", "embedding_norm": True, "scale_embeddings": False},
    "gelu of gpt-2": {"activation": "gelu_tanh", "tied_embeddings": "none"},
    "no biases": {"bias": False, "norm_epsilon": 0.1, "tied_embeddings": "target"},
    "heads with another width": {"key_dim": 6, "value_dim": 6},
    "swish": {"activation": "silu", "sinusoidal_layout": "concatenated", "norm_placement": "post", "final_norm": True},
    "no last norm": {"final_norm": False, "sinusoidal_layout": "fairseq"},
    "rotary heads with another width": {"key_dim": 6, "value_dim": 6, "positions": "rotary"},
}


def network(family: str, **settings: Any) -> Any:
    """Return a network with random weights, also for those initialized to ones and zeros."""
    torch.manual_seed(3)
    fields = {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 20, "feed_forward_dim": 31, "num_heads": 5,
              "max_positions": LONGEST, "vocab_size": VOCAB, "family": family}  # fmt: skip
    model = build_model(ModelConfig.model_validate({**fields, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.eval()


def tokens_of(ids: Tensor) -> list[str]:
    return [VOCABULARY[index] for index in ids.tolist()]


def read(folder: Path, model: nn.Module, kind: str = "Translator", compute_type: str = "float32") -> Any:
    convert(model, CTranslate2Vocabulary(VOCABULARY), folder)
    return getattr(ctranslate2, kind)(str(folder), compute_type=compute_type, intra_threads=1)


@torch.no_grad()
def token_log_probs(model: Any, source: Tensor, target: Tensor) -> Tensor:
    start, end = torch.tensor([START]), torch.tensor([END])
    logits_TV = model.logits(model(torch.cat((source, end))[None], torch.cat((start, target))[None]))[0]
    found: Tensor = logits_TV.log_softmax(-1)[torch.arange(len(target) + 1), torch.cat((target, end))]
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_a_translator_has_the_probabilities_of_the_network(name: str, tmp_path: Path) -> None:
    scale_output = {"scale_output": True} if name == "t5" else {}
    model = network("transformer", **VARIANTS[name], **scale_output)
    translator = read(tmp_path, model)
    pairs = [(torch.randint(4, VOCAB, (s,)), torch.randint(4, VOCAB, (t,))) for s, t in ((1, 7), (13, 3), (59, 60))]
    sources = [[*tokens_of(source), VOCABULARY[END]] for source, _ in pairs]
    results = translator.score_batch(sources, [tokens_of(target) for _, target in pairs])
    for (source, target), result in zip(pairs, results, strict=True):
        expected = token_log_probs(model, source, target)
        torch.testing.assert_close(torch.tensor(result.log_probs), expected, atol=2e-4, rtol=2e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_language_model_has_the_logits_of_the_network(name: str, tmp_path: Path) -> None:
    model = network("decoder", **VARIANTS[name])
    ids_NT = torch.randint(4, VOCAB, (3, LONGEST))
    found = read(tmp_path, model, "Generator").forward_batch([tokens_of(ids_T) for ids_T in ids_NT])
    with torch.no_grad():
        expected_NTV = model.logits(model(ids_NT))
    torch.testing.assert_close(torch.from_numpy(np.array(found)), expected_NTV, atol=3e-4, rtol=3e-5)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"family": "gru"}, r"cannot express model\.family=gru \(expected transformer or decoder\)"),
        (
            {"family": "encoder", "head": "masked_lm"},
            r"model\.family=encoder \(.*\), model\.head=masked_lm \(expected generation\)",
        ),
        ({"input": "image", "image_size": 8}, r"model\.input=image"),
        ({"num_labels": 5}, r"model\.num_labels=5"),
        ({"norm": "batch"}, r"model\.norm=batch"),
        ({"norm": "group"}, r"model\.norm=group"),
        ({"key_dim": 3, "value_dim": 7}, r"model\.value_dim=7 \(expected 3\)"),
        ({"positions": "relative", "relative_buckets": 3}, r"model\.relative_buckets=3 \(expected at least 4\)"),
    ],
)
def test_unsupported_settings_are_refused_by_name(settings: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(InteropError, match=named):
        convert(network(**{"family": "transformer", **settings}), CTranslate2Vocabulary(VOCABULARY), tmp_path)
    assert not list(tmp_path.iterdir())


def test_int8_takes_a_quarter_of_the_space_and_does_not_change_the_network(tmp_path: Path) -> None:
    model = network("transformer", model_dim=80, feed_forward_dim=160)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sizes = {}
    for kind in ("float32", "int8"):
        (folder := tmp_path / kind).mkdir()
        convert(model, CTranslate2Vocabulary(VOCABULARY), folder, kind)
        sizes[kind] = (folder / "model.bin").stat().st_size
    assert sizes["int8"] < 0.35 * sizes["float32"]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
