"""Small random models of `transformers`, saved as their users would save them, with a tokenizer beside."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

hf: Any = transformers  # whose types are not strict

WORDS = ["the", "a", "small", "dog", "cat", "runs", "sleeps", "##s", "##ing", "eat", "drink", ".", ",", "café", "big"]
BERT_PIECES = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *WORDS,
    *"bcdefgh",
    *(f"##{c}" for c in "abcdefgh"),
]
TEXTS = ["The small dog runs.", "a cat sleeps, eating", "cafés", "xyz big [SEP] dog"]


@torch.no_grad()
def shaken(model: Any) -> Any:
    """The model with no weight left at 0 or 1, in which a forgotten one would not show."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def save(model: Any, folder: Path) -> Path:
    """A folder with config.json and model.safetensors."""
    model.save_pretrained(folder)
    return folder


def bert_tokenizer(folder: Path) -> None:
    """vocab.txt and its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(BERT_PIECES) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
