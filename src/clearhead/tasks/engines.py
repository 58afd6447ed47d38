"""The engines by name, each over a model that was loaded from a bundle."""

from pathlib import Path
from typing import Protocol, get_args

import torch

from clearhead.bundle import Manifest, cached
from clearhead.data.shortlist import Shortlist
from clearhead.engines.ctranslate2_engine import CTranslate2Engine
from clearhead.engines.ctranslate2_models import ComputeType
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError
from clearhead.interop import ctranslate2
from clearhead.interop.plain import need_plain
from clearhead.tasks.searching import translation_engine
from clearhead.tasks.task import Ready
from clearhead.tasks.writing import context_of, no_text, writing_engine

ENGINES = ("torch", "ctranslate2")


class Saved(Ready, Protocol):
    """A model that lies in a folder."""

    @property
    def folder(self) -> Path: ...
    @property
    def manifest(self) -> Manifest: ...


def open_engine(
    model: Saved,
    name: str,
    compute_type: str = "float32",
    token_log_probs: bool = True,
    shortlist: Shortlist | None = None,
) -> Engine:
    """The engine of that name, on as many cores as torch may use.

    The ctranslate2 engine has a shortlist for all requests; that of the torch engine comes with each.
    """
    types = get_args(ComputeType)
    if name not in ENGINES or compute_type not in types:
        raise DecodingError(
            f"expected an engine of {', '.join(ENGINES)} and a compute type of {', '.join(types)}, "
            f"not {name} and {compute_type}"
        )
    if name == "ctranslate2":
        return _open_ctranslate2(model, compute_type, token_log_probs, shortlist)  # type: ignore[arg-type]
    if compute_type != "float32":
        raise DecodingError(f"the torch engine computes in float32, not in {compute_type}; use --engine ctranslate2")
    if model.config.model.family == "decoder":
        return writing_engine(model.network, model.config, model.tokenizer)
    return translation_engine(model.network)


def _open_ctranslate2(
    model: Saved, compute_type: ComputeType, token_log_probs: bool, shortlist: Shortlist | None
) -> CTranslate2Engine:
    """Over a conversion that is made once and kept; with a shortlist it is another one."""
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
        compute_type,
        threads=torch.get_num_threads(),
        token_log_probs=token_log_probs,
        context=context_of(model.config) if is_prompted else 0,
        never=no_text(model.tokenizer) if is_prompted else None,
        has_shortlist=shortlist is not None,
    )
