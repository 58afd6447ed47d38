"""Hugging Face folders that `transformers` loads with the same logits, and that can be imported again."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.interop.checkpoint_tensors import WEIGHTS
from clearhead.interop.huggingface.formats import ModelFormat
from clearhead.interop.huggingface.generation_config import write_generation
from clearhead.interop.huggingface.reader import CONFIG, FORMATS
from clearhead.interop.huggingface.tokenizer_files import tokenizer_files
from clearhead.interop.weight_mapping import invert
from clearhead.model.parameters import Weights

# The architectures that may hold each family; of several without blocking settings, the first is written.
_CANDIDATES = {
    "encoder": ("distilbert", "bert"),
    "decoder": ("gpt2",),
    "vit": ("vit",),
    "transformer": ("t5", "marian", "pegasus"),
}


def choose_format(config: Config) -> tuple[ModelFormat | None, list[str]]:
    """Return the architecture with the fewest blocking settings, and those settings.

    Without one for the family, return None and the family as the blocking setting.
    """
    names = _CANDIDATES.get(config.model.family)
    if names is None:
        expected = " or ".join(_CANDIDATES)
        return None, [f"model.family={config.model.family} (expected {expected})"]
    found = [(FORMATS[name], FORMATS[name].blocking(config)) for name in names]
    return min(found, key=lambda each: len(each[1]))


def write(config: Config, weights: Weights, tokenizer: Tokenizer | None, folder: Path) -> list[str]:
    """Write a model without blocking settings into an empty folder; return notes on what could not be included."""
    form, blocking = choose_format(config)
    assert form is not None and not blocking
    texts: dict[str, dict[str, Any]] = {CONFIG: form.write(config)}
    table = form.table(config, ())
    tensors = {**invert(table, weights), **form.extra(config)}
    notes: list[str] = []
    if unused := sorted(weights.keys() - {link.ours for link in table.links}):
        notes.append(f"left out, because {texts[CONFIG]['architectures'][0]} has no such weights: {', '.join(unused)}")
    if tokenizer is not None:
        files, more = tokenizer_files(tokenizer, config)
        texts |= files
        notes += more
    if config.model.head == "generation":
        texts["generation_config.json"] = write_generation(config, notes)
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(own, folder / WEIGHTS, {"format": "pt"})
    for name, text in texts.items():
        (folder / name).write_text(json.dumps(text, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes
