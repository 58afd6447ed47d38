"""Generating engines by name, over a model of a bundle. Imports torch only for engines that need it."""

from pathlib import Path
from typing import Protocol, cast

from clearhead.bundle import Manifest, cached
from clearhead.data.shortlist import Shortlist
from clearhead.engines.engine import Engine
from clearhead.engines.model_weights import ModelWeights
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.select import check_native
from clearhead.engines.threads import num_threads
from clearhead.runtime import ComputeType
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_generation import context_of, no_text


class SavedModel(LoadedModel, Protocol):
    """A model in a folder."""

    @property
    def folder(self) -> Path: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def weights(self) -> ModelWeights: ...


def open_engine(
    model: SavedModel,
    name: str,
    compute_type: str = "float32",
    token_log_probs: bool = True,
    shortlist: Shortlist | None = None,
) -> Engine:
    """Return the engine of that name.

    The ctranslate2 engine has one shortlist for all requests; for the others it comes with each request.
    """
    if name == "ctranslate2":
        return _open_ctranslate2(model, compute_type, token_log_probs, shortlist)
    if name == "native":
        return _open_native(model, compute_type, token_log_probs)
    from clearhead.tasks.torch_engines import translation_engine, writing_engine

    if model.config.model.family == "decoder":
        return writing_engine(model.network, model.config, model.tokenizer)
    return translation_engine(model.network)


def _open_native(model: SavedModel, compute_type: str, token_log_probs: bool) -> Engine:
    """Return the native engine. Raises DecodingError if it cannot run this model."""
    check_native(model.config.model)
    prepared = model.weights.native(cast(ComputeType, compute_type))
    if model.config.model.family != "decoder":
        return NativeEngine(prepared, num_threads(), token_log_probs=token_log_probs)
    return NativeEngine(
        prepared, num_threads(), context_of(model.config), no_text(model.tokenizer), token_log_probs=token_log_probs
    )


def _open_ctranslate2(
    model: SavedModel, compute_type: str, token_log_probs: bool, shortlist: Shortlist | None
) -> Engine:
    """Return the engine over a conversion that is made once and kept; with a shortlist it is another one."""
    from clearhead.engines.ctranslate2_engine import CTranslate2Engine
    from clearhead.engines.ctranslate2_models import ComputeType as CTranslate2Type
    from clearhead.interop import ctranslate2
    from clearhead.interop.plain import need_plain

    need_plain(model.network)  # also where its conversion is kept already
    vocabulary, kind = ctranslate2.vocabulary_of(model.tokenizer), ctranslate2.kind()
    if shortlist is not None:
        kind = f"shortlist-{shortlist.digest[:12]}-{kind}"

    def make(folder: Path) -> None:
        ctranslate2.convert(model.network, vocabulary, folder, shortlist=shortlist)

    is_prompted = model.config.model.family == "decoder"
    return CTranslate2Engine(
        cached(model.folder, model.manifest, kind, make),
        model.config.model,
        vocabulary,
        cast(CTranslate2Type, compute_type),
        threads=num_threads(),
        token_log_probs=token_log_probs,
        context=context_of(model.config) if is_prompted else 0,
        suppressed_tokens=no_text(model.tokenizer) if is_prompted else None,
        has_shortlist=shortlist is not None,
    )
