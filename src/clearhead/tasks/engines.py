"""Generating engines by name, over a model of a bundle. Imports torch only for engines that need it."""

from typing import Protocol, cast

from clearhead.engines.engine import Engine
from clearhead.engines.engine_choice import check_native
from clearhead.engines.model_weights import ModelWeights
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.threads import num_threads
from clearhead.runtime import ComputeType
from clearhead.tasks.language_modeling.inference import context_length, suppressed_tokens
from clearhead.tasks.task import LoadedModel


class SavedModel(LoadedModel, Protocol):
    """A loaded model with its weights."""

    @property
    def weights(self) -> ModelWeights: ...


def open_engine(model: SavedModel, name: str, compute_type: str = "float32", token_log_probs: bool = True) -> Engine:
    """Return the engine of that name."""
    if name == "native":
        return _open_native(model, compute_type, token_log_probs)
    from clearhead.tasks.torch_engines import generation_engine, translation_engine

    if model.config.model.family == "decoder":
        return generation_engine(model.network, model.config, model.tokenizer)
    return translation_engine(model.network)


def _open_native(model: SavedModel, compute_type: str, token_log_probs: bool) -> Engine:
    """Return the native engine. Raises DecodingError if it cannot run this model."""
    check_native(model.config.model)
    prepared = model.weights.native_model(cast(ComputeType, compute_type))
    if model.config.model.family != "decoder":
        return NativeEngine(prepared, num_threads(), token_log_probs=token_log_probs)
    return NativeEngine(
        prepared,
        num_threads(),
        context_length(model.config),
        suppressed_tokens(model.tokenizer),
        token_log_probs=token_log_probs,
    )
