"""From our model to a folder that `transformers` loads and that gives the same logits."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import InteropError
from clearhead.interop.huggingface import CONFIG, FORMATS
from clearhead.interop.tables import invert
from clearhead.interop.tensors import WEIGHTS
from clearhead.interop.tokenizer_files import tokenizer_files
from clearhead.model.weights import Weights


def write(config: Config, weights: Weights, tokenizer: Tokenizer | None, folder: Path) -> list[str]:
    """Fills an empty folder; gives what could not come along, for the user to know."""
    form = FORMATS[_family(config)]
    texts: dict[str, dict[str, Any]] = {CONFIG: form.write(config)}
    tensors = {**invert(form.table(config, ()), weights), **form.extra(config)}
    notes: list[str] = []
    if tokenizer is not None:
        files, notes = tokenizer_files(tokenizer, config)
        texts |= files
    if config.model.head == "text":
        texts["generation_config.json"] = _generation(config, notes)
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(own, folder / WEIGHTS, {"format": "pt"})
    for name, text in texts.items():
        (folder / name).write_text(json.dumps(text, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes


def _family(config: Config) -> str:
    """Their family that can hold a network like this one."""
    model = config.model
    if model.family == "encoder":
        return "bert" if model.num_segments else "distilbert"
    if model.family == "decoder":
        return "gpt2"
    if model.family == "patches":
        return "vit"
    if model.family == "transformer":
        return "t5" if model.positions == "relative" else "marian" if model.norm_placement == "post" else "pegasus"
    raise InteropError(f"model.family={model.family} has no counterpart among {', '.join(FORMATS)}")


def _generation(config: Config, notes: list[str]) -> dict[str, Any]:
    """The decoding settings in their words."""
    decoding, model = config.decoding, config.model
    settings: dict[str, Any] = {"eos_token_id": model.end_id}
    if config.task == "lm":
        settings["max_new_tokens"] = decoding.sampling.max_tokens
    if decoding.method == "sample":
        drawn = decoding.sampling
        how = {"temperature": drawn.temperature, "top_k": drawn.top_k, "top_p": drawn.top_p, "min_p": drawn.min_p}
        return settings | {"num_beams": 1, "do_sample": drawn.temperature > 0} | (how if drawn.temperature else {})
    settings["num_beams"] = decoding.beam
    if decoding.length_norm == "paper":
        notes.append("decoding.length_norm=paper has no counterpart; length_penalty is left out")
    else:
        settings["length_penalty"] = decoding.alpha if decoding.length_norm == "length" else 0.0
    settings["early_stopping"] = {"beam_finished": True, "cannot_improve": "never"}.get(decoding.stop, False)
    return settings
