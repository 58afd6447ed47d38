"""Torch engines of a network that generates text."""

from typing import Any

import torch

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_engine import TorchEngine
from clearhead.engines.torch_forward import device_of
from clearhead.tasks.language_modeling.inference import context_length, suppressed_tokens


def translation_engine(model: Any) -> TorchEngine:
    """Return the engine of a network that reads a source, with as many threads as torch may use."""
    config = model.config
    return TorchEngine(
        model,
        config.eos_id,
        config.pad_id,
        config.input_vocab_size,
        config.max_positions,
        threads=torch.get_num_threads(),
        device=device_of(model),
    )


def generation_engine(network: Any, config: Config, tokenizer: Tokenizer) -> TorchEngine:
    """Return the engine of a language model, with as many threads as torch may use."""
    model, threads = config.model, torch.get_num_threads()
    return TorchEngine(
        network, tokenizer.eos_id, model.pad_id, model.vocab_size, context_length(config), threads=threads,
        device=device_of(network), is_prompted=True, suppressed_tokens=suppressed_tokens(tokenizer),
    )  # fmt: skip
