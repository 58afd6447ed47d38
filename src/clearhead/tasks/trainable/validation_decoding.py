"""Greedy decoding of validation examples, with limits that also hold for a model that has learned little yet."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import Config, DecodingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.requests import Constraints, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine, NoOutputError
from clearhead.engines.native_engine import NativeEngine
from clearhead.runtime import NativeModel, check_fallback, prepare, why_unavailable, why_unsupported
from clearhead.tasks.language_modeling.inference import context_length, suppressed_tokens
from clearhead.tasks.torch_engines import generation_engine, translation_engine
from clearhead.tasks.trainable.baseline import Baseline
from clearhead.tasks.trainable.task import SAMPLE_LINES, Decode

SPARE = 10  # tokens that greedy output in validation may have beyond what its input suggests
LENGTH_FACTOR = 1.5  # of the source; a model that is still poor writes up to the limit, so references do not set it


def validation_decoding(factor: float = LENGTH_FACTOR) -> DecodingConfig:
    """Return greedy search with outputs of at most `factor` times the source length plus `SPARE` tokens."""
    return DecodingConfig(beam_size=1, max_length=f"{factor:.3f}*input+{SPARE}")


def lines_to_decode(decode: Decode, loss: float, baseline: Baseline, lines: int) -> int:
    """Return how many of the first `lines` validation examples are decoded."""
    if decode == "always" or loss < baseline.decoding_loss:
        return lines
    return min(lines, SAMPLE_LINES) if decode == "sample" else 0


def decode_examples(
    network: Any,
    sources: Sequence[Sequence[int]],
    end_id: int,
    decoding: DecodingConfig,
    constraints: Constraints | None = None,
) -> list[tuple[int, ...]]:
    """The best output for each source, both as ids without start and end; nothing of a network that has diverged."""
    requests = [Request((*source, end_id), constraints=constraints) for source in sources]
    return best_of(requests, network, decoding)


def best_of(requests: Sequence[Request], network: Any, decoding: DecodingConfig) -> list[tuple[int, ...]]:
    """The best output for each request; an empty one where a network that has diverged gives no probabilities."""
    found: Sequence[list[Hypothesis]]
    try:
        found = constrained_decoding.decode(_engine_of(network), requests, decoding)
    except NoOutputError as error:
        found = error.answers if len(error.answers) == len(requests) else [[] for _ in requests]
    return [hypotheses[0].tokens if hypotheses else () for hypotheses in found]


def prompted_engine_of(network: Any, config: Config, tokenizer: Tokenizer) -> Engine:
    """Return an engine for a language model with its present weights: native, or torch if the core cannot run it."""
    model = _native_copy(network)
    if model is None:
        return generation_engine(network, config, tokenizer)
    return NativeEngine(model, torch.get_num_threads(), context_length(config), suppressed_tokens(tokenizer))


def _engine_of(network: Any) -> Engine:
    """Return an engine with the network's present weights: native, or torch if the core cannot run it."""
    model = _native_copy(network)
    return translation_engine(network) if model is None else NativeEngine(model, torch.get_num_threads())


def _native_copy(network: Any) -> NativeModel | None:
    """Return a copy of the network in the core, None if it cannot run it.

    Raises MissingPackageError if the core is missing where that is an error, such as with CI set.
    """
    config, tensors = network.config, network.state_dict()
    is_plain = all(type(tensor) is Tensor and tensor.device.type == "cpu" for tensor in tensors.values())
    if not is_plain or why_unsupported(config):
        return None
    if why_unavailable():
        check_fallback()
        return None
    arrays: dict[int, NDArray[Any]] = {}
    named = {name: arrays.setdefault(each.data_ptr(), each.float().numpy()) for name, each in tensors.items()}
    return prepare(config, named)
