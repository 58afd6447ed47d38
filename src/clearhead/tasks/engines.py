"""Engines that generate text, for a loaded model by name and for a network during training.

torch is imported only in the functions that need it.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import Engine, check_native
from clearhead.engines.model_weights import ModelWeights
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.threads import num_threads
from clearhead.runtime import (
    ComputeType,
    NativeModel,
    check_fallback,
    prepare,
    why_unavailable,
    why_unsupported,
)
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_training_tokens

if TYPE_CHECKING:
    from clearhead.engines.torch_engine import TorchEngine


class SavedModel(LoadedModel, Protocol):
    """A loaded model with its weights."""

    @property
    def weights(self) -> ModelWeights: ...


class PromptContext(NamedTuple):
    """Generation limits of a language model."""

    eos_id: int
    length: int
    """Size of the context window in tokens."""
    suppressed_tokens: list[int]
    """Tokens that are never generated."""


def prompt_context(config: Config, tokenizer: Tokenizer) -> PromptContext | None:
    """Return the limits of a language model; None for other models."""
    if config.model.family != "decoder":
        return None
    return PromptContext(tokenizer.eos_id, max_training_tokens(config), suppressed_tokens(tokenizer))


def open_engine(model: SavedModel, name: str, compute_type: str = "float32", token_log_probs: bool = True) -> Engine:
    """Return the engine of that name. Raise DecodingError if the native engine does not support the model."""
    context = prompt_context(model.config, model.tokenizer)
    if name != "native":
        return torch_engine(model.network, context)
    check_native(model.config.model)
    return _native_engine(
        model.weights.native_model(cast(ComputeType, compute_type)), num_threads(), context, token_log_probs
    )


def network_engine(network: Any, context: PromptContext | None = None) -> Engine:
    """Return the native engine with the current weights of a network, or the torch engine if it is not supported."""
    import torch

    native_copy = _native_copy(network)
    if native_copy is None:
        return torch_engine(network, context)
    return _native_engine(native_copy, torch.get_num_threads(), context)


def torch_engine(network: Any, context: PromptContext | None = None) -> "TorchEngine":
    """Return the torch engine of a network, with as many threads as torch may use."""
    import torch

    from clearhead.engines.torch_engine import TorchEngine
    from clearhead.engines.torch_forward import device_of

    model, threads, device = network.config, torch.get_num_threads(), device_of(network)
    if context is None:
        return TorchEngine(
            network, model.eos_id, model.pad_id, model.input_vocab_size, model.max_positions,
            threads=threads, device=device,
        )  # fmt: skip
    return TorchEngine(
        network, context.eos_id, model.pad_id, model.vocab_size, context.length,
        threads=threads, device=device, is_prompted=True, suppressed_tokens=context.suppressed_tokens,
    )  # fmt: skip


def suppressed_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that a language model must not generate: all special tokens except the end token."""
    return [token for token in tokenizer.special_ids if token != tokenizer.eos_id]


def _native_engine(
    model: NativeModel, threads: int, context: PromptContext | None, token_log_probs: bool = True
) -> NativeEngine:
    if context is None:
        return NativeEngine(model, threads, token_log_probs=token_log_probs)
    return NativeEngine(model, threads, context.length, context.suppressed_tokens, token_log_probs=token_log_probs)


def _native_copy(network: Any) -> NativeModel | None:
    """Return a copy of the network for the native runtime; None if the runtime does not support the network.

    Raise MissingPackageError if the runtime is not installed and a fallback to torch is forbidden, such as in CI.
    """
    from torch import Tensor

    config, tensors = network.config, network.state_dict()
    is_plain = all(type(tensor) is Tensor and tensor.device.type == "cpu" for tensor in tensors.values())
    if not is_plain or why_unsupported(config):
        return None
    if why_unavailable():
        check_fallback()
        return None
    arrays: dict[int, Any] = {}  # tied tensors share one array
    named = {name: arrays.setdefault(tensor.data_ptr(), tensor.float().numpy()) for name, tensor in tensors.items()}
    return prepare(config, named)
